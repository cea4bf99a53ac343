//! The time of a case, step by step.

use crate::cases::timed::programs;
use crate::error::Result;
use crate::timing::calls::ready;
use bilevel_cpu::Cpu;

/// Prints for every program of a case each step of its plan with the best time of `reps` turns; with `show`, first the
/// program itself.
pub fn run(name: &str, cpu: &Cpu, reps: usize, show: bool) -> Result<()> {
    for timed in programs(name)? {
        let mut run = ready(cpu, &timed)?;
        if show {
            say!("{}", timed.program);
        }
        // The first turn touches memory for the first time.
        run.profile()?;
        let mut steps: Vec<(String, f64)> = vec![];
        for _ in 0..reps.max(1) {
            let turn = run.profile()?.into_iter().map(|(what, time)| (what, time.as_secs_f64()));
            if steps.is_empty() {
                steps = turn.collect();
            } else {
                steps.iter_mut().zip(turn).for_each(|(best, (_, time))| best.1 = best.1.min(time));
            }
        }
        let total: f64 = steps.iter().map(|(_, time)| time).sum();
        let (bytes, bound) = (run.memory_bytes(), run.memory_lower_bound());
        say!("{}: {:.3} ms in {} steps, memory {bytes} of {bound}", timed.name, total * 1e3, steps.len());
        for (what, time) in steps {
            say!("{:9.3} ms {:5.1}%  {what}", time * 1e3, time / total * 100.0);
        }
    }
    Ok(())
}
