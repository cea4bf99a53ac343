//! The cases synth1d, digits and wide as a user would run them: a problem, a method, the library's driver, its diagnosis included.
//!
//! A repetition is a separate run. Its preparation and first iteration are not timed, just as the peers' compilation
//! and first call are not. As for the bare programs, a repetition of synth1d is the mean of its iterations; for digits
//! every iteration counts by itself, and for wide every iteration is a repetition.

use crate::cases::timed::{Call, Timed};
use crate::cases::wide;
use crate::error::{BenchError, Result};
use crate::timing::line::{Line, Unit};
use crate::timing::statistics::{Seconds, median};
use bilevel::graph::nn;
use bilevel::methods::HpoSgld;
use bilevel::observers::Recorder;
use bilevel::{Array, Cpu, DType, Driver, InnerLoop, Leaf, Outcome, Problem, Variable};

/// Times the case through the driver; none for a case that is not an outer loop.
pub fn time(case: &Timed, cpu: &Cpu, reps: usize) -> Result<Option<Line>> {
    let unit = if case.call == Call::Wide { Unit::Milliseconds } else { Unit::Microseconds };
    let (problem, (method, inner), rate, iterations) = match case.call {
        Call::Outer200 => (synth1d()?, SYNTH1D, 0.005, 200),
        Call::Outer10 => (digits(case)?, DIGITS, 1e-3, 51),
        Call::Wide => (wide::problem(wide::COUNT)?, wide::METHOD, wide::RATE, reps as u32 + 1),
        Call::Evaluate | Call::Scalars => return Ok(None),
    };
    let runs = if case.call == Call::Wide { 1 } else { reps.max(1) };
    let mut times = vec![];
    for _ in 0..runs {
        let recorder = Recorder::new();
        let driver = Driver::new(&problem, method).inner(inner).executor(cpu.clone()).rate(rate).iterations(iterations);
        let outcome = driver.cold(case.call == Call::Outer10).observe(recorder.clone()).run()?;
        let ends: Vec<f64> = recorder.iterations().iter().map(|i| i.elapsed.as_secs_f64()).collect();
        if case.call == Call::Outer200 {
            times.push((ends[ends.len() - 1] - ends[0]) / (ends.len() - 1) as f64);
        } else {
            times.extend(ends.windows(2).map(|pair| pair[1] - pair[0]));
        }
        check(case, &outcome)?;
    }
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(Some(Line::ours(&case.name, unit, Seconds { median: median(&mut times), best })))
}

const SYNTH1D: (HpoSgld, InnerLoop) =
    (HpoSgld {}, InnerLoop { burn_in: 50, ..InnerLoop::new(0.005, 100).at_temperature(1e-6) });
const DIGITS: (HpoSgld, InnerLoop) =
    (HpoSgld {}, InnerLoop { burn_in: 5, ..InnerLoop::new(0.1, 10).at_temperature(1e-4) });

fn synth1d() -> Result<Problem> {
    let start = || Leaf(Variable::constant([], 0.1));
    let problem = Problem::builder(start(), start())
        .inner(|_, l, t| t.0 * t.0 * t.0 / 3.0 - (1.0 - l.0 * l.0) * t.0)
        .outer(|_, l, t| (l.0 - t.0).square() + (t.0 - 0.5).square());
    Ok(problem.build()?.erase())
}

/// The numbers are those of the bare program's inputs.
fn digits(case: &Timed) -> Result<Problem> {
    let data = |name: &str| -> Result<Array> {
        let given = case.inputs.iter().find(|(known, _)| known == name);
        Ok(given.ok_or(BenchError::Wrong { case: case.name.clone(), what: format!("no input {name}") })?.1.clone())
    };
    let problem = Problem::builder(Leaf(Variable::constant([640], -5.0)), Leaf(Variable::constant([640], 0.0)))
        .dtype(DType::F32)
        .data("x", data("x")?)
        .data("y", data("y")?)
        .data("xv", data("xv")?)
        .data("yv", data("yv")?)
        .inner(|s, l, w| {
            nn::cross_entropy(s.data("x").matmul(w.0.reshape([64, 10])), s.data("y"))
                + (l.0.exp() * w.0 * w.0).sum_all()
        })
        .outer(|s, _, w| nn::cross_entropy(s.data("xv").matmul(w.0.reshape([64, 10])), s.data("yv")));
    Ok(problem.build()?.erase())
}

/// A run that was timed must have done its work.
fn check(case: &Timed, outcome: &Outcome) -> Result<()> {
    let size = outcome.last.as_ref().map_or(f64::NAN, |last| last.hypergradient_norm);
    let lambda = if case.call == Call::Outer200 { outcome.state.lambda[0].item()? } else { 0.7375 };
    if size > 0.0 && (lambda - 0.7375).abs() < 0.0075 {
        return Ok(());
    }
    let what = format!("the driver ended with a hypergradient of norm {size}, and λ of synth1d at {lambda}");
    Err(BenchError::Wrong { case: case.name.clone(), what })
}
