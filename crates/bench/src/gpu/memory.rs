//! The planned memory of each GPU case's programs, compared with the memory that the GPU reports.
//!
//! Programs share inputs and outputs, which are bound to the same buffers, and use one arena in turn. So the memory of
//! a case is less than the sum of its programs', and at least the largest of them.

use super::deep::RATE;
use super::watching::Watching;
use super::{Work, open, work};
use crate::error::{BenchError, Result};
use crate::timing::line::rounded;
use bilevel::Driver;
use bilevel::observers::Recorder;
use bilevel_cuda::{PlannedBytes, kernel_texts};
use bilevel_graph::conformance::set_all;
use bilevel_graph::{Executor, Precision, Program};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::Instant;

/// Prints the planned memory of an outer iteration's programs: one JSON line per program, and one per case. Also prints
/// the host's time: to build the problem, to plan all programs one after the other, and for the rest of the first
/// iteration. Most of the rest is tracing and differentiation. No GPU is needed.
pub fn planned(cases: &[String], precision: Precision) -> Result<()> {
    for case in cases {
        let watching = Watching::without_gpu();
        let start = Instant::now();
        let work = work(case, precision)?;
        let built = start.elapsed();
        match work {
            Work::Outer(outer) => {
                let recorder = Recorder::new();
                let driver = Driver::new(&outer.problem, outer.method.clone())
                    .inner(outer.inner)
                    .executor(watching.clone())
                    .rate(RATE);
                let ended = driver.iterations(1).observe(recorder.clone()).run();
                // It cannot end well without a machine, but the first iteration can.
                let Some(first) = recorder.iterations().into_iter().next() else {
                    ended?;
                    return Err(BenchError::Wrong { case: case.into(), what: "it has no first iteration".into() });
                };
                let planning = watching.planning();
                say!(
                    "{}",
                    json!({
                        "case": case, "build_s": rounded(built.as_secs_f64(), 3), "plan_s": rounded(planning.as_secs_f64(), 3),
                        "trace_s": rounded(first.elapsed.saturating_sub(planning).as_secs_f64(), 3),
                    })
                );
            }
            Work::Evaluation(program, _) => drop(watching.compile(&program)?),
        }
        say_all(case, precision, &watching, None);
        let mut texts = HashSet::new();
        let mut kernels = vec![];
        for (program, _) in watching.seen() {
            let of_program = kernel_texts(&program)?;
            kernels.push(of_program.len());
            texts.extend(of_program);
        }
        say!("{}", json!({ "case": case, "kernels_by_program": kernels, "texts": texts.len() }));
    }
    Ok(())
}

/// Prints one JSON line per program, and one per case. Runs hold no state to fall back on.
pub fn run(cases: &[String], precision: Precision) -> Result<()> {
    for case in cases {
        // Opened again, because the arena of the previous case does not shrink.
        let cuda = open()?;
        cuda.forget_peak_bytes()?;
        let watching = Watching::new(&cuda);
        match work(case, precision)? {
            Work::Outer(outer) => {
                let driver = Driver::new(&outer.problem, outer.method.clone())
                    .inner(outer.inner)
                    .executor(watching.clone())
                    .rate(RATE);
                driver.fall_back(false).iterations(2).run()?;
            }
            Work::Evaluation(program, values) => {
                let mut run = watching.compile(&program)?;
                set_all(&mut *run, &values)?;
                run.run(0..1)?;
                cuda.wait()?;
            }
        }
        say_all(case, precision, &watching, cuda.peak_bytes());
    }
    Ok(())
}

fn say_all(case: &str, precision: Precision, watching: &Watching, peak: Option<u64>) {
    let seen = watching.seen();
    for (number, (program, bytes)) in seen.iter().enumerate() {
        say!("{}", of_program(case, number, program, *bytes));
    }
    let each: Vec<PlannedBytes> = seen.iter().map(|(_, bytes)| *bytes).collect();
    say!("{}", of_case(case, precision, &each, peak));
}

fn total(bytes: &PlannedBytes) -> usize {
    bytes.bound + bytes.kept + bytes.arena
}

fn of_program(case: &str, number: usize, program: &Program, bytes: PlannedBytes) -> Value {
    let (memory, PlannedBytes { bound, kept, arena, lower_bound }) = (total(&bytes), bytes);
    json!({
        "case": case, "program": number, "operations": program.nodes.len(), "bound_bytes": bound, "kept_bytes": kept,
        "arena_bytes": arena, "memory_bytes": memory, "lower_bound": lower_bound,
        "ratio": rounded(memory as f64 / lower_bound.max(1) as f64, 4),
    })
}

fn of_case(case: &str, precision: Precision, each: &[PlannedBytes], peak: Option<u64>) -> Value {
    let most = |of: &dyn Fn(&PlannedBytes) -> usize| each.iter().map(of).max().unwrap_or(0);
    json!({
        "case": case, "prec": precision.to_string(), "programs": each.len(),
        "kept_bytes": each.iter().map(|bytes| bytes.kept).sum::<usize>(), "arena_bytes": most(&|bytes| bytes.arena),
        "largest_program_bytes": most(&total), "largest_lower_bound": most(&|bytes| bytes.lower_bound),
        "peak_bytes": peak,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_use_one_arena_in_turn_and_keep_what_they_keep_each_for_itself() {
        let of = |bound, kept, arena, lower_bound| PlannedBytes { bound, kept, arena, lower_bound };
        let line = of_case("maml", Precision::Tf32, &[of(10, 1, 5, 12), of(4, 2, 7, 9)], Some(20));
        let expected = json!({
            "case": "maml", "prec": "tf32", "programs": 2, "kept_bytes": 3, "arena_bytes": 7,
            "largest_program_bytes": 16, "largest_lower_bound": 12, "peak_bytes": 20,
        });
        assert_eq!(line, expected);
    }
}
