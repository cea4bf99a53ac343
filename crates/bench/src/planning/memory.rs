//! The planned memory of every timed program, compared with its peak of live values.

use crate::cases::timed::programs;
use crate::error::Result;
use crate::timing::line::rounded;
use bilevel_cpu::Cpu;
use serde_json::json;

/// Goal for the ratio of the two.
const GOAL: f64 = 1.3;

/// Prints one JSON line a program.
pub fn run(cases: &[String], threads: usize) -> Result<()> {
    let cpu = Cpu::with_threads(threads);
    for timed in cases.iter().map(|name| programs(name)).collect::<Result<Vec<_>>>()?.into_iter().flatten() {
        let run = cpu.plan(&timed.program)?;
        let (bytes, bound) = (run.memory_bytes(), run.memory_lower_bound());
        let ratio = bytes as f64 / bound.max(1) as f64;
        let line = json!({
            "case": timed.name, "memory_bytes": bytes, "lower_bound": bound, "ratio": rounded(ratio, 4), "goal": GOAL,
            "met": ratio <= GOAL,
        });
        say!("{line}");
    }
    Ok(())
}
