//! The time and memory of a GPU case: the loop with the most products, step by step.

use super::Work;
use super::deep::RATE;
use super::watching::Watching;
use crate::error::{BenchError, Result};
use bilevel::Driver;
use bilevel_cuda::Cuda;
use bilevel_graph::{Array, Op, Program, Runnable};
use std::collections::HashMap;

/// Number of parts that are printed one by one, if they differ.
const MOST: usize = 100;
/// How often each part runs in a row.
const TURNS: u32 = 20;

/// Prints the parts of a case's main loop that take the longest, those that are alike together.
pub(super) fn run(cuda: &Cuda, case: &str, work: &Work) -> Result<()> {
    match work {
        Work::Outer(outer) => {
            let watching = Watching::new(cuda);
            let driver = Driver::new(&outer.problem, outer.method.clone())
                .inner(outer.inner)
                .executor(watching.clone())
                .rate(RATE);
            driver.iterations(1).run()?;
            let seen = watching.seen();
            let nothing = || BenchError::Wrong { case: case.into(), what: "it compiled no program".into() };
            // An outer iteration spends its time in loops.
            let loops = seen.iter().map(|(program, _)| program).filter(|program| !program.carries.is_empty());
            let multiplies = |op: &Op| matches!(op, Op::Dot(..) | Op::Conv(..));
            let products = |program: &&Program| program.nodes.iter().filter(|node| multiplies(&node.op)).count();
            one(cuda, loops.max_by_key(products).ok_or_else(nothing)?)
        }
        Work::Evaluation(program, _) => one(cuda, program),
    }
}

/// Prints the parts of one step of a program.
fn one(cuda: &Cuda, program: &Program) -> Result<()> {
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
    let parts = run.profile(TURNS)?;
    // By operation: their number, their seconds, and those of the critical ones.
    let mut alike: HashMap<&str, (usize, f64, f64)> = HashMap::new();
    for part in &parts {
        let entry = alike.entry(&part.what).or_default();
        *entry = (entry.0 + 1, entry.1 + part.seconds, entry.2 + if part.decisive { part.seconds } else { 0.0 });
    }
    let mut sorted: Vec<(&str, (usize, f64, f64))> = alike.into_iter().collect();
    sorted.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    let sum = |of: &dyn Fn(&str) -> bool| {
        let chosen = sorted.iter().filter(|(what, _)| of(what));
        chosen.fold((0, 0.0, 0.0), |sum, (_, one)| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2))
    };
    let line = |what: &str, (count, all, decisive): (usize, f64, f64)| {
        say!("{:8.3} ms {:8.3} ms  {count:5} x {what}", 1e3 * all, 1e3 * decisive);
    };
    say!("one step, its parts one after the other, and those of them that wait for each other the longest:");
    line("part", sum(&|_| true));
    for kind in ["product", "convolution", "kernel", "copy"] {
        line(kind, sum(&|what| what.starts_with(kind)));
    }
    sorted.iter().take(MOST).for_each(|(what, one)| line(what, *one));
    Ok(())
}
