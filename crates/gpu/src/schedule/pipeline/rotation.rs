//! Rotating copies: several iterations are in flight, each with separate memory.
//!
//! Carried values are often produced early in a step: HPO-SGLD has its new weights after half of a step, and then
//! computes the outer gradient at them. The next step can start then, and together they fill a GPU that neither fills
//! alone. So several steps are unrolled into one graph. They rotate through several arenas, and through one more buffer
//! per carried value, because earlier steps may still read old values. Work on the path to the next step has priority.
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
use bilevel_plan::{CostModel, MemoryMap, Node, Place, Region, Schedule, View};

/// The number of steps in flight: arenas, and sets of streams. With 4, AlexNet took 2 % longer (decision 021).
pub const STEPS_IN_FLIGHT: usize = 10;
/// The streams of a window: one set for work on the path to the next step, and one per step in flight for all other
/// work.
pub const PIPELINE_STREAMS: usize = (1 + STEPS_IN_FLIGHT) * STREAMS;
/// The maximum number of steps of a window: recording them takes time.
pub const MAX_PIPELINE_STEPS: usize = 16;
/// The maximum number of launches of a window.
const MAX_PIPELINE_LAUNCHES: usize = 4096;
/// The maximum arena of a step in bytes: every step in flight needs one, and a larger step fills the GPU by itself.
const MAX_ARENA_BYTES: usize = 384 << 20;
/// The maximum bytes of carried inputs that are updated in place, if a step can fail: a window works on copies.
const MAX_COPIED_BYTES: usize = 64 << 20;
/// Carried values must be known before this share of a step, by estimated costs.
const MAX_CARRY_SHARE: f64 = 0.8;

/// A carried input that is not updated in place.
struct Carried {
    /// The input.
    input: usize,
    /// The arena offset of its next value in a sequential step.
    next: usize,
    bytes: usize,
    /// The offset of its extra buffer outside the arenas.
    separate: usize,
}

impl Carried {
    /// Returns true if this arena offset is within its next value.
    fn holds(&self, offset: usize) -> bool {
        (self.next..self.next + self.bytes).contains(&offset)
    }
}

/// A carried input that is updated in place, and the offset of the pipeline's copy.
struct Copied {
    input: usize,
    copy: usize,
}

/// The copies of a pipeline, and its own steps.
pub(super) struct Rotation<C> {
    /// The steps of an iteration without the copies at its end: all of them, and those that carried values depend on,
    /// if fewer.
    pub full: Vec<Step<C>>,
    pub carry_only: Option<Vec<Step<C>>>,
    /// Before the first iteration, and after the last.
    pub first: Vec<Step<C>>,
    pub last: Vec<Step<C>>,
    carried: Vec<Carried>,
    copied: Vec<Copied>,
    /// The bytes from one arena to the next, which a sequential step needs.
    pub arena_stride: usize,
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
    pub fn fits_rotating(map: &MemoryMap) -> bool {
        map.arena_bytes <= MAX_ARENA_BYTES && map.amax_words[1].is_none()
    }

    /// Builds a pipeline of whole iterations. `None` if nothing is gained, or too much memory is needed.
    pub fn rotating(of: Rotatable<C>) -> Option<Self> {
        let Rotatable { dialect, costs, schedule, map, full, carry_only, copies, can_fail, fuses } = of;
        let arena_stride = map.arena_bytes.next_multiple_of(ALIGN);
        if !Self::fits_rotating(map) || full.len() > MAX_PIPELINE_LAUNCHES / 2 {
            return None;
        }
        let mut arena_bytes = STEPS_IN_FLIGHT * arena_stride;
        let mut take = |bytes: usize| {
            arena_bytes += bytes.next_multiple_of(ALIGN);
            arena_bytes - bytes.next_multiple_of(ALIGN)
        };
        let input_of = |node: usize| schedule.inputs.iter().position(|&input| input == node);
        let (mut carried, mut copied, mut copied_bytes) = (vec![], vec![], 0);
        let (mut first, mut last) = (vec![], copies);
        for carry in &schedule.carries {
            let (input, node) = (input_of(carry.input)?, &schedule.nodes[carry.input]);
            let bytes = node.bytes();
            if bytes == 0 {
                continue;
            }
            if carry.in_place {
                if can_fail {
                    copied_bytes += bytes;
                    let copy = take(bytes);
                    let places = [(Region::Input(input), 0), (Region::Arena, copy)];
                    let [own, other] = places.map(|(region, offset)| Place { region, offset });
                    first.push(copy_step_unless_failed(dialect, node, own, other));
                    last.push(copy_step_unless_failed(dialect, node, other, own));
                    copied.push(Copied { input, copy });
                }
                continue;
            }
            let (next, view) = carry.next.at()?;
            let made = &schedule.nodes[next];
            let place = map.nodes[next].filter(|place| place.region == Region::Arena)?;
            if !made.is_whole(view) || made.bytes() != bytes {
                return None;
            }
            // Two inputs may have the same next value.
            let known = carried.iter().find(|of: &&Carried| of.next == place.offset).map(|of| of.separate);
            carried.push(Carried { input, next: place.offset, bytes, separate: known.unwrap_or_else(|| take(bytes)) });
        }
        let wanted = carry_only.unwrap_or(full);
        if carried.is_empty() || copied_bytes > MAX_COPIED_BYTES || !is_early(&costs, wanted, &carried) {
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
            carried,
            copied,
            arena_stride,
        };
        let persistent_bytes = kept + MAX_PIPELINE_STEPS * DType::I32.size();
        let overlap = Overlap::Iterations(rotation);
        Some(SoftwarePipeline { overlap, costs, counter, arena_bytes, persistent_bytes, streams: STREAMS })
    }
}

impl<C: LibraryCall> Rotation<C> {
    /// Returns the number of carried values that rotate, and of those that windows copy.
    pub fn copies(&self) -> (usize, usize) {
        (self.carried.len(), self.copied.len())
    }

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
        let mut is_urgent: Vec<bool> = steps.iter().map(|step| carries_on(step, &self.carried)).collect();
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
        step.moved(|place| self.place(place, of, counter))
    }

    /// Maps an address of a sequential step to an iteration of a window. The last iteration uses the original addresses.
    fn place(&self, place: Place, (number, count): (usize, usize), counter: Option<(Place, Place)>) -> Place {
        let in_arena = |offset: usize| Place { region: Region::Arena, offset };
        // Buffers rotate such that the last iteration leaves its value at the sequential address.
        let carried = |carried: &Carried, value: usize| match (count - value) % (STEPS_IN_FLIGHT + 1) {
            turn if turn < STEPS_IN_FLIGHT => carried.next + turn * self.arena_stride,
            _ => carried.separate,
        };
        match place.region {
            Region::Arena => match self.carried.iter().find(|of| of.holds(place.offset)) {
                Some(of) => in_arena(carried(of, number + 1) + place.offset - of.next),
                None => in_arena(place.offset + arena_of((number, count)) * self.arena_stride),
            },
            Region::Input(input) => {
                let read = self.carried.iter().find(|of| of.input == input && number > 0).map(|of| carried(of, number));
                let copy = || self.copied.iter().find(|of| of.input == input).map(|of| of.copy);
                read.or_else(copy).map_or(place, |offset| in_arena(offset + place.offset))
            }
            _ => match counter {
                Some((counter, numbers)) if place == counter => {
                    Place { offset: numbers.offset + number * DType::I32.size(), ..numbers }
                }
                _ => place,
            },
        }
    }
}

/// Returns the arena of an iteration of a window; the last one has arena 0, as in a sequential step.
pub(super) fn arena_of((number, count): (usize, usize)) -> usize {
    (count - 1 - number) % STEPS_IN_FLIGHT
}

/// Returns true if a step writes a carried value.
fn carries_on<C>(step: &Step<C>, carried: &[Carried]) -> bool {
    step.writes.iter().any(|Span { place, .. }| match place.region {
        Region::Input(_) => true,
        Region::Arena => carried.iter().any(|of| of.holds(place.offset)),
        _ => false,
    })
}

/// Returns true if all carried values that are not updated in place are known early in a step.
fn is_early<C: LibraryCall>(costs: &CostModel, steps: &[Step<C>], carried: &[Carried]) -> bool {
    let done = finish_times(&dependencies(steps), &steps.iter().map(|step| cost(costs, step)).collect::<Vec<_>>());
    let in_arena = |step: &Step<C>| step.writes.iter().any(|span| span.place.region == Region::Arena);
    let is_next = |step: &Step<C>| in_arena(step) && carries_on(step, carried);
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
