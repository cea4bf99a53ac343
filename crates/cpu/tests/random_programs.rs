//! Property: on random programs, the CPU executor, the reference evaluator and the graph without simplification agree, and
//! the CPU's result does not depend on threads or on the run.

mod common;

use bilevel_cpu::Cpu;
use bilevel_graph::{Array, Executor, Graph, Program, Reference, Result, Runnable};

fn build(seed: u64, g: &Graph) -> (Program, Vec<(String, Array)>) {
    let sample = common::sample(seed, g);
    let mut builder = Program::builder(g);
    for (i, &result) in sample.results.iter().enumerate() {
        builder = builder.output(format!("result {i}"), result);
    }
    if let Some((input, next)) = sample.carry {
        builder = builder.carry(input, next);
    }
    for (tensor, _, _) in &sample.inputs {
        builder = builder.keep_input(*tensor);
    }
    (builder.build().unwrap(), sample.inputs.into_iter().map(|(_, name, value)| (name, value)).collect())
}

fn outputs(executor: &dyn Executor, program: &Program, inputs: &[(String, Array)], steps: u32) -> Result<Vec<Array>> {
    let mut run = executor.compile(program)?;
    set_all(&mut *run, inputs)?;
    run.run(0..steps)?;
    results(&*run)
}

fn set_all(run: &mut dyn Runnable, inputs: &[(String, Array)]) -> Result<()> {
    for (name, value) in inputs {
        let input = run.program().input(name)?;
        run.set(input, value)?;
    }
    Ok(())
}

fn results(run: &dyn Runnable) -> Result<Vec<Array>> {
    let mut all = (0..run.program().outputs.len()).map(|i| run.output(i)).collect::<Result<Vec<_>>>()?;
    for carry in &run.program().carries {
        all.push(run.input(carry.input)?);
    }
    Ok(all)
}

fn assert_close(seed: u64, what: &str, found: &[Array], expected: &[Array]) {
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()), "seed {seed}, {what}, result {i}");
        let (a, b) = (a.to_f64(), b.to_f64());
        let scale = b.iter().fold(1.0f64, |m, v| m.max(v.abs()));
        for (j, (x, y)) in a.iter().zip(&b).enumerate() {
            assert!((x - y).abs() <= 1e-12 * scale, "seed {seed}, {what}, result {i}[{j}]: {x} and {y}, scale {scale}");
        }
    }
}

fn check(seed: u64, one: &Cpu, two: &Cpu) {
    let g = Graph::new();
    let (program, inputs) = build(seed, &g);
    let steps = 1 + (seed % 3) as u32;
    let expected = outputs(&Reference, &program, &inputs, steps).unwrap();
    let found = outputs(one, &program, &inputs, steps).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert_close(seed, "cpu against reference", &found, &expected);
    assert_eq!(found, outputs(two, &program, &inputs, steps).unwrap(), "seed {seed}: one thread and two");

    let mut again = two.compile(&program).unwrap();
    for _ in 0..2 {
        set_all(&mut *again, &inputs).unwrap();
        again.run(0..steps).unwrap();
        assert_eq!(found, results(&*again).unwrap(), "seed {seed}: run again");
    }

    let plain = Graph::without_simplification();
    let (program, inputs) = build(seed, &plain);
    let unsimplified = outputs(one, &program, &inputs, steps).unwrap();
    // Simplification may know that a derivative is zero which the plain graph computes; then the counts differ.
    if unsimplified.len() == expected.len() {
        assert_close(seed, "without simplification", &unsimplified, &expected);
    } else {
        assert_close(seed, "without simplification", &unsimplified[..1], &expected[..1]);
    }
}

#[test]
fn optimised_unsimplified_and_reference_evaluation_agree_on_random_programs() {
    let (one, two) = (Cpu::with_threads(1), Cpu::with_threads(2));
    let (first, count) = (0, 1200);
    for seed in first..first + count {
        check(seed, &one, &two);
    }
}
