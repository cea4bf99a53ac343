//! Property: on random programs, the CPU executor, the reference evaluator and the graph without simplification agree, and
//! the CPU's result does not depend on threads or on the run.

use bilevel_cpu::Cpu;
use bilevel_graph::conformance::{self, Case, Dice, Failure, Size, agree, outputs, random_program, varied_program};
use bilevel_graph::{Array, DType, Graph};

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

    /// The result, after checking that it is the same bits for every team and every run on the same memory.
    fn results(&self, case: &Case) -> Result<Vec<Array>, Failure> {
        let found = case.run(&self.0[0])?;
        for cpu in &self.0[1..] {
            let exactly = vec![0.0; found.len()];
            agree(&case.run(cpu)?, &found, &exactly).map_err(|mismatch| case.failed(mismatch))?;
        }
        Ok(found)
    }

    /// Checks that it is also what the reference gives; the answer is what that is.
    #[track_caller]
    fn check(&self, case: &Case) -> Vec<Array> {
        let expected = case.expected().unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let found = self.results(case).unwrap_or_else(|failure| panic!("{failure}"));
        agree(&found, &expected, &case.tolerances).unwrap_or_else(|mismatch| panic!("{}: {mismatch}", case.name));
        expected
    }
}

fn check(seed: u64, cpus: &Cpus, dtype: DType, size: fn(&mut Dice) -> Size) {
    let case = random_program(seed, &Graph::new(), dtype, size).unwrap();
    let expected = cpus.check(&case);
    let plain = random_program(seed, &Graph::without_simplification(), dtype, size).unwrap();
    let unsimplified = outputs(&cpus.0[0], &plain.program, &plain.inputs, plain.steps).unwrap();
    // Simplification may know that a derivative is zero which the plain graph computes; then the counts differ.
    let same = if unsimplified.len() == expected.len() { expected.len() } else { 1 };
    agree(&unsimplified[..same], &expected[..same], &case.tolerances[..same])
        .unwrap_or_else(|mismatch| panic!("{} without simplification: {mismatch}", case.name));
}

#[test]
fn optimised_unsimplified_and_reference_evaluation_agree_on_random_programs() {
    let cpus = Cpus::new();
    for seed in seeds(0, 1200) {
        check(seed, &cpus, DType::F64, Size::small);
    }
}

#[test]
fn loops_of_several_tasks_agree_with_the_reference_on_random_programs() {
    let cpus = Cpus::new();
    for seed in seeds(0, 60) {
        check(seed, &cpus, DType::F64, Size::large);
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
        let case = random_program(seed, &Graph::new(), DType::F64, Size::large).unwrap();
        summed(&Cpu::with_threads(1).plan(&case.program).unwrap().describe());
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
        check(seed, &cpus, DType::F32, Size::small);
    }
    for seed in seeds(5000, 10) {
        check(seed, &cpus, DType::F32, Size::large);
    }
}

fn check_varied(seed: u64, cpus: &Cpus, dtype: DType, size: fn(&mut Dice) -> Size) {
    for g in [Graph::new(), Graph::without_simplification()] {
        cpus.check(&varied_program(seed, &g, dtype, size).unwrap());
    }
}

#[test]
fn choices_integers_draws_empty_axes_and_every_kind_of_carry_agree_with_the_reference() {
    let cpus = Cpus::new();
    for seed in seeds(0, 400) {
        check_varied(seed, &cpus, DType::F64, Size::small);
    }
    for seed in seeds(1000, 150) {
        check_varied(seed, &cpus, DType::F32, Size::small);
    }
}

#[test]
fn choices_integers_and_draws_agree_with_the_reference_in_loops_of_several_tasks() {
    let cpus = Cpus::new();
    for seed in seeds(0, 30) {
        check_varied(seed, &cpus, DType::F64, Size::large);
    }
}

#[test]
fn the_executor_passes_the_whole_conformance_suite() {
    for threads in [1, 3] {
        let failures = conformance::check_all(&Cpu::with_threads(threads), seeds(0, 20)).unwrap();
        assert!(failures.is_empty(), "{}", failures.iter().map(|f| format!("{f}\n")).collect::<String>());
    }
}
