//! The whole conformance suite by the interpreter, for targets that ask for nothing, for everything, and for random
//! parts of it.

use bilevel_graph::conformance::{Case, agree, cases, check_all, outputs};
use bilevel_graph::{Array, Executor, Program, Result};
use bilevel_plan::{Capabilities, CostModel, Interpreter, Overlap, PASSES, Pipeline, RULES, Schedule, Target};
use std::sync::OnceLock;
use std::time::Instant;

/// A target each of whose wishes is a bit of a number.
fn wishes(bits: u64) -> Target {
    let has = |bit: u32| bits >> bit & 1 == 1;
    let short = if has(0) { 64 } else { 0 };
    Target {
        can: Capabilities {
            row: if has(14) { 5 } else { 1024 },
            members: if has(15) { 3 } else { 64 },
            sequential_max: if has(16) { 64 } else { 0 },
            axes: 8,
            alignment: 16,
            // A machine that multiplies bf16 as it is stored rounds natively.
            rounds_operands: has(5) || has(6) || has(7),
            gemm_reads_bf16: has(6),
            channels_last: has(20),
            conv_bf16_channels: has(7).then_some(1),
            pool_grad_as_select: has(10),
            pad_sum: has(11),
            inline_gather: has(12),
            concat_in_place: has(3),
            one_batch_stride: has(9).then_some(|_| true),
            epilogue: has(17).then_some(|_, _| true),
            affine_epilogue: has(19).then_some(|_| true),
            gemm_gemm: has(13).then_some(|_, _, _, _| true),
        },
        costs: CostModel {
            tiny_loop: short,
            horizontal_fusion_max: short,
            reuse_distance: if has(1) { 8 } else { 0 },
            no_alias_bytes: if has(2) { 64 } else { 0 },
            remat_min_bytes: has(4).then_some(1),
            min_scaled_side: has(8).then_some(1),
            load_bytes: if has(18) { 2 } else { 16 },
            ..CostModel::PLAIN
        },
    }
}

/// Everything that can be asked for.
fn everything() -> Target {
    wishes(0x1c3fff)
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

/// How many times as many random programs and targets as usual: the environment variable `SEEDS`, as for the tests of
/// executors.
fn times() -> u64 {
    std::env::var("SEEDS").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Runs the cases that are chosen once and compares them with the reference; prints how many there are and how long
/// they take.
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
    let failures = check_all(&Interpreter::new(Target::PLAIN), 0..2).unwrap();
    println!("plain: the whole suite, every way to run it, in {:.1} s", start.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
fn a_target_that_asks_for_everything_passes_the_suite() {
    check("everything", |_| true, |program| Schedule::new(program, &everything()));
}

#[test]
fn a_target_that_also_joins_loops_with_products_passes_the_suite() {
    check("epilogues", is_quick, |program| Schedule::new(program, &wishes(0xe3fff)));
    check("epilogues in short loops", is_quick, |program| Schedule::new(program, &wishes(0xfffff)));
}

#[test]
fn random_targets_pass_the_suite() {
    for seed in 1..=6 * times() {
        let bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        check(&format!("random {bits:x}"), is_quick, move |program| Schedule::new(program, &wishes(bits)));
    }
}

#[test]
fn whatever_pass_or_rule_is_switched_off_the_suite_passes() {
    let passes = PASSES.iter().filter(|pass| pass.needed.is_none()).map(|pass| pass.name);
    for name in passes.chain(RULES.iter().map(|rule| rule.name)) {
        let pipeline = Pipeline::new().without(name).unwrap();
        check(&format!("without {name}"), is_quick, move |program| pipeline.run(program, &everything()));
    }
}

/// In the memory of a software pipeline: as the reference computes them, and, for more steps than there are arenas,
/// with the bits of single steps.
#[test]
fn overlapping_iterations_pass_the_suite_with_the_bits_of_single_steps() {
    for (overlap, bits, every) in [(Overlap::Iterations, 0, 3), (Overlap::Stages, 0x1c3fff, 1)] {
        let start = Instant::now();
        let interpreter = Interpreter::new(wishes(bits)).overlapping(overlap);
        let (mut count, mut programs, mut failures) = (0, 0, vec![]);
        for (case, _) in suite().iter().filter(|(case, _)| is_quick(case)).step_by(every) {
            interpreter.compile(&case.program).unwrap();
            if interpreter.overlapped() == count {
                continue;
            }
            failures.extend(case.check(&interpreter).err());
            let longer = Case { steps: 9, ..case.clone() };
            // Some read a row for each step, of which there are fewer.
            if outputs(&Interpreter::new(wishes(bits)), &longer.program, &longer.inputs, longer.steps).is_ok() {
                failures.extend(longer.run(&interpreter).err());
            }
            count = interpreter.overlapped();
            programs += 1;
        }
        println!("{overlap:?} of {bits:x}: {programs} loops overlap, {:.1} s", start.elapsed().as_secs_f64());
        assert!(failures.is_empty(), "{}", failures.iter().map(|f| format!("{f}\n")).collect::<String>());
        assert!(programs > 0);
    }
}
