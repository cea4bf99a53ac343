//! The timed cases: same names, shapes and types as the peers' programs.

use crate::derivatives::{Products, program, ready};
use crate::losses::{Case, conv64, mlp, vit_block};
use crate::sgld::{Chain, hypergradient};
use crate::timing::{Line, timed};
use crate::values::values;
use bilevel_cpu::Cpu;
use bilevel_graph::{Array, DType, Executor, Graph, Program, Result, Runnable, gradient, nn, random::seed_key};

/// Names of all cases, in the order they run.
pub const NAMES: [&str; 6] = ["synth1d", "scalar", "mlp", "conv64", "vit_block", "digits"];

/// Runs one case and returns its lines.
pub fn run(name: &str, cpu: &Cpu, reps: usize) -> Result<Vec<Line>> {
    match name {
        "synth1d" => synth1d(cpu, reps),
        "scalar" => scalar(cpu, reps),
        "mlp" => derivatives(cpu, reps, mlp),
        "conv64" => derivatives(cpu, reps, conv64),
        "vit_block" => derivatives(cpu, reps, vit_block),
        "digits" => digits(cpu, reps),
        _ => Ok(vec![]),
    }
}

fn derivatives(cpu: &Cpu, reps: usize, build: fn(&Graph, DType) -> Case) -> Result<Vec<Line>> {
    let mut lines = vec![];
    for products in [Products::Gradient, Products::GradientAndHessian] {
        let g = Graph::new();
        let case = build(&g, DType::F32);
        let mut run = ready(cpu, &case, &program(&g, &case, products)?)?;
        let seconds = timed(reps, 1, || run.run(0..1).unwrap_or_else(|e| eprintln!("{e}")));
        let suffix = if products == Products::Gradient { "grad" } else { "grad_hvp" };
        lines.push(Line::ours(&format!("{}_{suffix}", case.name), "ms", seconds));
    }
    Ok(lines)
}

fn key(seed: u64) -> Result<Array> {
    Array::from_i32([2], seed_key(seed).to_vec())
}

fn synth1d(cpu: &Cpu, reps: usize) -> Result<Vec<Line>> {
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
    if std::env::var("SHOW").is_ok() {
        println!("{program}\n{}", cpu.plan(&program)?.describe());
    }
    let mut run = cpu.compile(&program)?;
    let [i_lambda, i_theta, i_key, i_g, i_h] = ["lambda", "theta", "key", "g", "h"].map(|n| program.input(n));
    let (i_lambda, i_theta, i_key, i_g, i_h) = (i_lambda?, i_theta?, i_key?, i_g?, i_h?);
    let start = Array::scalar(0.1, DType::F64);
    let zero = Array::scalar(0.0, DType::F64);
    let mut h = zero.clone();
    let mut last = 0.0;
    let mut outer_loop = || -> Result<()> {
        let mut lambda = start.clone();
        run.set(i_theta, &start)?;
        for outer in 0..200 {
            run.set(i_lambda, &lambda)?;
            run.set(i_key, &key(outer)?)?;
            run.set(i_g, &zero)?;
            run.set(i_h, &zero)?;
            run.run(0..100)?;
            run.read_input(i_h, &mut h)?;
            last = lambda.item().unwrap_or(f64::NAN) - 0.005 * h.item().unwrap_or(f64::NAN);
            lambda = Array::scalar(last, DType::F64);
        }
        Ok(())
    };
    outer_loop()?;
    let seconds = timed(reps, 1, || outer_loop().unwrap_or_else(|e| eprintln!("{e}")));
    let seconds = crate::timing::Seconds { median: seconds.median / 200.0, best: seconds.best / 200.0 };
    if !(0.73..0.745).contains(&last) {
        eprintln!("synth1d: λ is {last}, where .7369 is expected");
    }
    Ok(vec![Line::ours("synth1d", "us", seconds)])
}

fn scalar(cpu: &Cpu, reps: usize) -> Result<Vec<Line>> {
    let mut lines = vec![];
    for second in [false, true] {
        let g = Graph::new();
        let x = g.input("x", [], DType::F64);
        let first = gradient(x * x * x, &[x])?[0].unwrap_or(x);
        let mut builder = Program::builder(&g).output("first", first);
        if second {
            builder = builder.output("second", gradient(first, &[x])?[0].unwrap_or(x));
        }
        let program = builder.build()?;
        let mut run = cpu.compile(&program)?;
        let at = Array::scalar(1.5, DType::F64);
        let mut results = vec![at.clone(); program.outputs.len()];
        let mut call = || -> Result<()> {
            run.set(0, &at)?;
            run.run(0..1)?;
            results.iter_mut().enumerate().try_for_each(|(i, r)| run.read(i, r))
        };
        call()?;
        let seconds = timed(reps, 2000, || call().unwrap_or_else(|e| eprintln!("{e}")));
        lines.push(Line::ours(if second { "scalar_second" } else { "scalar_grad" }, "us", seconds));
    }
    Ok(lines)
}

fn digits(cpu: &Cpu, reps: usize) -> Result<Vec<Line>> {
    use crate::losses::Start::{Constant, Labels, Uniform};
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
    if std::env::var("SHOW").is_ok() {
        println!("{program}\n{}", cpu.plan(&program)?.describe());
    }
    let mut run = cpu.compile(&program)?;
    for (i, (tensor, start)) in
        [(x, Uniform(1.0)), (y, Labels(10)), (xv, Uniform(1.0)), (yv, Labels(10)), (lambda, Constant(-5.0))]
            .into_iter()
            .enumerate()
    {
        let name = ["x", "y", "xv", "yv", "lambda"][i];
        run.set(program.input(name)?, &values(tensor, start, i as u32))?;
    }
    let zero = Array::zeros([640], f32);
    let mut h = zero.clone();
    let (key, names) = (key(2)?, ["theta", "g", "h"].map(|n| program.input(n)));
    let [i_theta, i_g, i_h] = names;
    let (i_theta, i_g, i_h, i_key) = (i_theta?, i_g?, i_h?, program.input("key")?);
    let mut call = || -> Result<()> {
        run.set(i_theta, &zero)?;
        run.set(i_g, &zero)?;
        run.set(i_h, &zero)?;
        run.set(i_key, &key)?;
        run.run(0..10)?;
        run.read_input(i_h, &mut h)
    };
    call()?;
    let seconds = timed(reps, 1, || call().unwrap_or_else(|e| eprintln!("{e}")));
    Ok(vec![Line::ours("digits", "us", seconds)])
}

/// Prints where the time of a case goes, step by step.
pub fn profile(name: &str, cpu: &Cpu) -> Result<()> {
    let build = match name {
        "mlp" => mlp,
        "conv64" => conv64,
        _ => vit_block,
    };
    for products in [Products::Gradient, Products::GradientAndHessian] {
        let g = Graph::new();
        let case = build(&g, DType::F32);
        let mut run = ready(cpu, &case, &program(&g, &case, products)?)?;
        run.profile()?;
        let times = run.profile()?;
        println!("{name} {products:?}: memory {} of {}", run.memory_bytes(), run.memory_lower_bound());
        for (what, time) in times {
            println!("{:9.3} ms  {what}", time.as_secs_f64() * 1e3);
        }
    }
    Ok(())
}
