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

/// This many seeds from `first`; more where the environment variable `SEEDS` says how many times as many.
fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    let times = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    first..first + count * times
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
    for seed in seeds(0, 1200) {
        check(seed, &cpus, DType::F64, Size::small, 1e-12);
    }
}

#[test]
fn loops_of_several_tasks_agree_with_the_reference_on_random_programs() {
    let cpus = Cpus::new();
    for seed in seeds(0, 60) {
        check(seed, &cpus, DType::F64, Size::large, 1e-12);
    }
}

/// What the test above relies on: loops and sinks of several tasks, and rows from short to long.
#[test]
fn large_random_programs_have_loops_and_sinks_of_several_tasks() {
    let (mut loops, mut sinks, mut rows) = (0, 0, std::collections::BTreeSet::new());
    let mut summed = |plan: &str| {
        for line in plan.lines().filter(|line| line.contains("loop over")) {
            let numbers: Vec<usize> =
                line.split(|c: char| !c.is_ascii_digit()).skip(1).filter_map(|s| s.parse().ok()).collect();
            let at = |word: &str| {
                let before = line.split(word).next()?;
                before.rsplit(' ').next()?.parse::<usize>().ok()
            };
            rows.insert(numbers[2]);
            loops += (at(" tasks") > Some(1)) as usize;
            sinks += (at(" tasks") > Some(1) && at(" sinks") > Some(0)) as usize;
        }
    };
    for seed in 0..60 {
        let g = Graph::new();
        let (program, _) = build(seed, &g, DType::F64, Size::large);
        summed(&Cpu::with_threads(1).plan(&program).unwrap().describe());
    }
    assert!(loops >= 100 && sinks >= 40, "{loops} loops, {sinks} of them with sinks");
    assert!(rows.len() >= 15 && rows.contains(&2) && rows.last() >= Some(&4000), "{rows:?}");
}

/// Both round every value to 32 bits; sums in another order and functions of another last bit then grow as the derivatives
/// amplify them.
#[test]
fn single_precision_agrees_with_the_reference_in_single_precision_on_random_programs() {
    let cpus = Cpus::new();
    for seed in seeds(5000, 200) {
        check(seed, &cpus, DType::F32, Size::small, 1e-4);
    }
    for seed in seeds(5000, 10) {
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
    for seed in seeds(0, 400) {
        check_varied(seed, &cpus, DType::F64, Size::small, 1e-12);
    }
    for seed in seeds(1000, 150) {
        check_varied(seed, &cpus, DType::F32, Size::small, 1e-4);
    }
}

/// The reference adds up one by one: of n equal terms, which a choice makes many of, it may lose n·2⁻⁵³ of the sum.
#[test]
fn choices_integers_and_draws_agree_with_the_reference_in_loops_of_several_tasks() {
    let cpus = Cpus::new();
    for seed in seeds(0, 30) {
        check_varied(seed, &cpus, DType::F64, Size::large, 60_000.0 * f64::EPSILON / 2.0);
    }
}
