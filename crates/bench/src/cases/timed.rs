//! The timed cases: same names, shapes and types as the peers' programs, each as programs with values for their inputs.

use crate::cases::case::Case;
use crate::cases::case::Start::{Constant, Labels, Uniform};
use crate::cases::derivatives::{Products, inputs, program};
use crate::cases::losses::{conv64, mlp};
use crate::cases::sgld::{Chain, hypergradient};
use crate::cases::values::values;
use crate::cases::vit::vit_block;
use crate::cases::wide;
use crate::error::Result;
use bilevel_graph::{Array, DType, Graph, Program, gradient_or_zeros, nn, random::seed_key};

/// Names of all cases, in the order they run. A case may time more than one program.
pub const NAMES: [&str; 7] = ["synth1d", "scalar", "mlp", "conv64", "vit_block", "digits", "wide"];

/// A program of a case with the values its inputs start from.
pub struct Timed {
    /// Name of the program, as in the peers' lines.
    pub name: String,
    /// The program.
    pub program: Program,
    /// Values of its inputs, by name.
    pub inputs: Vec<(String, Array)>,
    /// The work of one timed call.
    pub call: Call,
}

/// The work of one timed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Inputs in place: one evaluation.
    Evaluate,
    /// Sets the one input, evaluates and reads every output, as a call from outside does.
    Scalars,
    /// 200 outer iterations of 100 steps each, the outer variable updated in between.
    Outer200,
    /// One outer iteration of 10 steps from the start.
    Outer10,
    /// One outer iteration of 10 steps and the step of λ after it, starting from the last one.
    Wide,
}

/// The programs of a case; none for a name that is not in [`NAMES`].
pub fn programs(name: &str) -> Result<Vec<Timed>> {
    match name {
        "synth1d" => synth1d(),
        "scalar" => scalar(),
        "mlp" => derivatives(mlp),
        "conv64" => derivatives(conv64),
        "vit_block" => derivatives(vit_block),
        "digits" => digits(),
        "wide" => wide(),
        _ => Ok(vec![]),
    }
}

fn derivatives(build: fn(&Graph, DType) -> Result<Case>) -> Result<Vec<Timed>> {
    let each = [(Products::Gradient, "grad"), (Products::GradientAndHessian, "grad_hvp")];
    each.into_iter()
        .map(|(products, suffix)| {
            let g = Graph::new();
            let case = build(&g, DType::F32)?;
            let program = program(&g, &case, products)?;
            let inputs = inputs(&case, &program, 0)?;
            Ok(Timed { name: format!("{}_{suffix}", case.name), program, inputs, call: Call::Evaluate })
        })
        .collect()
}

fn named<const N: usize>(inputs: [(&str, Array); N]) -> Vec<(String, Array)> {
    inputs.map(|(name, value)| (name.to_string(), value)).into()
}

/// The key of a random stream, as a program input.
pub fn key(seed: u64) -> Result<Array> {
    Ok(Array::from_i32([2], seed_key(seed).to_vec())?)
}

/// HPO-SGLD on the synthetic problem: inner θ³/3 − (1 − λ²)θ, outer (λ − θ)² + (θ − ½)².
fn synth1d() -> Result<Vec<Timed>> {
    let graph = Graph::new();
    let (lambda, theta) = (graph.input("lambda", [], DType::F64), graph.input("theta", [], DType::F64));
    let chain = Chain { gamma: 0.005, tau: 1e-6, burn_in: 50, samples: 50 };
    let program = hypergradient(
        &graph,
        &chain,
        (lambda, theta),
        |l, t| t * t * t / 3.0 - (1.0 - l * l) * t,
        |l, t| (l - t).square() + (t - 0.5).square(),
    )?;
    let at = |value| Array::scalar(value, DType::F64);
    let inputs = [("lambda", at(0.1)), ("theta", at(0.1)), ("key", key(0)?), ("h", at(0.0))];
    Ok(vec![Timed { name: "synth1d".into(), program, inputs: named(inputs), call: Call::Outer200 }])
}

/// First, and first and second derivative of x³.
fn scalar() -> Result<Vec<Timed>> {
    let each = [(false, "scalar_grad"), (true, "scalar_second")];
    each.into_iter()
        .map(|(second, name)| {
            let g = Graph::new();
            let x = g.input("x", [], DType::F64);
            let first = gradient_or_zeros(x * x * x, &[x])?[0];
            let mut builder = Program::builder(&g).output("first", first);
            if second {
                builder = builder.output("second", gradient_or_zeros(first, &[x])?[0]);
            }
            let inputs = [("x", Array::scalar(1.5, DType::F64))];
            Ok(Timed { name: name.into(), program: builder.build()?, inputs: named(inputs), call: Call::Scalars })
        })
        .collect()
}

/// HPO-SGLD for logistic regression 64-10 with one L2 weight per parameter.
fn digits() -> Result<Vec<Timed>> {
    let graph = Graph::new();
    let f32 = DType::F32;
    let (lambda, theta) = (graph.input("lambda", [640], f32), graph.input("theta", [640], f32));
    let (x, y) = (graph.input("x", [898, 64], f32), graph.input("y", [898], DType::I32));
    let (xv, yv) = (graph.input("xv", [899, 64], f32), graph.input("yv", [899], DType::I32));
    let chain = Chain { gamma: 0.1, tau: 1e-4, burn_in: 5, samples: 5 };
    let program = hypergradient(
        &graph,
        &chain,
        (lambda, theta),
        |l, w| nn::cross_entropy(x.matmul(w.reshape([64, 10])), y) + (l.exp() * w * w).sum_all(),
        |_, w| nn::cross_entropy(xv.matmul(w.reshape([64, 10])), yv),
    )?;
    let zeros = Array::zeros([640], f32);
    let inputs = [
        ("x", values(x, Uniform(1.0), 0, 0)?),
        ("y", values(y, Labels(10), 1, 0)?),
        ("xv", values(xv, Uniform(1.0), 2, 0)?),
        ("yv", values(yv, Labels(10), 3, 0)?),
        ("lambda", values(lambda, Constant(-5.0), 4, 0)?),
        ("theta", zeros.clone()),
        ("h", zeros),
        ("key", key(2)?),
    ];
    Ok(vec![Timed { name: "digits".into(), program, inputs: named(inputs), call: Call::Outer10 }])
}

/// HPO-SGLD with 10 million hyperparameters. The program is the chain.
fn wide() -> Result<Vec<Timed>> {
    let mut inputs = named(wide::inputs(wide::COUNT)?);
    inputs.push(("key".into(), key(2)?));
    Ok(vec![Timed { name: "wide".into(), program: wide::chain(wide::COUNT)?, inputs, call: Call::Wide }])
}
