//! How fast is the GPU? One JSON line per case and precision, in the form of the peers.

use super::deep::{Outer, RATE};
use super::{Work, stay, work};
use crate::error::{BenchError, Result};
use crate::timing::line::{Line, Unit, gib, rounded};
use crate::timing::peers::Peer;
use crate::timing::statistics::Seconds;
use bilevel::checkpoints::Checkpoints;
use bilevel::observers::{Beginning, Iteration, Observer, Recorder};
use bilevel::{Driver, State};
use bilevel_cuda::{Cuda, Spent};
use bilevel_graph::conformance::set_all;
use bilevel_graph::{Array, Executor, Precision, Program};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Times the cases in these precisions.
pub fn run(cuda: &Cuda, cases: &[String], precisions: &[Precision], reps: usize, start: Instant) -> Result<()> {
    let opened = start.elapsed();
    for &precision in precisions {
        for case in cases {
            let (seconds, more) = match work(case, precision)? {
                Work::Outer(made) if case == "giant" => giant(cuda, &made)?,
                Work::Outer(made) => outer(cuda, &made, reps, start, opened)?,
                Work::Evaluation(program, values) => evaluation(cuda, &program, &values, reps)?,
            };
            let peak = cuda.peak_bytes().map_or(Value::Null, gib);
            let both = [vec![("prec", precision.to_string().into()), ("peak_gb", peak)], more].concat();
            say!("{}", Line::ours(case, Unit::Milliseconds, seconds).json_with(&both));
        }
    }
    Ok(())
}

/// Prints the output of the peers' programs for these cases, each case and precision in a separate process.
pub fn peers(peers: &[Peer], cases: &[String], precisions: &[Precision]) -> Result<()> {
    for &precision in precisions.iter().filter(|precision| **precision != Precision::Full) {
        for case in cases {
            for peer in peers.iter().filter(|peer| peer.has(case)) {
                peer.said(&[case, &precision.to_string()])?.lines().for_each(|line| say!("{line}"));
            }
        }
    }
    Ok(())
}

/// Prints the time of each part of a case.
pub fn profile(cuda: &Cuda, case: &str, precision: Precision) -> Result<()> {
    super::profile::run(cuda, case, &work(case, precision)?)
}

/// Prints the memory and traffic of many outer iterations on the GPU.
pub fn long(cuda: &Cuda, case: &str, precision: Precision, iterations: u32) -> Result<()> {
    stay::run(cuda, case, precision, &an_outer_loop(case, precision)?, iterations)
}

/// The outer loop of a case that is one.
fn an_outer_loop(case: &str, precision: Precision) -> Result<Outer> {
    match work(case, precision)? {
        Work::Outer(outer) => Ok(*outer),
        Work::Evaluation(..) => {
            let what = "it is no outer loop; name a case that is one".into();
            Err(BenchError::Wrong { case: case.into(), what })
        }
    }
}

/// The time of a case, and the other fields of its line.
type Measured = (Seconds, Vec<(&'static str, Value)>);

/// Records the start of the first iteration, and the time of preparing programs until its end.
struct First {
    prepared: Option<Instant>,
    said: Arc<Mutex<Option<(Instant, Spent)>>>,
    cuda: Cuda,
}

impl Observer for First {
    fn on_start(&mut self, _: &Beginning) -> ControlFlow<String> {
        self.prepared = Some(Instant::now());
        ControlFlow::Continue(())
    }

    fn on_iteration(&mut self, _: &Iteration, _: &State) -> ControlFlow<String> {
        if let Some(prepared) = self.prepared.take() {
            *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some((prepared, self.cuda.spent()));
        }
        ControlFlow::Continue(())
    }
}

/// One outer iteration through the driver. The first hypergradient's seconds count from the start of the process:
/// opening the GPU, building the problem, preparing the run and the first iteration. The other times are parts of
/// these, some on several threads at once: planning, kernels, autotuning, the waits for them, and graph capture. Like
/// the peers, the run holds no copy of its last good state, which the line states.
fn outer(cuda: &Cuda, outer: &Outer, reps: usize, start: Instant, opened: Duration) -> Result<Measured> {
    let (recorder, first) = (Recorder::new(), First { prepared: None, said: Arc::default(), cuda: cuda.clone() });
    let (began, said) = (Instant::now(), first.said.clone());
    let driver = Driver::new(&outer.problem, outer.method.clone())
        .inner(outer.inner)
        .executor(cuda.clone())
        .rate(RATE)
        .fall_back(false);
    let outcome = driver.iterations(reps as u32 + 1).observe(recorder.clone()).observe(first).run()?;
    let ends: Vec<f64> = recorder.iterations().iter().map(|i| i.elapsed.as_secs_f64()).collect();
    let first = began.duration_since(start).as_secs_f64() + ends.first().unwrap_or(&0.0);
    let norm = outcome.last.as_ref().map_or(f64::NAN, |last| last.hypergradient_norm);
    let parts = said.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Value::Null, |(prepared, spent)| {
        let seconds = |part: Duration| rounded(part.as_secs_f64(), 3);
        json!({
            "open": seconds(opened), "build": seconds(began.duration_since(start).saturating_sub(opened)),
            "prepare": seconds(prepared.duration_since(began)),
            "iterate": rounded(ends.first().unwrap_or(&0.0) - prepared.duration_since(began).as_secs_f64(), 3),
            "planning": seconds(spent.planning), "kernels": seconds(spent.kernels), "products": seconds(spent.products),
            "waiting": seconds(spent.waiting), "recording": seconds(spent.recording),
        })
    });
    let more =
        vec![("first_s", rounded(first, 2)), ("first", parts), ("fall_back", false.into()), ("norm", norm.into())];
    Ok((Seconds::between(&ends), more))
}

/// Ten outer iterations of HPO-SGLD on ViT-g/14, a billion parameters with an L1 weight each. A checkpoint at the end
/// and the weights are written to a temporary folder.
fn giant(cuda: &Cuda, outer: &Outer) -> Result<Measured> {
    let folder = std::env::temp_dir().join(format!("bilevel-bench-giant-{}", std::process::id()));
    let recorder = Recorder::new();
    let began = Instant::now();
    let driver = Driver::new(&outer.problem, outer.method.clone())
        .inner(outer.inner)
        .executor(cuda.clone())
        .rate(RATE)
        .iterations(10);
    let checkpoints = Checkpoints::new(folder.join("checkpoint")).every(10);
    let outcome = driver.checkpoints(checkpoints).observe(recorder.clone()).run()?;
    let run = began.elapsed().as_secs_f64();
    let path = folder.join("lambda.safetensors");
    bilevel::files::save_tree(&outcome.lambda, &path)?;
    let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
    let _ = std::fs::remove_dir_all(&folder);
    let ends: Vec<f64> = recorder.iterations().iter().map(|i| i.elapsed.as_secs_f64()).collect();
    let norm = outcome.last.as_ref().map_or(f64::NAN, |last| last.hypergradient_norm);
    let more = vec![
        ("iterations", outcome.iterations.into()),
        ("run_s", rounded(run, 1)),
        ("lambda_bytes", bytes.into()),
        ("norm", norm.into()),
    ];
    Ok((Seconds::between(&ends), more))
}

/// A gradient, or a gradient and a Hessian product.
fn evaluation(cuda: &Cuda, program: &Program, values: &Vec<(String, Array)>, reps: usize) -> Result<Measured> {
    let began = Instant::now();
    let mut run = cuda.compile(program)?;
    set_all(&mut *run, values)?;
    run.run(0..1)?;
    cuda.wait()?;
    let first = began.elapsed().as_secs_f64();
    // Rewritten labels count as new to a program that would otherwise keep its results.
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
    let loss = run.output(0)?.item().unwrap_or(f64::NAN);
    Ok((Seconds::of(&mut times), vec![("first_s", rounded(first, 2)), ("loss", rounded(loss, 6))]))
}
