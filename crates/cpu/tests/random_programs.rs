//! Property: on random programs, the CPU executor, the reference evaluator and the graph without simplification agree, and
//! the CPU's result does not depend on threads or on the run.

mod common;

use bilevel_cpu::Cpu;
use bilevel_graph::{Array, DType, Executor, Graph, Program, Reference};
use common::sample::{Size, sample};
use common::varied::{Varied, varied};
use common::{Dice, Inputs, assert_close, assert_same, outputs, results, set_all};

fn build(seed: u64, g: &Graph, dtype: DType, size: fn(&mut Dice) -> Size) -> (Program, Inputs) {
    let sample = sample(seed, g, dtype, size);
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

/// Executors of one, two and three threads.
struct Cpus([Cpu; 3]);

impl Cpus {
    fn new() -> Self {
        Cpus([1, 2, 3].map(Cpu::with_threads))
    }

    /// The result, after checking that it is the same bits for every team and for a second run on the same memory.
    fn results(&self, what: &str, program: &Program, inputs: &Inputs, steps: u32) -> Vec<Array> {
        let found = outputs(&self.0[0], program, inputs, steps).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_same(&format!("{what}: three threads"), &outputs(&self.0[2], program, inputs, steps).unwrap(), &found);
        let mut again = self.0[1].compile(program).unwrap();
        for turn in 0..2 {
            set_all(&mut *again, inputs).unwrap();
            again.run(0..steps).unwrap();
            assert_same(&format!("{what}: two threads, run {turn}"), &results(&*again).unwrap(), &found);
        }
        found
    }
}

fn check(seed: u64, cpus: &Cpus, dtype: DType, size: fn(&mut Dice) -> Size, tolerance: f64) {
    let g = Graph::new();
    let (program, inputs) = build(seed, &g, dtype, size);
    let (steps, what) = (1 + (seed % 3) as u32, format!("seed {seed}"));
    let expected = outputs(&Reference, &program, &inputs, steps).unwrap();
    let found = cpus.results(&what, &program, &inputs, steps);
    assert_close(&what, &found, &expected, tolerance);

    let plain = Graph::without_simplification();
    let (program, inputs) = build(seed, &plain, dtype, size);
    let unsimplified = outputs(&cpus.0[0], &program, &inputs, steps).unwrap();
    // Simplification may know that a derivative is zero which the plain graph computes; then the counts differ.
    let what = format!("seed {seed} without simplification");
    if unsimplified.len() == expected.len() {
        assert_close(&what, &unsimplified, &expected, tolerance);
    } else {
        assert_close(&what, &unsimplified[..1], &expected[..1], tolerance);
    }
}

#[test]
fn optimised_unsimplified_and_reference_evaluation_agree_on_random_programs() {
    let cpus = Cpus::new();
    for seed in 0..1200 {
        check(seed, &cpus, DType::F64, Size::small, 1e-12);
    }
}

#[test]
fn loops_of_several_tasks_agree_with_the_reference_on_random_programs() {
    let cpus = Cpus::new();
    for seed in 0..60 {
        check(seed, &cpus, DType::F64, Size::large, 1e-12);
    }
}

/// Both round every value to 32 bits; sums in another order and functions of another last bit then grow as the derivatives
/// amplify them.
#[test]
fn single_precision_agrees_with_the_reference_in_single_precision_on_random_programs() {
    let cpus = Cpus::new();
    for seed in 5000..5200 {
        check(seed, &cpus, DType::F32, Size::small, 1e-4);
    }
    for seed in 5000..5010 {
        check(seed, &cpus, DType::F32, Size::large, 1e-4);
    }
}

fn check_varied(seed: u64, cpus: &Cpus, dtype: DType, size: fn(&mut Dice) -> Size, tolerance: f64) {
    for (g, what) in [(Graph::new(), "simplified"), (Graph::without_simplification(), "plain")] {
        let Varied { program, inputs, exact, steps } = varied(seed, &g, dtype, size);
        let what = format!("seed {seed}, {what}, {dtype}");
        let expected = outputs(&Reference, &program, &inputs, steps).unwrap_or_else(|e| panic!("{what}: {e}"));
        let found = cpus.results(&what, &program, &inputs, steps);
        for (i, exact) in exact.into_iter().enumerate() {
            let (what, found, expected) = (format!("{what}, output {i}"), &found[i..=i], &expected[i..=i]);
            if exact {
                assert_same(&what, found, expected);
            } else {
                assert_close(&what, found, expected, tolerance);
            }
        }
    }
}

#[test]
fn choices_integers_draws_empty_axes_and_every_kind_of_carry_agree_with_the_reference() {
    let cpus = Cpus::new();
    for seed in 0..400 {
        check_varied(seed, &cpus, DType::F64, Size::small, 1e-12);
    }
    for seed in 1000..1150 {
        check_varied(seed, &cpus, DType::F32, Size::small, 1e-4);
    }
}

#[test]
fn choices_integers_and_draws_agree_with_the_reference_in_loops_of_several_tasks() {
    let cpus = Cpus::new();
    for seed in 0..30 {
        check_varied(seed, &cpus, DType::F64, Size::large, 1e-12);
    }
}
