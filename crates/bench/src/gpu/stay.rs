//! Whether a long run stays on the GPU, in its initial memory: many outer iterations of one case. Prints the peak
//! memory after ten of them and after all, and the bytes copied to and from the host in between.

use super::deep::{Outer, RATE};
use crate::error::Result;
use crate::timing::line::{gib, rounded};
use crate::timing::statistics::Seconds;
use bilevel::observers::{Beginning, Iteration, Observer, Recorder};
use bilevel::{Driver, State};
use bilevel_cuda::{CopiedBytes, Cuda};
use bilevel_graph::Precision;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// After this many iterations everything has been allocated that ever will be.
const SETTLED: u32 = 10;

/// Runs this many outer iterations and prints one JSON line.
pub fn run(cuda: &Cuda, case: &str, precision: Precision, outer: &Outer, iterations: u32) -> Result<()> {
    let (recorder, meter) = (Recorder::new(), Meter { cuda: cuda.clone(), read: Arc::default() });
    cuda.forget_peak_bytes()?;
    let driver = Driver::new(&outer.problem, outer.method.clone()).inner(outer.inner).executor(cuda.clone()).rate(RATE);
    let outcome = driver.iterations(iterations).observe(recorder.clone()).observe(meter.clone()).run()?;
    let read = *meter.read.lock().unwrap_or_else(PoisonError::into_inner);
    let lambda_bytes = (outer.problem.sizes().0 * outer.problem.dtype().size()) as u64;
    let run = Run { read, lambda_bytes, iterations: recorder.iterations(), reason: outcome.reason.to_string() };
    say!("{}", run.line(case, precision));
    Ok(())
}

/// The readings of the GPU during a run.
#[derive(Clone, Copy, Default)]
struct Read {
    before: CopiedBytes,
    after: CopiedBytes,
    settled_peak: Option<u64>,
    peak: Option<u64>,
}

/// Reads the GPU's own counts when a run begins and after its iterations.
#[derive(Clone)]
struct Meter {
    cuda: Cuda,
    read: Arc<Mutex<Read>>,
}

impl Observer for Meter {
    fn on_start(&mut self, _: &Beginning) -> ControlFlow<String> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).before = self.cuda.copied_bytes();
        ControlFlow::Continue(())
    }

    fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        (read.after, read.peak) = (self.cuda.copied_bytes(), self.cuda.peak_bytes());
        if iteration.number <= SETTLED {
            read.settled_peak = read.peak;
        }
        ControlFlow::Continue(())
    }
}

/// A run that is over.
struct Run {
    read: Read,
    lambda_bytes: u64,
    iterations: Vec<Iteration>,
    /// Why it ended.
    reason: String,
}

impl Run {
    /// All of it as one line. If the total traffic is less than λ, no copy of λ was made.
    fn line(&self, case: &str, precision: Precision) -> Value {
        let Run { read, lambda_bytes, iterations, reason } = self;
        let to_host = read.after.to_host - read.before.to_host;
        let to_device = read.after.to_device - read.before.to_device;
        let ends: Vec<f64> = iterations.iter().map(|iteration| iteration.elapsed.as_secs_f64()).collect();
        let loss = |iteration: Option<&Iteration>| iteration.map(|iteration| iteration.outer_loss);
        json!({
            "peer": "bilevel", "case": case, "prec": precision.to_string(), "iterations": iterations.len(),
            "ms": rounded(1e3 * Seconds::between(&ends).median, 3),
            "peak_bytes_after_10": read.settled_peak, "peak_bytes": read.peak, "peak_gb": read.peak.map(gib),
            "grew_bytes": read.peak.zip(read.settled_peak).map(|(all, settled)| all.saturating_sub(settled)),
            "to_host_bytes": to_host, "to_device_bytes": to_device, "lambda_bytes": lambda_bytes,
            "lambda_copies": (to_host + to_device) / (*lambda_bytes).max(1),
            "first_outer_loss": loss(iterations.first()), "last_outer_loss": loss(iterations.last()),
            "ended": reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_crossed_before_the_first_iteration_is_no_copy_of_lambda() {
        let copied = |to_host, to_device| CopiedBytes { to_host, to_device };
        let read = Read { before: copied(5, 900), after: copied(25, 930), settled_peak: Some(70), peak: Some(75) };
        let iteration = |number, outer_loss| {
            let mut iteration = Iteration::default();
            (iteration.number, iteration.outer_loss) = (number, outer_loss);
            iteration
        };
        let iterations = vec![iteration(1, 4.0), iteration(2, 3.0)];
        let run = Run { read, lambda_bytes: 40, iterations, reason: "enough".into() };
        let line = run.line("l1reg", Precision::Bf16);
        assert_eq!((&line["to_host_bytes"], &line["to_device_bytes"]), (&json!(20), &json!(30)));
        assert_eq!((&line["lambda_copies"], &line["grew_bytes"]), (&json!(1), &json!(5)));
        assert_eq!((&line["first_outer_loss"], &line["last_outer_loss"]), (&json!(4.0), &json!(3.0)));
    }
}
