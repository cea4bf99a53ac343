//! Does the GPU train as the CPU does? The losses of the first outer iterations of l1reg on both, side by side.
//!
//! Both draw the same noise to the bit and compute in full f32, so that they differ only by the order in which sums are
//! rounded, amplified by later steps.

use super::CLASSES;
use super::deep::{Outer, RATE, l1reg};
use crate::error::Result;
use bilevel::observers::{Iteration, Recorder};
use bilevel::{Cpu, Driver};
use bilevel_cuda::Cuda;
use bilevel_graph::{Executor, Precision};
use bilevel_models::VitConfig;
use serde_json::{Value, json};

/// How large the network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Size {
    /// Two blocks on images of 32×32, for a first look.
    Tiny,
    /// ViT-S/16.
    Small,
    /// ViT-B/16, as in the case.
    Base,
}

impl Size {
    fn config(self) -> VitConfig {
        let small = VitConfig::small(16, CLASSES);
        match self {
            Size::Tiny => VitConfig { image: [32, 32], patch: 8, width: 48, depth: 2, heads: 3, hidden: 96, ..small },
            Size::Small => small,
            Size::Base => VitConfig::base(16, CLASSES),
        }
    }
}

/// Prints one JSON line per iteration.
pub fn run(cuda: &Cuda, size: Size, iterations: u32) -> Result<()> {
    let outer = l1reg(&size.config(), Precision::Full)?;
    beside(&outer, iterations, &Cpu::new(), cuda)?.iter().for_each(|line| say!("{line}"));
    Ok(())
}

/// A line per iteration: both losses on the CPU and on another device.
fn beside<E: Executor + Clone + 'static>(outer: &Outer, iterations: u32, cpu: &Cpu, other: &E) -> Result<Vec<Value>> {
    let theirs = losses(outer, iterations, other.clone())?;
    let ours = losses(outer, iterations, cpu.clone())?;
    let line = |(on_cpu, on_gpu): (&Iteration, &Iteration)| {
        let relative = |a: f64, b: f64| (a - b).abs() / a.abs().max(b.abs()).max(f64::MIN_POSITIVE);
        json!({
            "iteration": on_cpu.number,
            "inner_cpu": on_cpu.inner_loss,
            "inner_gpu": on_gpu.inner_loss,
            "inner_relative": relative(on_cpu.inner_loss, on_gpu.inner_loss),
            "outer_cpu": on_cpu.outer_loss,
            "outer_gpu": on_gpu.outer_loss,
            "outer_relative": relative(on_cpu.outer_loss, on_gpu.outer_loss),
        })
    };
    Ok(ours.iter().zip(&theirs).map(line).collect())
}

fn losses(outer: &Outer, iterations: u32, executor: impl Executor + 'static) -> Result<Vec<Iteration>> {
    let recorder = Recorder::new();
    let driver = Driver::new(&outer.problem, outer.method.clone()).inner(outer.inner).executor(executor).rate(RATE);
    driver.iterations(iterations).observe(recorder.clone()).run()?;
    Ok(recorder.iterations())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_with_the_same_bits_is_at_no_distance() {
        let outer = l1reg(&Size::Tiny.config(), Precision::Full).unwrap();
        let lines = beside(&outer, 2, &Cpu::with_threads(1), &Cpu::with_threads(2)).unwrap();
        assert_eq!(lines.len(), 2);
        for (line, number) in lines.iter().zip(1..) {
            assert_eq!(line["iteration"], number);
            assert_eq!((&line["inner_relative"], &line["outer_relative"]), (&json!(0.0), &json!(0.0)), "{line}");
            assert!(line["outer_cpu"].as_f64().unwrap() > 0.0, "{line}");
        }
    }
}
