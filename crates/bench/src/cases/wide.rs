//! The case wide: one L1 weight for each of many parameters, elementwise losses, and nothing that a large state could hide
//! behind.
//!
//!   L_T = ½·Σ(θ − 1)² + Σλ·|θ|,   f = Σ(θ − 0.8)²,   λ ← λ − 0.01·h

use crate::cases::sgld::{Chain, hypergradient};
use crate::error::Result;
use bilevel::methods::HpoSgld;
use bilevel::{Cpu, DType, Driver, InnerLoop, Leaf, Problem, Variable};
use bilevel_graph::{Array, Buffer, Data, Executor, Graph, Meta, Program, Runnable, Tensor};

/// Numbers of λ, and of θ, of the case as in the peers.
pub const COUNT: usize = 10_000_000;
/// The start of λ and θ.
const STARTS: [f64; 2] = [0.01, 0.5];
/// The step of λ.
pub const RATE: f64 = 0.01;
/// Inner steps of an outer iteration.
const STEPS: u32 = 10;

/// As the peers run it.
pub const METHOD: (HpoSgld, InnerLoop) =
    (HpoSgld {}, InnerLoop { burn_in: 5, ..InnerLoop::new(0.1, 10).at_temperature(1e-6) });

fn inner(lambda: Tensor, theta: Tensor) -> Tensor {
    (theta - 1.0).square().sum_all() * 0.5 + (lambda * theta.abs()).sum_all()
}

fn outer(theta: Tensor) -> Tensor {
    (theta - 0.8).square().sum_all()
}

/// The values of the chain's inputs at the start, but for the key.
pub fn inputs(count: usize) -> Result<[(&'static str, Array); 3]> {
    let [lambda, theta] = STARTS.map(|start| full(count, start));
    Ok([("lambda", lambda?), ("theta", theta?), ("h", Array::zeros([count], DType::F32))])
}

/// The chain of one outer iteration, with inputs `lambda`, `theta`, `h` and `key`.
pub fn chain(count: usize) -> Result<Program> {
    let graph = Graph::new();
    let [lambda, theta] = ["lambda", "theta"].map(|name| graph.input(name, [count], DType::F32));
    let walk = METHOD.1;
    let chain = Chain { gamma: walk.step, tau: walk.temperature, burn_in: walk.burn_in, samples: walk.samples() };
    hypergradient(&graph, &chain, (lambda, theta), inner, |_, t| outer(t))
}

/// The step of λ, which resets h to 0 for the next chain and returns its norm.
fn step(count: usize) -> Result<Program> {
    let graph = Graph::new();
    let [lambda, h] = ["lambda", "h"].map(|name| graph.input(name, [count], DType::F32));
    let norm = h.square().sum_all().sqrt();
    Ok(Program::builder(&graph)
        .output("norm", norm)
        .carry(lambda, lambda - h * RATE)
        .carry(h, h.zeros_like())
        .build()?)
}

/// This many times this number.
fn full(count: usize, value: f64) -> Result<Array> {
    Ok(Array::new([count], Data::F32(vec![value as f32; count].into()))?)
}

/// The two programs of an outer iteration, driven by hand.
pub struct Bare {
    chain: Box<dyn Runnable>,
    step: Box<dyn Runnable>,
    /// λ and θ.
    pub state: [Buffer; 2],
    key: usize,
}

impl Bare {
    /// λ and θ at their start.
    pub fn new(cpu: &Cpu, count: usize) -> Result<Self> {
        let (mut chain, mut step) = (cpu.compile(&chain(count)?)?, cpu.compile(&step(count)?)?);
        let [lambda, theta] = STARTS.map(|start| -> Result<Buffer> { Ok(cpu.upload(&full(count, start)?)?) });
        let (lambda, theta) = (lambda?, theta?);
        let h = cpu.buffer(&Meta { dtype: DType::F32, shape: vec![count] })?;
        for (name, buffer) in [("lambda", &lambda), ("theta", &theta), ("h", &h)] {
            chain.bind_input(chain.program().input(name)?, buffer)?;
        }
        for (name, buffer) in [("lambda", &lambda), ("h", &h)] {
            step.bind_input(step.program().input(name)?, buffer)?;
        }
        let key = chain.program().input("key")?;
        Ok(Bare { chain, step, state: [lambda, theta], key })
    }

    /// One outer iteration with this key; the norm of its hypergradient.
    pub fn iterate(&mut self, key: &Array) -> Result<f64> {
        self.chain.set(self.key, key)?;
        self.chain.run(0..STEPS)?;
        self.step.run(0..1)?;
        Ok(self.step.output(0)?.item().unwrap_or(f64::NAN))
    }
}

/// The problem as a user writes it.
pub fn problem(count: usize) -> Result<Problem> {
    let [lambda, theta] = STARTS.map(|start| Leaf(Variable::constant([count], start)));
    let problem =
        Problem::builder(lambda, theta).dtype(DType::F32).inner(|_, l, t| inner(l.0, t.0)).outer(|_, _, t| outer(t.0));
    Ok(problem.build()?.erase())
}

/// A run of it through the library.
pub fn driver(count: usize, cpu: &Cpu) -> Result<Driver> {
    Ok(Driver::new(&problem(count)?, METHOD.0).inner(METHOD.1).executor(cpu.clone()).rate(RATE))
}
