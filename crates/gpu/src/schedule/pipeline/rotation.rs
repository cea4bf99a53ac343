//! Rotating copies: several iterations are in flight, each with separate memory.
//!
//! Carried values are often produced early in a step: HPO-SGLD has its new weights after half of a step, and then
//! computes the outer gradient at them. The next step can start then, and together they fill a GPU that neither fills
//! alone. So several steps are unrolled into one graph. They rotate through several arenas, and through one more buffer
//! per carried value, because earlier steps may still read old values (`RotatingCopies` has the addresses). Work on the
//! path to the next step has priority.
//!
//! A window reads the carried inputs themselves at its start, and copies the final values there at its end, unless an
//! index was out of range. Then nothing has changed, and the steps are rerun sequentially to find the one that fails.

use crate::codegen::renderer::Dialect;
use crate::codegen::{Code, Elements, copy_unless_failed};
use crate::compile::step::{LibraryCall, Span, Step, Work};
use crate::compile::workspace::ALIGN;
use crate::schedule::horizontal_fusion::fuse_horizontally;
use crate::schedule::pipeline::{Overlap, SoftwarePipeline};
use crate::schedule::streams::{STREAMS, cost, dependencies, finish_times};
use bilevel_graph::DType;
use bilevel_plan::{CostModel, MemoryMap, Node, Place, Region, RotatingCopies, Schedule, View};

/// The number of steps in flight: arenas, and sets of streams. With 4, AlexNet took 2 % longer (decision 021).
pub const STEPS_IN_FLIGHT: usize = 10;
/// The streams of a window: one set for work on the path to the next step, and one per step in flight for all other
/// work.
pub const PIPELINE_STREAMS: usize = (1 + STEPS_IN_FLIGHT) * STREAMS;
/// The maximum number of steps of a window: recording them takes time.
pub const MAX_PIPELINE_STEPS: usize = 16;
/// The maximum number of launches of a window.
const MAX_PIPELINE_LAUNCHES: usize = 4096;
/// Carried values must be known before this share of a step, by estimated costs.
const MAX_CARRY_SHARE: f64 = 0.8;

/// The copies of a pipeline, and its own steps.
pub(super) struct Rotation<C> {
    /// The steps of an iteration without the copies at its end: all of them, and those that carried values depend on,
    /// if fewer.
    pub full: Vec<Step<C>>,
    pub carry_only: Option<Vec<Step<C>>>,
    /// Before the first iteration, and after the last.
    pub first: Vec<Step<C>>,
    pub last: Vec<Step<C>>,
    /// The addresses of every iteration.
    pub memory: RotatingCopies,
}

/// A loop that may be pipelined by rotation.
pub struct Rotatable<'a, C> {
    /// The language of kernels.
    pub dialect: Dialect,
    /// The costs of the machine.
    pub costs: CostModel,
    /// The program, and the addresses of its values.
    pub schedule: &'a Schedule,
    /// As above.
    pub map: &'a MemoryMap,
    /// The steps of an iteration: all, and carry-only.
    pub full: &'a [Step<C>],
    /// As above.
    pub carry_only: Option<&'a [Step<C>]>,
    /// The copies at the end of an iteration.
    pub copies: Vec<Step<C>>,
    /// Whether a step can fail.
    pub can_fail: bool,
    /// Whether equal kernels become one launch.
    pub fuses: bool,
}

impl<C: LibraryCall> SoftwarePipeline<C> {
    /// Returns true if several iterations in flight may pay for a schedule.
    pub fn may_rotate(schedule: &Schedule) -> bool {
        schedule.initial_casts.is_empty() && schedule.carries.iter().any(|carry| !carry.in_place)
    }

    /// Returns true if several steps can have separate arenas. Amax words would have to exist once per step.
    pub fn fits_rotating(costs: &CostModel, map: &MemoryMap) -> bool {
        map.arena_bytes <= costs.max_rotating_bytes && map.amax_words[1].is_none()
    }

    /// Builds a pipeline of whole iterations. `None` if nothing is gained, or too much memory is needed.
    pub fn rotating(of: Rotatable<C>) -> Option<Self> {
        let Rotatable { dialect, costs, schedule, map, full, carry_only, copies, can_fail, fuses } = of;
        if !Self::fits_rotating(&costs, map) || full.len() > MAX_PIPELINE_LAUNCHES / 2 {
            return None;
        }
        let memory = RotatingCopies::new(schedule, map, STEPS_IN_FLIGHT, can_fail)?;
        let (mut first, mut last, mut copied_bytes) = (vec![], copies, 0);
        for (input, copy) in memory.copied() {
            let (node, own) =
                (&schedule.nodes[schedule.inputs[input]], Place { region: Region::Input(input), offset: 0 });
            copied_bytes += node.bytes();
            first.push(copy_step_unless_failed(dialect, node, own, copy));
            last.push(copy_step_unless_failed(dialect, node, copy, own));
        }
        if copied_bytes > costs.max_copied_bytes || !is_early(&costs, carry_only.unwrap_or(full), &memory) {
            return None;
        }
        let kept = map.persistent_bytes.next_multiple_of(ALIGN);
        let numbers = Place { region: Region::Persistent, offset: kept };
        let counter = map.counter.map(|counter| (counter, numbers));
        first.extend(counter.zip(full.first()).map(|((from, to), step)| numbered(dialect, from, to, step)));
        let fused = |steps: Vec<Step<C>>| if fuses { fuse_horizontally(&costs, steps) } else { steps };
        let rotation = Rotation {
            full: fused(full.to_vec()),
            carry_only: carry_only.map(|carry_only| fused(carry_only.to_vec())),
            first: fused(first),
            last: fused(last),
            memory,
        };
        let persistent_bytes = kept + MAX_PIPELINE_STEPS * DType::I32.size();
        let arena_bytes = rotation.memory.arena_bytes();
        let overlap = Overlap::Iterations(rotation);
        Some(SoftwarePipeline { overlap, costs, counter, arena_bytes, persistent_bytes, streams: STREAMS })
    }
}

impl<C: LibraryCall> Rotation<C> {
    /// Returns how many of the remaining iterations the next window takes; 1 if pipelining does not pay.
    pub fn length(&self, iterations: usize) -> usize {
        let most = (MAX_PIPELINE_LAUNCHES / self.full.len().max(1)).min(MAX_PIPELINE_STEPS);
        // Windows of similar length rather than a short one at the end.
        iterations.div_ceil(iterations.div_ceil(most))
    }

    /// By step: whether the next iteration depends on it.
    pub fn urgent(&self, costs: &CostModel, steps: &[Step<C>], dependencies: &[Vec<usize>]) -> Vec<bool> {
        let done = finish_times(dependencies, &steps.iter().map(|step| cost(costs, step)).collect::<Vec<_>>());
        let end = done.iter().map(|(end, _)| *end).fold(0.0, f64::max);
        let mut is_urgent: Vec<bool> = steps.iter().map(|step| carries_on(step, &self.memory)).collect();
        // Accumulated values are known only at the end, and no iteration starts with them.
        is_urgent.iter_mut().zip(&done).for_each(|(is_urgent, (at, _))| *is_urgent &= *at < MAX_CARRY_SHARE * end);
        for step in (0..steps.len()).rev().filter(|&step| is_urgent[step]).collect::<Vec<_>>() {
            let mut open = vec![step];
            while let Some(step) = open.pop() {
                open.extend(
                    dependencies[step]
                        .iter()
                        .filter(|&&dependency| !std::mem::replace(&mut is_urgent[dependency], true)),
                );
            }
        }
        is_urgent
    }

    /// Returns a step with the addresses of an iteration of a window.
    pub fn step(&self, step: &Step<C>, of: (usize, usize), counter: Option<(Place, Place)>) -> Step<C> {
        step.moved(|place| match counter {
            Some((counter, numbers)) if place == counter => {
                Place { offset: numbers.offset + of.0 * DType::I32.size(), ..numbers }
            }
            _ => self.memory.place(place, of),
        })
    }
}

/// Returns true if a step writes a carried value.
fn carries_on<C>(step: &Step<C>, memory: &RotatingCopies) -> bool {
    step.writes.iter().any(|Span { place, .. }| matches!(place.region, Region::Input(_)) || memory.is_carried(*place))
}

/// Returns true if all carried values that are not updated in place are known early in a step.
fn is_early<C: LibraryCall>(costs: &CostModel, steps: &[Step<C>], memory: &RotatingCopies) -> bool {
    let done = finish_times(&dependencies(steps), &steps.iter().map(|step| cost(costs, step)).collect::<Vec<_>>());
    let in_arena = |step: &Step<C>| step.writes.iter().any(|span| span.place.region == Region::Arena);
    let is_next = |step: &Step<C>| in_arena(step) && carries_on(step, memory);
    let end = |of: &dyn Fn(&Step<C>) -> bool| {
        let ends = steps.iter().zip(&done).filter(|(step, _)| of(step)).map(|(_, (end, _))| *end);
        ends.fold(0.0, f64::max)
    };
    end(&is_next) < MAX_CARRY_SHARE * end(&|_| true)
}

/// Copies a carried input, unless a check has failed.
fn copy_step_unless_failed<C>(dialect: Dialect, node: &Node, from: Place, to: Place) -> Step<C> {
    let view = View::contiguous(&[node.count()]);
    let work = Work::Kernel(copy_unless_failed(dialect, Elements { place: from, view: &view }, node.dtype, to));
    let span = |place| vec![Span { place, bytes: node.bytes() }];
    Step { work, reads: span(from), writes: span(to), location: node.location }
}

/// Writes the numbers of all iterations, starting from the first.
fn numbered<C>(dialect: Dialect, from: Place, to: Place, like: &Step<C>) -> Step<C> {
    let mut code = Code::new(dialect);
    code.each(MAX_PIPELINE_STEPS);
    let (counter, numbers) = (code.input(from, DType::I32, 0), code.output(to, DType::I32, 0));
    code.line(format!("{numbers}[e] = {counter}[0] + (int)e;"));
    let span = |place, count: usize| Span { place, bytes: count * DType::I32.size() };
    let work = Work::Kernel(code.launch_each(MAX_PIPELINE_STEPS));
    Step { work, reads: vec![span(from, 1)], writes: vec![span(to, MAX_PIPELINE_STEPS)], location: like.location }
}
