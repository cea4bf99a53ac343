//! Overlapping iterations: the memory of a software-pipelined loop, run in the most entangled order that its values
//! allow.
//!
//! A loop runs as windows. A window has parts, each a list of groups that run in order; parts of one window overlap at
//! random. A group waits only for the *values* that earlier parts compute, read or overwrite, never for their bytes:
//! where a layout lets two values share memory that it must not, the numbers are wrong.

use crate::internal_error::internal_error;
use crate::ir::interpret::InterpreterRun;
use crate::ir::node::{Kind, Operand};
use crate::memory::rotating_copies::RotatingCopies;
use crate::memory::{MemoryMap, Place, Region};
use crate::schedule::Schedule;
use bilevel_graph::conformance::Dice;
use bilevel_graph::{ErrorKind, Result};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Arenas of overlapping iterations: fewer than on a GPU, so that short runs use each again.
const ARENAS: usize = 3;

/// Iterations of a window.
const WINDOW_STEPS: usize = 5;

/// The parts of a software-pipelined loop that overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// Whole iterations, in memory by [`Schedule::lay_out_pipelined`] and [`RotatingCopies`].
    Iterations,
    /// The late stage of an iteration and the early stage of the next, in memory by [`Schedule::lay_out_in_stages`].
    Stages,
}

/// An overlapped loop in its memory.
pub(crate) enum OverlappedLoop {
    Iterations(RotatingCopies),
    /// By group: whether it belongs to the late stage.
    Stages(Vec<bool>),
}

impl OverlappedLoop {
    /// Lays out a loop whose iterations overlap so; `None` if those of this schedule cannot.
    pub fn lay_out(overlap: Overlap, schedule: &Schedule, workspaces: &[usize]) -> Result<Option<(MemoryMap, Self)>> {
        let checks = |groups: Range<usize>| {
            schedule.groups()[groups]
                .iter()
                .flat_map(|group| &group.members)
                .any(|&id| schedule.index_check(id).is_some())
        };
        let count = schedule.groups().len();
        match overlap {
            Overlap::Stages => {
                let Some(late) = schedule.late_groups().filter(|_| !checks(schedule.prologue..count)) else {
                    return Ok(None);
                };
                let map = schedule.lay_out_in_stages(workspaces, &late)?;
                Ok(map.amax_words[1].is_none().then_some((map, OverlappedLoop::Stages(late))))
            }
            Overlap::Iterations => {
                let mut map = schedule.lay_out_pipelined(workspaces)?;
                let fits = schedule.initial_casts.is_empty() && map.amax_words[1].is_none();
                let copies = RotatingCopies::new(schedule, &map, ARENAS, checks(0..count)).filter(|_| fits);
                Ok(copies.map(|copies| {
                    map.arena_bytes = copies.arena_bytes();
                    (map, OverlappedLoop::Iterations(copies))
                }))
            }
        }
    }

    /// Returns the windows of this many iterations.
    fn windows(&self, schedule: &Schedule, count: usize) -> Vec<Vec<Part>> {
        let body = schedule.prologue..schedule.groups().len();
        match self {
            OverlappedLoop::Iterations(_) => {
                let part = |iteration| Part { iteration, work: body.clone().map(Work::Group).collect() };
                let starts = (0..count).step_by(WINDOW_STEPS);
                starts.map(|start| (start..count.min(start + WINDOW_STEPS)).map(part).collect()).collect()
            }
            OverlappedLoop::Stages(late) => {
                let part = |iteration: usize, is_late: bool| {
                    let groups = body.clone().filter(|&group| late[group] == is_late).map(Work::Group);
                    Part { iteration, work: groups.chain(is_late.then_some(Work::Copies)).collect() }
                };
                let window = |number: usize| -> Vec<Part> {
                    let late = number.checked_sub(1).map(|iteration| part(iteration, true));
                    late.into_iter().chain((number < count).then(|| part(number, false))).collect()
                };
                (0..=count).map(window).collect()
            }
        }
    }
}

/// What runs at once.
#[derive(Clone, Copy)]
enum Work {
    Group(usize),
    /// The copies of next values at the end of an iteration.
    Copies,
}

/// Work of an iteration, in order.
struct Part {
    iteration: usize,
    work: Vec<Work>,
}

/// A value: a node, and its address in its iteration.
type ValueKey = (usize, Place);

/// The values that some work reads and writes.
#[derive(Default)]
struct Uses {
    reads: HashSet<ValueKey>,
    writes: HashSet<ValueKey>,
}

impl Uses {
    /// True if the order of both matters.
    fn conflict(&self, other: &Uses) -> bool {
        !self.writes.is_disjoint(&other.writes)
            || !self.writes.is_disjoint(&other.reads)
            || !self.reads.is_disjoint(&other.writes)
    }
}

impl InterpreterRun {
    /// Runs steps that overlap; if an index is out of range, nothing of them remains, and they run again in order to
    /// find the first.
    pub(crate) fn run_overlapped(&mut self, looped: &OverlappedLoop, steps: Range<u32>, shows: bool) -> Result<()> {
        let before = self.memory.bytes.clone();
        let done = self.run_windows(looped, &steps, shows);
        self.turn = None;
        match done {
            Err(error) if matches!(error.kind, ErrorKind::IndexOutOfRange { .. }) => {
                self.memory.bytes = before;
                self.run_in_order(steps, shows)?;
                Err(internal_error("the index out of range in steps that run in order"))
            }
            done => done,
        }
    }

    fn run_windows(&mut self, looped: &OverlappedLoop, steps: &Range<u32>, shows: bool) -> Result<()> {
        let mut dice = Dice::new(u64::from(steps.end));
        for parts in looped.windows(&self.schedule, steps.len()) {
            match looped {
                OverlappedLoop::Stages(_) => self.run_window(&parts, None, (steps, shows), &mut dice)?,
                OverlappedLoop::Iterations(copies) => {
                    self.copy_inputs(copies, true);
                    self.run_window(&parts, Some(copies), (steps, shows), &mut dice)?;
                    self.copy_carries()?;
                    self.copy_inputs(copies, false);
                }
            }
        }
        Ok(())
    }

    /// Copies the inputs that a window works on copies of: there, or back.
    fn copy_inputs(&mut self, copies: &RotatingCopies, there: bool) {
        for (input, copy) in copies.copied() {
            let bytes = self.schedule.nodes[self.schedule.inputs[input]].bytes();
            let own = self.memory.start(Place { region: Region::Input(input), offset: 0 });
            let copy = self.memory.start(copy);
            let (from, to) = if there { (own, copy) } else { (copy, own) };
            self.memory.bytes.copy_within(from..from + bytes, to);
        }
    }

    /// Runs the parts of a window in a random order, the newest that can run with the highest probability.
    fn run_window(
        &mut self,
        parts: &[Part],
        copies: Option<&RotatingCopies>,
        (steps, shows): (&Range<u32>, bool),
        dice: &mut Dice,
    ) -> Result<()> {
        let turn = |part: usize| copies.map(|copies| (copies, (part, parts.len())));
        let identities = self.identities(copies.is_some());
        let used_by = |(number, part): (usize, &Part)| -> Vec<Uses> {
            part.work.iter().map(|&work| self.uses(work, &identities, turn(number))).collect()
        };
        let uses: Vec<Vec<Uses>> = parts.iter().enumerate().map(used_by).collect();
        let mut next = vec![0; parts.len()];
        loop {
            let is_done = |part: usize| next[part] == parts[part].work.len();
            let can_run = |&part: &usize| {
                let has_memory = (0..(part + 1).saturating_sub(ARENAS)).all(is_done);
                let own = uses[part].get(next[part]);
                let waits =
                    |own: &Uses| (0..part).any(|other| uses[other][next[other]..].iter().any(|of| of.conflict(own)));
                has_memory && own.is_some_and(|own| !waits(own))
            };
            let ready: Vec<usize> = (0..parts.len()).filter(can_run).collect();
            let Some(&newest) = ready.last() else { break };
            let part = if dice.below(2) == 0 { newest } else { ready[dice.below(ready.len())] };
            let step = steps.start + parts[part].iteration as u32;
            self.turn = copies.map(|_| (part, parts.len()));
            match parts[part].work[next[part]] {
                Work::Copies => self.copy_carries()?,
                Work::Group(group) => {
                    self.count(step);
                    self.run_group(group, shows && step + 1 == steps.end)?;
                }
            }
            next[part] += 1;
        }
        self.turn = None;
        let all_done = next.iter().zip(parts).all(|(next, part)| *next == part.work.len());
        if all_done { Ok(()) } else { Err(internal_error("an order of the groups of a window")) }
    }

    /// By carried input that is not updated in place: the node of its next value, if iterations hand it on.
    fn identities(&self, hands_on: bool) -> HashMap<usize, usize> {
        let handed_on = self.schedule.carries.iter().filter(|carry| hands_on && !carry.in_place);
        handed_on.filter_map(|carry| Some((carry.input, carry.next.at()?.0))).collect()
    }

    fn uses(
        &self,
        work: Work,
        identities: &HashMap<usize, usize>,
        turn: Option<(&RotatingCopies, (usize, usize))>,
    ) -> Uses {
        let key = |node: usize| -> Option<ValueKey> {
            let place = self.map.nodes[node]?;
            let place = turn.map_or(place, |(copies, turn)| copies.place(place, turn));
            Some((identities.get(&node).copied().unwrap_or(node), place))
        };
        let mut uses = Uses::default();
        match work {
            Work::Copies => {
                for carry in self.schedule.carries.iter().filter(|carry| !carry.in_place) {
                    uses.reads.extend(carry.next.at().and_then(|(node, _)| key(node)));
                    uses.writes.extend(key(carry.input));
                }
            }
            Work::Group(group) => {
                for &id in &self.schedule.groups()[group].members {
                    uses.reads.extend(self.schedule.nodes[id].reads().filter_map(|(read, _)| key(read)));
                    let others = self.written_over[id].iter().chain(self.wholes[id].iter()).copied();
                    uses.writes.extend(others.chain([id]).filter_map(key));
                }
            }
        }
        uses
    }
}

/// By node: the concatenations that it is computed in.
pub(crate) fn wholes(schedule: &Schedule, map: &MemoryMap) -> Vec<Vec<usize>> {
    let mut wholes = vec![vec![]; schedule.nodes.len()];
    for (whole, node) in schedule.nodes.iter().enumerate().filter(|(_, node)| matches!(node.kind, Kind::Concat(_))) {
        let Some(place) = map.nodes[whole] else { continue };
        let inside = |part: &Place| {
            part.region == place.region && (place.offset..place.offset + node.bytes()).contains(&part.offset)
        };
        for (part, _) in node.operands.iter().filter_map(Operand::at) {
            if map.nodes[part].as_ref().is_some_and(inside) {
                wholes[part].push(whole);
            }
        }
    }
    wholes
}
