//! The whole conformance suite by the interpreter, on schedules as they are planned for a GPU. No GPU is needed.

use crate::gpu::{affine, agrees_on_affine_epilogues};
use bilevel_cuda::gpu_target;
use bilevel_graph::conformance::{Case, agree, cases, check_all, long_products, outputs};
use bilevel_graph::{DType, Executor, Graph, Program, Result};
use bilevel_plan::{Interpreter, Kind, Overlap, Schedule, StorageType};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// As the executor plans it if cuDNN is available.
fn planned(program: &Program) -> Result<Schedule> {
    Schedule::new(program, &gpu_target(true, true))
}

/// How many schedules have a fused attention, fetches in loops, sums of pads, and storage in two bytes.
static FOUND: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

fn counted(program: &Program) -> Result<Schedule> {
    let schedule = planned(program)?;
    let any = |kind: fn(&Kind) -> bool| schedule.nodes.iter().any(|node| kind(&node.kind));
    let found = [
        schedule.groups().iter().any(|group| group.second_gemm.is_some()),
        any(|kind| matches!(kind, Kind::InlineGather { .. })),
        any(|kind| matches!(kind, Kind::PadSum(_))),
        schedule.nodes.iter().any(|node| node.storage.is_reduced()),
    ];
    for (count, found) in FOUND.iter().zip(found) {
        count.fetch_add(usize::from(found), Relaxed);
    }
    Ok(schedule)
}

#[test]
fn schedules_for_a_gpu_pass_the_whole_conformance_suite_by_the_interpreter() {
    let seeds = 0..4;
    let (start, count) = (Instant::now(), cases(seeds.clone()).unwrap().len());
    let failures = check_all(&Interpreter::of(counted), seeds).unwrap();
    println!("{count} cases for a GPU in {:.1} s", start.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{}", failures.iter().map(|f| format!("{f}\n")).collect::<String>());
    let found = FOUND.each_ref().map(|count| count.load(Relaxed));
    println!("programs with fused attention, fetches, sums of pads and two bytes: {found:?}");
    assert!(found.iter().all(|&count| count > 0), "{found:?}");
}

/// As the reference computes them, and, for more steps than there are arenas, with the bits of single steps.
#[test]
fn loops_in_the_memory_of_software_pipelines_pass_the_conformance_suite_by_the_interpreter() {
    // Few loops have stages, and most can rotate.
    for (overlap, every) in [(Overlap::Iterations, 4), (Overlap::Stages, 1)] {
        let (start, interpreter) = (Instant::now(), Interpreter::of(planned).overlapping(overlap));
        let (mut count, mut programs, mut failures) = (0, 0, vec![]);
        for case in cases(0..1).unwrap().into_iter().step_by(every) {
            interpreter.compile(&case.program).unwrap();
            if interpreter.overlapped() == count {
                continue;
            }
            failures.extend(case.check(&interpreter).err());
            let longer = Case { steps: 9, ..case };
            // Some read a row for each step, of which there are fewer.
            if outputs(&Interpreter::of(planned), &longer.program, &longer.inputs, longer.steps).is_ok() {
                failures.extend(longer.run(&interpreter).err());
            }
            count = interpreter.overlapped();
            programs += 1;
        }
        println!("{overlap:?}: {programs} loops overlap, {:.1} s", start.elapsed().as_secs_f64());
        assert!(failures.is_empty(), "{}", failures.iter().map(|f| format!("{f}\n")).collect::<String>());
        assert!(programs > 0);
    }
}

#[test]
fn affine_epilogues_agree_with_the_reference() {
    let (program, _) = affine(&Graph::new(), DType::F32);
    let schedule = planned(&program).unwrap();
    assert_eq!(schedule.groups().iter().filter(|group| group.affine.is_some()).count(), 5);
    agrees_on_affine_epilogues(&Interpreter::of(planned));
}

#[test]
fn long_products_in_scaled_fp16_agree_with_the_reference() {
    let start = Instant::now();
    let (cases, interpreter) = (long_products().unwrap(), Interpreter::of(planned));
    for case in &cases {
        let scaled = planned(&case.program).unwrap().nodes.iter().any(|node| node.storage == StorageType::F16);
        assert!(scaled || case.name.contains("begin anywhere"), "{}", case.name);
        let expected = case.expected().unwrap();
        let found = outputs(&interpreter, &case.program, &case.inputs, case.steps).unwrap();
        agree(&found, &expected, &case.tolerances).unwrap_or_else(|mismatch| panic!("{}: {mismatch}", case.name));
    }
    println!("{} cases of long products in {:.1} s", cases.len(), start.elapsed().as_secs_f64());
}
