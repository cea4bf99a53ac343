//! The whole conformance suite by the interpreter, for targets that ask for nothing, for everything, and for random parts of it.

use bilevel_graph::conformance::{Case, agree, cases, check_all, outputs};
use bilevel_graph::{Array, ConvDims, Precision, Program, Result};
use bilevel_plan::{
    DotLayout, DotSize, Group, Interpreter, Kind, Limits, Node, PASSES, Pipeline, PlainTarget, RULES, Schedule, Target,
};
use std::sync::OnceLock;
use std::time::Instant;

/// A target each of whose wishes is a bit of a number.
#[derive(Clone, Copy)]
struct Wishes(u64);

impl Wishes {
    fn has(self, bit: u32) -> bool {
        self.0 >> bit & 1 == 1
    }
}

/// Everything that can be asked for; operations that loops cannot have are not.
const EVERYTHING: Wishes = Wishes(0x3fff);

impl Target for Wishes {
    fn limits(&self) -> Limits {
        let short = if self.has(0) { 64 } else { 0 };
        Limits {
            row: if self.has(14) { 5 } else { 1024 },
            members: if self.has(15) { 3 } else { 64 },
            tiny_loop: short,
            horizontal_fusion_max: short,
            sequential_max: if self.has(16) { 64 } else { 0 },
            axes: 8,
            alignment: 16,
            reuse_distance: if self.has(1) { 8 } else { 0 },
            no_alias_bytes: if self.has(2) { 64 } else { 0 },
            concat_in_place: self.has(3),
            remat_min_bytes: self.has(4).then_some(1),
        }
    }

    fn fuses(&self, kind: &Kind) -> bool {
        let reduces = matches!(kind, Kind::Reduce(..) | Kind::ArgMax);
        let fuses = reduces || matches!(kind, Kind::Elementwise(_) | Kind::AmaxExponent | Kind::InlineGather { .. });
        fuses && !(self.has(17) && reduces)
    }

    fn has_native(&self, _: Precision) -> bool {
        self.has(5)
    }

    fn gemm_reads_bf16(&self) -> bool {
        self.has(6)
    }

    fn conv_reads_bf16(&self, _: &ConvDims, _: &[usize], _: &[usize]) -> bool {
        self.has(7)
    }

    fn scales_to_f16(&self, _: &DotLayout) -> bool {
        self.has(8)
    }

    fn wants_one_stride(&self, _: &DotSize) -> bool {
        self.has(9)
    }

    fn pool_grad_as_select(&self) -> bool {
        self.has(10)
    }

    fn fuses_pad_sum(&self) -> bool {
        self.has(11)
    }

    fn fuses_gather(&self) -> bool {
        self.has(12)
    }

    fn wants_epilogue(&self, _: &Node, _: &Group) -> bool {
        self.has(18)
    }

    fn fuses_gemm_gemm(&self, _: &[Node], _: usize, _: &Group, _: usize) -> bool {
        self.has(13)
    }
}

/// The cases of the suite with what the reference computes, which all tests share.
fn suite() -> &'static [(Case, Vec<Array>)] {
    static SUITE: OnceLock<Vec<(Case, Vec<Array>)>> = OnceLock::new();
    SUITE.get_or_init(|| {
        let with_results = |case: Case| {
            let expected = case.expected().unwrap();
            (case, expected)
        };
        cases(0..6 * times()).unwrap().into_iter().map(with_results).collect()
    })
}

/// How many times as many random programs and targets as usual: the environment variable `SEEDS`, as for the tests of executors.
fn times() -> u64 {
    std::env::var("SEEDS").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Runs the cases that are chosen once and compares them with the reference; prints how many there are and how long they take.
#[track_caller]
fn check(
    name: &str,
    choose: impl Fn(&Case) -> bool,
    planner: impl Fn(&Program) -> Result<Schedule> + Send + Sync + 'static,
) {
    let (suite, start, interpreter) = (suite(), Instant::now(), Interpreter::of(planner));
    let chosen: Vec<_> = suite.iter().filter(|(case, _)| choose(case)).collect();
    let mut failures = vec![];
    for (case, expected) in &chosen {
        let found = outputs(&interpreter, &case.program, &case.inputs, case.steps);
        let agreed = found
            .map_err(|error| error.to_string())
            .and_then(|found| agree(&found, expected, &case.tolerances).map_err(|mismatch| mismatch.to_string()));
        failures.extend(agreed.err().map(|failure| format!("{name}: {}: {failure}\n", case.name)));
    }
    println!("{name}: {} cases in {:.1} s", chosen.len(), start.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.concat());
}

/// All but the largest cases, for tests that run the suite many times.
fn is_quick(case: &Case) -> bool {
    !["heads", "rows of 4100"].iter().any(|words| case.name.contains(words))
}

#[test]
fn a_target_that_asks_for_nothing_passes_the_whole_suite() {
    let start = Instant::now();
    let failures = check_all(&Interpreter::new(PlainTarget), 0..2).unwrap();
    println!("plain: the whole suite, every way to run it, in {:.1} s", start.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
fn a_target_that_asks_for_everything_passes_the_suite() {
    check("everything", |_| true, |program| Schedule::new(program, &EVERYTHING));
}

#[test]
fn a_target_that_also_joins_loops_with_products_passes_the_suite() {
    check("epilogues", is_quick, |program| Schedule::new(program, &Wishes(0x43fff)));
    check("epilogues in short loops", is_quick, |program| Schedule::new(program, &Wishes(0x7ffff)));
}

#[test]
fn random_targets_pass_the_suite() {
    for seed in 1..=6 * times() {
        let wishes = Wishes(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
        check(&format!("random {:x}", wishes.0), is_quick, move |program| Schedule::new(program, &wishes));
    }
}

#[test]
fn whatever_pass_or_rule_is_switched_off_the_suite_passes() {
    let passes = PASSES.iter().filter(|pass| pass.needed.is_none()).map(|pass| pass.name);
    for name in passes.chain(RULES.iter().map(|rule| rule.name)) {
        let pipeline = Pipeline::new().without(name).unwrap();
        check(&format!("without {name}"), is_quick, move |program| pipeline.run(program, &EVERYTHING));
    }
}
