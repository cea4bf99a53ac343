//! Where the time and the memory of a GPU case go: the loop with the most products, step by step.

use super::deep::{Outer, RATE};
use super::watching::Watching;
use crate::error::{BenchError, Result};
use bilevel::Driver;
use bilevel_cuda::Cuda;
use bilevel_graph::{Array, Op, Program, Runnable};
use std::collections::HashMap;

/// Prints the steps of the case's main loop that take the longest, those that are alike together.
pub fn run(cuda: &Cuda, case: &str, outer: &Outer, reps: u32) -> Result<()> {
    let watching = Watching::new(cuda);
    Driver::new(&outer.problem, outer.method.clone()).executor(watching.clone()).rate(RATE).iterations(1).run()?;
    let seen = watching.seen();
    let nothing = || BenchError::Wrong { case: case.into(), what: "it compiled no program".into() };
    // Loops are what an outer iteration spends its time in.
    let loops = seen.iter().map(|(program, _)| program).filter(|program| !program.carries.is_empty());
    let multiplies = |op: &Op| matches!(op, Op::Dot(..) | Op::Conv(..));
    let products = |program: &&Program| program.nodes.iter().filter(|node| multiplies(&node.op)).count();
    let program = loops.max_by_key(products).ok_or_else(nothing)?;
    let mut run = cuda.plan(program)?;
    for (input, port) in program.inputs.iter().enumerate() {
        run.set(input, &Array::full(&port.meta.shape[..], 0.01, port.meta.dtype))?;
    }
    let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
    say!(
        "{} operations, {:.2} GiB of memory, at least {:.2}",
        program.nodes.len(),
        gib(run.memory_bytes()),
        gib(run.memory_lower_bound())
    );
    say!("{}", run.describe().lines().filter(|line| line.starts_with("memory")).collect::<Vec<_>>().join("\n"));
    let times = run.profile(reps)?;
    let total: f64 = times.iter().map(|(_, seconds)| seconds).sum();
    let mut alike: HashMap<String, (usize, f64)> = HashMap::new();
    for (what, seconds) in times {
        let entry = alike.entry(what).or_default();
        *entry = (entry.0 + 1, entry.1 + seconds);
    }
    let mut sorted: Vec<(String, (usize, f64))> = alike.into_iter().collect();
    sorted.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    say!("one step, its parts one after the other: {:.3} ms", 1e3 * total);
    for kind in ["product", "convolution", "kernel", "copy"] {
        let of_kind = sorted.iter().filter(|(what, _)| what.starts_with(kind));
        let (count, seconds) = of_kind.fold((0, 0.0), |(n, s), (_, (count, seconds))| (n + count, s + seconds));
        say!("{:8.3} ms  {count:5} x {kind}", 1e3 * seconds);
    }
    for (what, (count, seconds)) in sorted.iter().take(60) {
        say!("{:8.3} ms  {count:5} x {what}", 1e3 * seconds);
    }
    Ok(())
}
