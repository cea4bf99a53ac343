//! Runs and times the program of a case.

use crate::cases::timed::{Call, Timed, key};
use crate::cases::wide::{Bare, COUNT};
use crate::error::{BenchError, Result};
use crate::timing::line::{Line, Unit};
use crate::timing::statistics::timed;
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
            let seconds = timed(reps, 1, || evaluate(case, &mut run))?;
            Ok(Line::ours(&case.name, Unit::Milliseconds, seconds))
        }
        Call::Scalars => scalars(case, &mut ready(cpu, case)?, reps),
        Call::Outer200 => outer200(case, &mut ready(cpu, case)?, reps),
        Call::Outer10 => outer10(case, &mut ready(cpu, case)?, reps),
        Call::Wide => wide(case, cpu, reps),
    }
}

/// One evaluation, from the beginning. Loop-invariant values are recomputed only if an input has changed since the last
/// call, and in these programs that is everything. So the smallest input is set again.
fn evaluate(case: &Timed, run: &mut CpuRun) -> Result<()> {
    if let Some((name, value)) = case.inputs.iter().min_by_key(|(_, value)| value.len()) {
        run.set(case.program.input(name)?, value)?;
    }
    Ok(run.run(0..1)?)
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

/// Outer iterations one after the other, each with its step of λ; none from the start, while the peers restart each
/// time.
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
    let what = format!("the result is {found}, but {expected} ± {tolerance} is expected");
    Err(BenchError::Wrong { case: case.name.clone(), what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::{Executor, Graph, Program};

    #[test]
    fn every_evaluation_has_an_input_that_is_newer_than_the_last() {
        let g = Graph::new();
        let (x, w) = (g.input("x", [4, 3], DType::F32), g.input("w", [3], DType::F32));
        let program = Program::builder(&g).output("loss", (x * w).sum_all()).build().unwrap();
        let inputs = [("x", Array::full([4, 3], 1.0, DType::F32)), ("w", Array::full([3], 2.0, DType::F32))];
        let inputs: Vec<(String, Array)> = inputs.map(|(name, value)| (name.to_string(), value)).into();
        let case = Timed { name: "sum".into(), program, inputs, call: Call::Evaluate };
        let cpu = Cpu::with_threads(1);
        let mut run = ready(&cpu, &case).unwrap();
        let buffer = cpu.upload(&case.inputs[1].1).unwrap();
        run.bind_input(case.program.input("w").unwrap(), &buffer).unwrap();
        let mut seen = buffer.version();
        for _ in 0..3 {
            evaluate(&case, &mut run).unwrap();
            assert!(buffer.version() > seen, "everything would be kept from the last call, and nothing timed");
            seen = buffer.version();
            assert_eq!(run.output(0).unwrap().item(), Some(24.0));
        }
    }
}
