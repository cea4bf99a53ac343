//! Planted mistakes in the memory of loops whose iterations overlap.

use super::Subject;
use crate::ir::interpret::overlap::{Overlap, OverlappedLoop};
use crate::ir::interpret::{Interpreter, InterpreterRun, WORKSPACE};
use crate::ir::verify::memory::verify_memory;
use crate::memory::MemoryMap;
use crate::memory::alias_policy::AliasPolicy;
use crate::memory::rotating_copies::RotatingCopies;
use crate::schedule::Schedule;
use crate::target::Target;
use bilevel_graph::conformance::{outputs, results, set_all};
use bilevel_graph::{Array, DType, Graph, Program, Runnable, Tensor};
use std::sync::Arc;

const STEPS: u32 = 12;

/// Running sums keep every value in memory.
fn chain(x: Tensor, length: usize) -> Tensor {
    (0..length).fold(x, |x, axis| x.cumsum(axis % 2).sin())
}

/// Weights known early in a step, whose old values are read at its end, and a sum.
fn rotating() -> Subject {
    let g = Graph::new();
    let [w, h] = ["w", "h"].map(|name| g.input(name, [4, 4], DType::F64));
    let next = chain(w, 3);
    let read = chain(next, 3) * w;
    Subject::new(Program::builder(&g).carry(w, next).carry(h, h + read).build().unwrap(), 0.0).on(Target::PLAIN)
}

/// A step whose late stage is only accumulated.
fn staged() -> Subject {
    let g = Graph::new();
    let [w, h] = ["w", "h"].map(|name| g.input(name, [4, 4], DType::F64));
    let next = w * 0.5 + chain(w, 3);
    let late = chain(next.cumsum(1), 4);
    Subject::new(Program::builder(&g).carry(w, next).carry(h, h + late).build().unwrap(), 0.0).on(Target::PLAIN)
}

/// The results of a run in this memory.
fn left_by(subject: &Subject, schedule: Schedule, map: MemoryMap, looped: OverlappedLoop) -> Vec<Array> {
    let mut run = InterpreterRun::with(&subject.program, schedule, map);
    run.overlap = Some(Arc::new(looped));
    set_all(&mut run, &subject.inputs).unwrap();
    run.run(0..STEPS).unwrap();
    results(&run).unwrap()
}

/// The results of steps in order.
fn in_order(subject: &Subject) -> Vec<Array> {
    outputs(&Interpreter::new(subject.target), &subject.program, &subject.inputs, STEPS).unwrap()
}

fn planned(subject: &Subject) -> (Schedule, Vec<usize>) {
    let schedule = Schedule::new(&subject.program, &subject.target).unwrap();
    let workspaces = vec![WORKSPACE; schedule.groups().len()];
    (schedule, workspaces)
}

#[test]
fn both_kinds_of_loops_overlap_to_the_same_bits() {
    for (subject, overlap) in [(rotating(), Overlap::Iterations), (staged(), Overlap::Stages)] {
        let (schedule, workspaces) = planned(&subject);
        let (map, looped) = OverlappedLoop::lay_out(overlap, &schedule, &workspaces).unwrap().expect("it overlaps");
        assert_eq!(left_by(&subject, schedule, map, looped), in_order(&subject), "{overlap:?}");
    }
}

#[test]
fn stages_in_the_memory_of_sequential_steps_are_found() {
    let subject = staged();
    let (schedule, workspaces) = planned(&subject);
    let late = schedule.late_groups().unwrap();
    let map = schedule.lay_out(&workspaces).unwrap();
    assert!(verify_memory(&schedule, &map, AliasPolicy::Stages(&late)).is_err());
    assert!(left_by(&subject, schedule, map, OverlappedLoop::Stages(late)) != in_order(&subject));
}

/// The extra buffer of a carried value is the arena of another iteration.
#[test]
fn a_carried_value_with_too_few_buffers_is_found() {
    let subject = rotating();
    let (schedule, workspaces) = planned(&subject);
    let mut map = schedule.lay_out_pipelined(&workspaces).unwrap();
    let copies = RotatingCopies::new(&schedule, &map, 3, false).unwrap().without_extra_buffers();
    map.arena_bytes = copies.arena_bytes();
    assert!(left_by(&subject, schedule, map, OverlappedLoop::Iterations(copies)) != in_order(&subject));
}

/// Another value begins in the memory of the next weights, before these are known.
#[test]
fn a_carried_value_that_shares_its_memory_is_found() {
    let subject = rotating();
    let (schedule, workspaces) = planned(&subject);
    let mut map = schedule.lay_out_pipelined(&workspaces).unwrap();
    let (next, _) = schedule.carries.iter().find(|carry| !carry.in_place).unwrap().next.at().unwrap();
    let (place, end) = (map.nodes[next].unwrap(), schedule.group_of(next).unwrap());
    let is_other = |&id: &usize| {
        map.nodes[id].is_some_and(|other| other.region == place.region)
            && schedule.group_of(id).is_some_and(|g| g > end)
    };
    let other = (0..schedule.nodes.len()).find(is_other).expect("a value after the next weights");
    map.nodes[other] = Some(place);
    assert!(verify_memory(&schedule, &map, AliasPolicy::SeparateCarries).is_err());
    let copies = RotatingCopies::new(&schedule, &map, 3, false).unwrap();
    map.arena_bytes = copies.arena_bytes();
    assert!(left_by(&subject, schedule, map, OverlappedLoop::Iterations(copies)) != in_order(&subject));
}
