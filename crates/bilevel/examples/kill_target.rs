//! A run that may be killed at any moment: it continues from its checkpoints and prints its last state as hexadecimal
//! bytes.
//!
//!     cargo run --release -p bilevel --example kill_target -- FOLDER SEED
//!
//! Kill it, start it again, as often as you like: the line it prints in the end is always the same. `tests/kill.rs` does.

use bilevel::checkpoints::Checkpoints;
use bilevel::prelude::*;
use bilevel::programs::Snapshot;

/// Iterations of the whole run.
pub const ITERATIONS: u32 = 120;

#[derive(Clone, Tree)]
struct Decay<T> {
    log_weight: T,
    shift: T,
}

#[derive(Clone, Tree)]
struct Line<T> {
    slope: T,
    offset: T,
}

/// Ridge regression on minibatches, with one learned weight per parameter.
pub fn problem() -> bilevel::Result<Problem> {
    let x: Vec<f64> = (0..96).map(|i| ((i * 37 % 101) as f64 / 50.0) - 1.0).collect();
    let y: Vec<f64> = x.chunks(3).map(|r| r[0] - 2.0 * r[1] + 0.3 + 0.1 * r[2]).collect();
    let lambda = Decay { log_weight: Variable::constant([3], -1.0).at_most(2.0), shift: Variable::constant([], 0.0) };
    let theta = Line { slope: Variable::normal([3], 0.1), offset: Variable::constant([], 0.0) };
    let error = |s: &bilevel::Scope, t: &Line<bilevel::Tensor>| {
        let rows = s.minibatch(32, 8);
        let guess = (s.data("x").take(rows) * t.slope).sum([1]) + t.offset;
        (guess - s.data("y").take(rows)).square().mean_all()
    };
    Problem::builder(lambda, theta)
        .data("x", Array::from_f64([32, 3], x)?)
        .data("y", Array::from_f64([32], y)?)
        .inner(move |s, l, t| error(s, t) + (l.log_weight.exp() * t.slope.square()).sum_all() + l.shift * t.offset)
        .outer(move |s, _, t| error(s, t))
        .build()
        .map(Problem::erase)
}

/// The run, resumed from the folder.
pub fn run(folder: &std::path::Path, seed: u64) -> bilevel::Result<Outcome> {
    let (method, inner) = (LangevinAdjoint::default(), InnerLoop::new(0.05, 5).at_temperature(1e-3));
    Driver::new(&problem()?, method)
        .inner(inner)
        .executor(Cpu::with_threads(1))
        .optimizer(Adam::default())
        .schedule(Schedule::cosine(0.05, ITERATIONS, 0.001).warm_up(5))
        .seed(seed)
        .iterations(ITERATIONS)
        .checkpoints(Checkpoints::new(folder).every(1).resume(true))
        .run()
}

/// Every bit of the last state, and the number of iterations.
pub fn bits<L: Tree, T: Tree>(outcome: &Outcome<L, T>) -> bilevel::Result<String> {
    let Snapshot { lambda, theta, memory } = outcome.state.snapshot()?;
    let arrays = lambda.iter().chain(&theta).chain(&memory);
    let bytes: String = arrays.flat_map(|a| a.bytes()).map(|b| format!("{b:02x}")).collect();
    Ok(format!("{} {bytes}", outcome.iterations))
}

#[allow(dead_code)] // The test takes this file in as a module.
fn main() -> bilevel::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| "kill-target".into());
    let seed = arguments.next().and_then(|s| s.parse().ok()).unwrap_or(1);
    let outcome = run(std::path::Path::new(&folder), seed)?;
    println!("{}", bits(&outcome)?);
    Ok(())
}
