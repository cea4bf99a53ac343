//! Runs and times the program of a case.

use crate::cases::{Call, Timed, key};
use crate::error::{BenchError, Result};
use crate::line::{Line, Unit};
use crate::timing::timed;
use crate::wide::{Bare, COUNT};
use bilevel_cpu::{Cpu, CpuRun};
use bilevel_graph::{Array, DType, Runnable};

/// Plans a program and gives all its inputs their values.
pub fn ready(cpu: &Cpu, case: &Timed) -> Result<CpuRun> {
    let mut run = cpu.plan(&case.program)?;
    for (name, value) in &case.inputs {
        run.set(case.program.input(name)?, value)?;
    }
    Ok(run)
}

/// Times a program: a call to warm up, then `reps` repetitions.
pub fn time(case: &Timed, cpu: &Cpu, reps: usize) -> Result<Line> {
    match case.call {
        Call::Evaluate => {
            let mut run = ready(cpu, case)?;
            let seconds = timed(reps, 1, || Ok(run.run(0..1)?))?;
            Ok(Line::ours(&case.name, Unit::Milliseconds, seconds))
        }
        Call::Scalars => scalars(case, &mut ready(cpu, case)?, reps),
        Call::Outer200 => outer200(case, &mut ready(cpu, case)?, reps),
        Call::Outer10 => outer10(case, &mut ready(cpu, case)?, reps),
        Call::Wide => wide(case, cpu, reps),
    }
}

/// Inputs in and outputs out are part of a call from outside, as they are for the peers.
fn scalars(case: &Timed, run: &mut CpuRun, reps: usize) -> Result<Line> {
    let at = Array::scalar(1.5, DType::F64);
    let mut results = vec![at.clone(); case.program.outputs.len()];
    let seconds = timed(reps, 2000, || {
        run.set(0, &at)?;
        run.run(0..1)?;
        for (i, result) in results.iter_mut().enumerate() {
            run.read(i, result)?;
        }
        Ok(())
    })?;
    // 3x² and 6x at 1.5.
    for (result, expected) in results.iter().zip([6.75, 9.0]) {
        expect(case, result.item().unwrap_or(f64::NAN), expected, 1e-12)?;
    }
    Ok(Line::ours(&case.name, Unit::Microseconds, seconds))
}

/// 200 outer iterations: λ ← λ − 0.005·h, with a fresh key each.
fn outer200(case: &Timed, run: &mut CpuRun, reps: usize) -> Result<Line> {
    let [i_lambda, i_theta, i_key, i_h] = positions(case, ["lambda", "theta", "key", "h"])?;
    let start = Array::scalar(0.1, DType::F64);
    let zero = Array::scalar(0.0, DType::F64);
    let mut h = zero.clone();
    let mut last = f64::NAN;
    let seconds = timed(reps, 1, || {
        let mut lambda = start.clone();
        run.set(i_theta, &start)?;
        for outer in 0..200 {
            run.set(i_lambda, &lambda)?;
            run.set(i_key, &key(outer)?)?;
            run.set(i_h, &zero)?;
            run.run(0..100)?;
            run.read_input(i_h, &mut h)?;
            last = lambda.item().unwrap_or(f64::NAN) - 0.005 * h.item().unwrap_or(f64::NAN);
            lambda = Array::scalar(last, DType::F64);
        }
        Ok(())
    })?;
    expect(case, last, 0.7375, 0.0075)?;
    Ok(Line::ours(&case.name, Unit::Microseconds, seconds.divided(200.0)))
}

/// One outer iteration from θ = 0.
fn outer10(case: &Timed, run: &mut CpuRun, reps: usize) -> Result<Line> {
    let [i_theta, i_h, i_key] = positions(case, ["theta", "h", "key"])?;
    let zero = Array::zeros([640], DType::F32);
    let mut h = zero.clone();
    let key = key(2)?;
    let seconds = timed(reps, 1, || {
        run.set(i_theta, &zero)?;
        run.set(i_h, &zero)?;
        run.set(i_key, &key)?;
        run.run(0..10)?;
        Ok(run.read_input(i_h, &mut h)?)
    })?;
    positive(case, h.to_f64().iter().map(|v| v * v).sum::<f64>().sqrt())?;
    Ok(Line::ours(&case.name, Unit::Microseconds, seconds))
}

/// Outer iterations one after the other, each with its step of λ; none from the start, where the peers begin anew each time.
fn wide(case: &Timed, cpu: &Cpu, reps: usize) -> Result<Line> {
    let (mut bare, mut size, mut number) = (Bare::new(cpu, COUNT)?, f64::NAN, 0);
    let seconds = timed(reps, 1, || {
        number += 1;
        size = bare.iterate(&key(number)?)?;
        Ok(())
    })?;
    positive(case, size)?;
    Ok(Line::ours(&case.name, Unit::Milliseconds, seconds))
}

fn positive(case: &Timed, size: f64) -> Result<()> {
    if size > 0.0 && size.is_finite() {
        return Ok(());
    }
    let what = format!("the hypergradient has norm {size}; it must be a positive number");
    Err(BenchError::Wrong { case: case.name.clone(), what })
}

fn positions<const N: usize>(case: &Timed, names: [&str; N]) -> Result<[usize; N]> {
    let mut found = [0; N];
    for (place, name) in found.iter_mut().zip(names) {
        *place = case.program.input(name)?;
    }
    Ok(found)
}

fn expect(case: &Timed, found: f64, expected: f64, tolerance: f64) -> Result<()> {
    // Written so that NaN fails too.
    if (found - expected).abs() <= tolerance {
        return Ok(());
    }
    let what = format!("the result is {found}, where {expected} ± {tolerance} is expected");
    Err(BenchError::Wrong { case: case.name.clone(), what })
}
