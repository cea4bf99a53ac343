//! The whole conformance suite by the interpreter, on schedules as they are planned for a GPU. No GPU is needed.

use bilevel_cuda::CudaTarget;
use bilevel_graph::conformance::{cases, check_all, long_products};
use bilevel_graph::{Precision, Program, Result};
use bilevel_plan::{Interpreter, Kind, Schedule, channels_last};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// As the executor plans it where cuDNN is there: with images channels last, if that is another program.
fn planned(program: &Program) -> Result<Schedule> {
    let rewritten = channels_last(program);
    let target = CudaTarget { channels_last: rewritten.is_some(), strips: true };
    Schedule::new(rewritten.as_ref().unwrap_or(program), &target)
}

/// Schedules with a fused attention, with scaled fp16, with fetches in loops, with sums of pads, and with values computed again.
static FOUND: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

fn counted(program: &Program) -> Result<Schedule> {
    let schedule = planned(program)?;
    let any = |kind: fn(&Kind) -> bool| schedule.nodes.iter().any(|node| kind(&node.kind));
    let found = [
        schedule.groups().iter().any(|group| group.next.is_some()),
        any(|kind| matches!(kind, Kind::Fetch { .. })),
        any(|kind| matches!(kind, Kind::Overlay(_))),
        schedule.nodes.iter().any(|node| node.narrow),
    ];
    FOUND.iter().zip(found).for_each(|(count, found)| drop(count.fetch_add(usize::from(found), Relaxed)));
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
