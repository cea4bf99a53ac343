//! How fast is the GPU? One JSON line per case and precision, in the form of the peers.

use super::deep::{Outer, RATE, adjoint, l1reg, wide_resnet};
use crate::derivatives::{Products, inputs, program};
use crate::error::Result;
use crate::timing::median;
use bilevel::{Checkpoints, Driver, Recorder};
use bilevel_cuda::Cuda;
use bilevel_graph::conformance::set_all;
use bilevel_graph::{DType, Executor, Graph, Precision};
use bilevel_models::VitConfig;
use std::time::Instant;

/// The names of the cases.
pub const NAMES: [&str; 5] = ["l1reg", "vit_adjoint", "wrn_grad", "wrn_hvp", "giant"];

/// Times the cases in these precisions.
pub fn run(cuda: &Cuda, cases: &[String], precisions: &[Precision], reps: usize, start: Instant) -> Result<()> {
    for &precision in precisions {
        for case in cases {
            let vit = VitConfig::base(16, 37);
            match case.as_str() {
                "l1reg" => outer(cuda, case, precision, &l1reg(&vit, precision)?, reps, start)?,
                "giant" => giant(cuda, precision)?,
                "vit_adjoint" => outer(cuda, case, precision, &adjoint(&vit, precision)?, reps, start)?,
                _ => evaluation(cuda, case, precision, reps)?,
            }
        }
    }
    Ok(())
}

/// Prints where the time of an outer iteration goes.
pub fn profile(cuda: &Cuda, case: &str, precision: Precision, reps: u32) -> Result<()> {
    let vit = VitConfig::base(16, 37);
    let outer = if case == "vit_adjoint" { adjoint(&vit, precision)? } else { l1reg(&vit, precision)? };
    super::profile::run(cuda, case, &outer, reps)
}

/// One outer iteration through the driver.
fn outer(cuda: &Cuda, case: &str, precision: Precision, outer: &Outer, reps: usize, start: Instant) -> Result<()> {
    let recorder = Recorder::new();
    let began = Instant::now();
    let driver = Driver::new(&outer.problem, outer.method.clone()).executor(cuda.clone()).rate(RATE);
    let outcome = driver.iterations(reps as u32 + 1).observe(recorder.clone()).run()?;
    let iterations = recorder.iterations();
    let ends: Vec<f64> = iterations.iter().map(|i| i.elapsed.as_secs_f64()).collect();
    let mut times: Vec<f64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let all = began.elapsed().as_secs_f64();
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    let first =
        began.duration_since(start).as_secs_f64() + all - ends.last().unwrap_or(&0.0) + ends.first().unwrap_or(&0.0);
    let norm = outcome.last.as_ref().map_or(f64::NAN, |last| last.hypergradient_norm);
    say!(
        "{{\"peer\": \"bilevel\", \"case\": \"{case}\", \"prec\": \"{precision}\", \"ms\": {:.2}, \"min_ms\": {:.2}, \
         \"first_s\": {first:.2}, \"peak_gb\": {:.2}, \"norm\": {norm:.6e}}}",
        1e3 * median(&mut times),
        1e3 * best,
        cuda.peak_bytes().unwrap_or(0) as f64 / f64::from(1 << 30)
    );
    Ok(())
}

/// Ten outer iterations of HPO-SGLD on ViT-g/14, a billion parameters with an L1 weight each, with a checkpoint at the end and
/// the weights written to a file, both in a folder that is removed again.
fn giant(cuda: &Cuda, precision: Precision) -> Result<()> {
    let config = VitConfig::giant(14, 37);
    let outer = l1reg(&config, precision)?;
    let folder = std::env::temp_dir().join(format!("bilevel-bench-giant-{}", std::process::id()));
    let recorder = Recorder::new();
    let began = Instant::now();
    let driver = Driver::new(&outer.problem, outer.method.clone()).executor(cuda.clone()).rate(RATE).iterations(10);
    let checkpoints = Checkpoints::new(folder.join("checkpoint")).every(10);
    let outcome = driver.checkpoints(checkpoints).observe(recorder.clone()).run()?;
    let run = began.elapsed().as_secs_f64();
    let path = folder.join("lambda.safetensors");
    bilevel::save_tree(&outcome.lambda, &path)?;
    let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
    let _ = std::fs::remove_dir_all(&folder);
    let ends: Vec<f64> = recorder.iterations().iter().map(|i| i.elapsed.as_secs_f64()).collect();
    let mut times: Vec<f64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let norm = outcome.last.as_ref().map_or(f64::NAN, |last| last.hypergradient_norm);
    say!(
        "{{\"peer\": \"bilevel\", \"case\": \"giant\", \"prec\": \"{precision}\", \"ms\": {:.1}, \"iterations\": {}, \
         \"run_s\": {run:.1}, \"peak_gb\": {:.2}, \"lambda_bytes\": {bytes}, \"norm\": {norm:.6e}}}",
        1e3 * median(&mut times),
        outcome.iterations,
        cuda.peak_bytes().unwrap_or(0) as f64 / f64::from(1 << 30)
    );
    Ok(())
}

/// A gradient, or a gradient and a Hessian product.
fn evaluation(cuda: &Cuda, case: &str, precision: Precision, reps: usize) -> Result<()> {
    let graph = Graph::new();
    let made = wide_resnet(&graph, DType::F32)?;
    let products = if case == "wrn_hvp" { Products::GradientAndHessian } else { Products::Gradient };
    let program = program(&graph, &made, products)?.with_precision(precision);
    let values = inputs(&made, &program, 0)?;
    let began = Instant::now();
    let mut run = cuda.compile(&program)?;
    set_all(&mut *run, &values)?;
    run.run(0..1)?;
    cuda.wait()?;
    let first = began.elapsed().as_secs_f64();
    // Labels written again are new ones to a program that would else know its results already.
    let (labels, label_values) = (program.input("x1")?, &values[values.len() - 1].1);
    let mut times = vec![];
    for _ in 0..reps {
        run.set(labels, label_values)?;
        cuda.wait()?;
        let again = Instant::now();
        run.run(0..1)?;
        cuda.wait()?;
        times.push(again.elapsed().as_secs_f64());
    }
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    say!(
        "{{\"peer\": \"bilevel\", \"case\": \"{case}\", \"prec\": \"{precision}\", \"ms\": {:.2}, \"min_ms\": {:.2}, \
         \"first_s\": {first:.2}, \"peak_gb\": {:.2}, \"loss\": {:.6}}}",
        1e3 * median(&mut times),
        1e3 * best,
        cuda.peak_bytes().unwrap_or(0) as f64 / f64::from(1 << 30),
        run.output(0)?.item().unwrap_or(f64::NAN)
    );
    Ok(())
}
