//! Part 3: a two-layer network with penalties as hyperparameters: the cost of its second-order products, and a
//! hyperparameter without effect.

use super::page::duration;
use super::{Outcome, TourPage};
use bilevel_cpu::{Cpu, CpuRun};
use bilevel_graph::random::fill_uniform_f64;
use bilevel_graph::{
    Array, DType, Graph, Program, Result, Runnable, Tensor, Tree, gradient_or_zeros, mixed_vector, nn,
};
use std::time::Instant;

const BATCH: usize = 512;
const FEATURES: usize = 64;
const HIDDEN: usize = 256;
const CLASSES: usize = 10;

/// Parameters.
#[derive(Tree)]
struct Net<T> {
    hidden: T,
    hidden_bias: T,
    output: T,
    output_bias: T,
}

/// Penalties, as logarithms.
#[derive(Tree)]
struct Penalty<T> {
    weight: T,
    bias: T,
}

fn loss(penalty: &Penalty<Tensor>, net: &Net<Tensor>, x: Tensor, labels: Tensor) -> Tensor {
    let hidden = nn::linear(x, net.hidden, net.hidden_bias).tanh();
    let fit = nn::cross_entropy(nn::linear(hidden, net.output, net.output_bias), labels);
    let weights = net.hidden.square().sum_all() + net.output.square().sum_all();
    // The mistake to be found: the penalised bias is taken as a constant.
    let bias = net.output_bias.stop_gradient().square().sum_all();
    fit + penalty.weight.exp() * weights + penalty.bias.exp() * bias
}

/// Measurements of a program.
struct Cost {
    best: f64,
    median: f64,
    memory: usize,
    least_memory: usize,
}

/// Every input at values near zero, labels in turn.
fn fill(run: &mut CpuRun) -> Result<()> {
    for (number, port) in run.program().inputs.clone().iter().enumerate() {
        let count = port.meta.shape.iter().product();
        let mut values = vec![0.0; count];
        if port.meta.dtype == DType::I32 {
            values.iter_mut().enumerate().for_each(|(i, v)| *v = (i % CLASSES) as f64);
        } else {
            fill_uniform_f64([1, 2], number as u32, 0, 0, &mut values);
            values.iter_mut().for_each(|v| *v = *v * 0.2 - 0.1);
        }
        run.set(number, &Array::from_values(&port.meta.shape, &values, port.meta.dtype)?)?;
    }
    Ok(())
}

/// Times many runs.
fn measure(program: &Program) -> Result<Cost> {
    let mut run = Cpu::new().plan(program)?;
    fill(&mut run)?;
    run.run(0..1)?;
    let mut times = vec![];
    let all = Instant::now();
    while times.len() < 15 || (times.len() < 200 && all.elapsed().as_millis() < 300) {
        let start = Instant::now();
        run.run(0..1)?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(Cost {
        best: times[0],
        median: times[times.len() / 2],
        memory: run.memory_bytes(),
        least_memory: run.memory_lower_bound(),
    })
}

/// Writes the part.
pub fn show(page: &mut TourPage) -> Outcome {
    page.heading("3. A network")?;
    let g = Graph::new();
    let input = |name: String, shape: &[usize]| g.input(name, shape, DType::F32);
    let shapes = Net {
        hidden: vec![FEATURES, HIDDEN],
        hidden_bias: vec![HIDDEN],
        output: vec![HIDDEN, CLASSES],
        output_bias: vec![CLASSES],
    };
    let net = shapes.map_named(|name, shape| input(format!("net.{name}"), shape));
    let v = shapes.map_named(|name, shape| input(format!("v.{name}"), shape));
    let penalty = Penalty { weight: vec![], bias: vec![] }
        .map_named(|name, shape: &Vec<usize>| input(format!("penalty.{name}"), shape));
    let (x, labels) = (input("x".into(), &[BATCH, FEATURES]), g.input("labels", [BATCH], DType::I32));
    let loss = loss(&penalty, &net, x, labels);

    let theta = net.into_leaves();
    let v = v.into_leaves();
    let lambda = penalty.leaves().into_iter().copied().collect::<Vec<_>>();
    let parameters: usize = theta.iter().map(|t| t.len()).sum();
    page.line(&format!(
        "{FEATURES}-{HIDDEN}-{CLASSES} with tanh and cross entropy, {parameters} parameters, {BATCH} examples, 32-bit floats, {}:\n",
        match std::thread::available_parallelism().map_or(1, |n| n.get()) {
            1 => "1 thread".to_string(),
            n => format!("{n} threads"),
        }
    ))?;

    let named = |names: &str, values: Vec<Tensor>| {
        values.into_iter().enumerate().map(|(i, t)| (format!("{names} {i}"), t)).collect::<Vec<_>>()
    };
    let slopes = named("gradient", gradient_or_zeros(loss, &theta)?);
    let products = mixed_vector(loss, &theta, &v, &theta)?;
    let products = named("product", products.iter().zip(&theta).map(|(d, t)| d.unwrap_or(t.zeros_like())).collect());
    let build = |outputs: &[(String, Tensor)]| {
        outputs.iter().fold(Program::builder(&g).output("loss", loss), |b, (name, t)| b.output(name, *t)).build()
    };
    let mut rows =
        vec![["one call computes", "operations", "best", "median", "memory", "least possible"].map(String::from)];
    for (what, outputs) in
        [("loss and gradient", slopes.clone()), ("… and a Hessian product", [slopes, products].concat())]
    {
        let program = build(&outputs)?;
        let cost = measure(&program)?;
        let kilobytes = |bytes: usize| format!("{} KiB", bytes.div_ceil(1024));
        rows.push([
            what.into(),
            program.nodes.len().to_string(),
            duration(cost.best),
            duration(cost.median),
            kilobytes(cost.memory),
            kilobytes(cost.least_memory),
        ]);
    }
    page.table(&rows)?;
    page.line(
        "\nAll memory is one block reserved when the program is planned: inputs, results and everything between; a run",
    )?;
    page.line("allocates nothing. \"Least possible\" is the peak of live values.\n")?;

    page.line(
        "This loss has a mistake: it penalises the output bias through stop_gradient. The graph reveals it \
        without",
    )?;
    page.line("computing a number: for some hyperparameters the mixed product v·∂²L/∂θ∂λ is always zero:\n")?;
    for (name, product) in penalty.names().iter().zip(mixed_vector(loss, &theta, &v, &lambda)?) {
        page.inset(&match product {
            Some(_) => format!("λ.{name} acts on the trained parameters"),
            None => format!("λ.{name} cannot influence the trained parameters: its mixed product is structurally zero"),
        })?;
    }
    Ok(())
}
