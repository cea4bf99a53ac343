//! Software pipelining of the loop: a step starts before the previous one has finished.
//!
//!   θ₀ → step 0 → θ₁ → step 1 → θ₂ → …
//!
//! Carried values are often produced early in a step: HPO-SGLD has its new weights after half of a step, and then
//! computes the outer gradient at them. The next step can start then, and together they fill a GPU that neither fills
//! alone. So several steps are unrolled into one graph. They rotate through several arenas, and through one more buffer
//! per carried value, because earlier steps may still read old values. Work on the path to the next step has priority.
//!
//! A pipeline reads the carried inputs themselves at its start, and copies the final values there at its end, unless an
//! index was out of range. Then nothing has changed, and the steps are rerun sequentially to find the one that fails.

use crate::codegen::{Code, Elements, copy_unless_failed};
use crate::compile::step::{Span, Step, Work};
use crate::runtime::device::STREAMS;
use crate::schedule::horizontal_fusion::fuse_horizontally;
use crate::schedule::streams::{StreamSlot, cost, dependencies, finish_times, place_events, streams_of};
use crate::target::ALIGN;
use bilevel_graph::DType;
use bilevel_plan::{MemoryMap, Node, Place, Region, Schedule, View};

/// The number of steps in flight: arenas, and sets of streams. With 4, AlexNet took 2 % longer (decision 021).
const STEPS_IN_FLIGHT: usize = 10;
/// The streams of a pipeline: one set for work on the path to the next step, and one per step in flight for all else.
pub(crate) const PIPELINE_STREAMS: usize = (1 + STEPS_IN_FLIGHT) * STREAMS;
/// The maximum number of steps of a pipeline, and of its launches: recording them takes time.
const MAX_PIPELINE_STEPS: usize = 16;
const MAX_PIPELINE_LAUNCHES: usize = 4096;
/// The maximum arena of a step in bytes: every step in flight needs one, and a larger step fills the GPU by itself.
const MAX_ARENA_BYTES: usize = 384 << 20;
/// The maximum bytes of carried inputs that are updated in place, if a step can fail: a pipeline works on copies.
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
    /// True if this arena offset is within its next value.
    fn holds(&self, offset: usize) -> bool {
        (self.next..self.next + self.bytes).contains(&offset)
    }
}

/// A carried input that is updated in place, and the offset of the pipeline's copy.
struct Copied {
    input: usize,
    copy: usize,
}

/// A pipelined loop.
pub(crate) struct LoopPipeline {
    /// The steps of an iteration without the copies at its end: all of them, and those that carried values depend on,
    /// if fewer.
    pub full: Vec<Step>,
    pub carry_only: Option<Vec<Step>>,
    /// Before the first iteration, and after the last.
    pub first: Vec<Step>,
    pub last: Vec<Step>,
    carried: Vec<Carried>,
    copied: Vec<Copied>,
    /// The address of the step number, and of the numbers of all iterations.
    counter: Option<(Place, Place)>,
    /// The bytes from one arena to the next, which a sequential step needs, and the total.
    pub arena_stride: usize,
    pub arena_bytes: usize,
    /// Bytes of persistent memory, including the step numbers.
    pub persistent_bytes: usize,
}

/// The part of a pipeline that a step belongs to, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PipelinePart {
    First(usize),
    CarryOnly(usize),
    Full(usize),
    Last(usize),
}

/// A step of an unrolled pipeline, and its stream slot.
pub(crate) struct PipelinedStep {
    pub part: PipelinePart,
    pub step: Step,
    pub slot: StreamSlot,
}

impl LoopPipeline {
    /// True if pipelining may pay for a schedule.
    pub fn may_be_of(schedule: &Schedule) -> bool {
        schedule.initial_casts.is_empty() && schedule.carries.iter().any(|carry| !carry.in_place)
    }

    /// True if several steps can have separate arenas. Amax words would have to exist once per step.
    pub fn fits(map: &MemoryMap) -> bool {
        map.arena_bytes <= MAX_ARENA_BYTES && map.amax_words[1].is_none()
    }

    /// Builds a pipeline from the steps of an iteration, all and carry-only, and the copies at its end. `None` if
    /// nothing is gained, or too much memory is needed.
    pub fn new(
        schedule: &Schedule,
        map: &MemoryMap,
        (full, carry_only): (&[Step], Option<&[Step]>),
        copies: Vec<Step>,
        fails: bool,
    ) -> Option<Self> {
        let arena_stride = map.arena_bytes.next_multiple_of(ALIGN);
        if !Self::fits(map) || full.len() > MAX_PIPELINE_LAUNCHES / 2 {
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
                if fails {
                    copied_bytes += bytes;
                    let copy = take(bytes);
                    let places = [(Region::Input(input), 0), (Region::Arena, copy)];
                    let [own, other] = places.map(|(region, offset)| Place { region, offset });
                    first.push(copy_step_unless_failed(node, own, other));
                    last.push(copy_step_unless_failed(node, other, own));
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
        if carried.is_empty() || copied_bytes > MAX_COPIED_BYTES || !is_early(wanted, &carried) {
            return None;
        }
        let kept = map.persistent_bytes.next_multiple_of(ALIGN);
        let numbers = Place { region: Region::Persistent, offset: kept };
        let counter = map.counter.map(|counter| (counter, numbers));
        first.extend(counter.zip(full.first()).map(|((from, to), step)| numbered(from, to, step)));
        Some(LoopPipeline {
            full: fuse_horizontally(full.to_vec()),
            carry_only: carry_only.map(|carry_only| fuse_horizontally(carry_only.to_vec())),
            first: fuse_horizontally(first),
            last: fuse_horizontally(last),
            carried,
            copied,
            counter,
            arena_stride,
            arena_bytes,
            persistent_bytes: kept + MAX_PIPELINE_STEPS * DType::I32.size(),
        })
    }

    /// Returns all steps, in the order in which their kernels are prepared.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.full.iter().chain(self.carry_only.iter().flatten()).chain(&self.first).chain(&self.last)
    }

    /// Returns how many of the remaining steps the next pipeline takes; 1 if pipelining does not pay.
    pub fn length(&self, steps: usize) -> usize {
        let most = (MAX_PIPELINE_LAUNCHES / self.full.len().max(1)).min(MAX_PIPELINE_STEPS);
        // Pipelines of similar length rather than a short one at the end.
        steps.div_ceil(steps.div_ceil(most))
    }

    /// Unrolls this many iterations; `shows` if the outputs of the last one are needed.
    pub fn unrolled(&self, count: usize, shows: bool) -> Vec<PipelinedStep> {
        let carry_only = self.carry_only.as_ref().unwrap_or(&self.full);
        let (on_carry_only, on_full) = (self.streams(carry_only), self.streams(&self.full));
        let (mut parts, mut steps, mut streams): (Vec<PipelinePart>, Vec<Step>, Vec<usize>) = (vec![], vec![], vec![]);
        let mut put = |part: PipelinePart, step: Step, stream: usize| {
            parts.push(part);
            steps.push(step);
            streams.push(stream);
        };
        self.first.iter().enumerate().for_each(|(n, step)| put(PipelinePart::First(n), step.clone(), 0));
        for number in 0..count {
            let all = shows && number == count - 1 || self.carry_only.is_none();
            let (own, on) = if all { (&self.full, &on_full) } else { (carry_only, &on_carry_only) };
            for (n, (step, &(stream, is_urgent))) in own.iter().zip(on).enumerate() {
                let part = if all { PipelinePart::Full(n) } else { PipelinePart::CarryOnly(n) };
                let set = if is_urgent { 0 } else { 1 + arena_of(number, count) };
                put(part, step.moved(|place| self.place(place, number, count)), STREAMS * set + stream);
            }
        }
        self.last.iter().enumerate().for_each(|(n, step)| put(PipelinePart::Last(n), step.clone(), 0));
        let slots = place_events(&dependencies(&steps), &streams);
        let pipelined_steps = parts.into_iter().zip(steps).zip(slots);
        pipelined_steps.map(|((part, step), slot)| PipelinedStep { part, step, slot }).collect()
    }

    /// By step: its stream within its set, and whether the next iteration depends on it.
    fn streams(&self, steps: &[Step]) -> Vec<(usize, bool)> {
        let dependencies = dependencies(steps);
        let done = finish_times(&dependencies, &steps.iter().map(cost).collect::<Vec<_>>());
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
        streams_of(steps, &dependencies, STREAMS).into_iter().zip(is_urgent).collect()
    }

    /// Maps an address of a sequential step to this iteration of the pipeline. The last iteration uses the original
    /// addresses.
    fn place(&self, place: Place, number: usize, count: usize) -> Place {
        let in_arena = |offset: usize| Place { region: Region::Arena, offset };
        // Buffers rotate such that the last iteration leaves its value at the sequential address.
        let carried = |carried: &Carried, value: usize| match (count - value) % (STEPS_IN_FLIGHT + 1) {
            turn if turn < STEPS_IN_FLIGHT => carried.next + turn * self.arena_stride,
            _ => carried.separate,
        };
        match place.region {
            Region::Arena => match self.carried.iter().find(|of| of.holds(place.offset)) {
                Some(of) => in_arena(carried(of, number + 1) + place.offset - of.next),
                None => in_arena(place.offset + arena_of(number, count) * self.arena_stride),
            },
            Region::Input(input) => {
                let read = self.carried.iter().find(|of| of.input == input && number > 0).map(|of| carried(of, number));
                let copy = || self.copied.iter().find(|of| of.input == input).map(|of| of.copy);
                read.or_else(copy).map_or(place, |offset| in_arena(offset + place.offset))
            }
            _ => match self.counter {
                Some((counter, numbers)) if place == counter => {
                    Place { offset: numbers.offset + number * DType::I32.size(), ..numbers }
                }
                _ => place,
            },
        }
    }
}

/// Returns the arena of an iteration; the last one has arena 0, as in a sequential step.
fn arena_of(number: usize, count: usize) -> usize {
    (count - 1 - number) % STEPS_IN_FLIGHT
}

/// True if a step writes a carried value.
fn carries_on(step: &Step, carried: &[Carried]) -> bool {
    step.writes.iter().any(|Span { place, .. }| match place.region {
        Region::Input(_) => true,
        Region::Arena => carried.iter().any(|of| of.holds(place.offset)),
        _ => false,
    })
}

/// True if all carried values that are not updated in place are known early in a step.
fn is_early(steps: &[Step], carried: &[Carried]) -> bool {
    let done = finish_times(&dependencies(steps), &steps.iter().map(cost).collect::<Vec<_>>());
    let in_arena = |step: &Step| step.writes.iter().any(|span| span.place.region == Region::Arena);
    let is_next = |step: &Step| in_arena(step) && carries_on(step, carried);
    let end = |of: &dyn Fn(&Step) -> bool| {
        let ends = steps.iter().zip(&done).filter(|(step, _)| of(step)).map(|(_, (end, _))| *end);
        ends.fold(0.0, f64::max)
    };
    end(&is_next) < MAX_CARRY_SHARE * end(&|_| true)
}

/// Copies a carried input, unless a check has failed.
fn copy_step_unless_failed(node: &Node, from: Place, to: Place) -> Step {
    let view = View::contiguous(&[node.count()]);
    let work = Work::Kernel(copy_unless_failed(Elements { place: from, view: &view }, node.dtype, to));
    let span = |place| vec![Span { place, bytes: node.bytes() }];
    Step { work, reads: span(from), writes: span(to), location: node.location }
}

/// Writes the numbers of all iterations, starting from the first.
fn numbered(from: Place, to: Place, like: &Step) -> Step {
    let mut code = Code::default();
    code.each(MAX_PIPELINE_STEPS);
    let (counter, numbers) = (code.pointer(from, DType::I32, 0), code.pointer(to, DType::I32, 0));
    code.line(format!("{numbers}[e] = {counter}[0] + (int)e;"));
    let span = |place, count: usize| Span { place, bytes: count * DType::I32.size() };
    let work = Work::Kernel(code.launch_each(MAX_PIPELINE_STEPS));
    Step { work, reads: vec![span(from, 1)], writes: vec![span(to, MAX_PIPELINE_STEPS)], location: like.location }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::plan::{Plan, plan};
    use crate::schedule::oracle::{SymbolicMemory, any_order};
    use bilevel_graph::{Graph, Program, Tensor, gradient_or_zeros, mixed_vector};
    use std::collections::HashMap;

    /// HPO-SGLD on a small network: new weights, the outer gradient at them, and its product with the Jacobian of the
    /// old ones.
    fn program() -> Program {
        let g = Graph::new();
        let [w, v] = [("w", [8, 16]), ("v", [16, 4])].map(|(name, shape)| g.input(name, shape, DType::F32));
        let (l, h, data) =
            (g.input("l", [4], DType::F32), g.input("h", [4], DType::F32), g.input("x", [9, 8], DType::F32));
        let row = |shift: f64| data.take((g.step() + shift).broadcast([], [3]));
        let net = |w: Tensor, v: Tensor, x: Tensor| x.matmul(w).tanh().matmul(v);
        let inner = (net(w, v, row(0.0)).square() * l.exp().broadcast([1], [3, 4])).sum_all();
        let slope = gradient_or_zeros(inner, &[w, v]).unwrap();
        let (new_w, new_v) = (w - slope[0] * 0.1, v - slope[1] * 0.1);
        let outer = (net(new_w, new_v, row(1.0)) - 1.0).square().sum_all();
        let f = gradient_or_zeros(outer, &[new_w, new_v]).unwrap();
        let mixed = mixed_vector(inner, &[w, v], &f, &[l]).unwrap()[0].unwrap();
        // An empty carried input must not be copied.
        let none = g.input("none", [0], DType::F32);
        let builder = Program::builder(&g).carry(w, new_w).carry(v, new_v).carry(h, h - mixed * 0.1).carry(none, none);
        builder.output("outer", outer).build().unwrap()
    }

    /// Returns the inputs and outputs after pipelines of these lengths, with the steps in a random valid order.
    fn left_by(plan: &Plan, lengths: &[usize], seed: u64) -> HashMap<Region, Vec<u64>> {
        let pipeline = plan.pipeline.as_ref().expect("new weights are known early");
        let mut memory = SymbolicMemory::new(STEPS_IN_FLIGHT * pipeline.arena_stride);
        plan.prologue.iter().for_each(|step| memory.run(step));
        let (_, numbers) = pipeline.counter.expect("rows are chosen by the number of the step");
        for (chain, &count) in lengths.iter().enumerate() {
            let before: usize = lengths[..chain].iter().sum();
            let pipelined_steps = pipeline.unrolled(count, chain + 1 == lengths.len());
            assert!(pipelined_steps.iter().all(|pipelined| pipelined.slot.stream < PIPELINE_STREAMS));
            let slots: Vec<&StreamSlot> = pipelined_steps.iter().map(|pipelined| &pipelined.slot).collect();
            for number in any_order(&slots, seed) {
                match pipelined_steps[number].part {
                    PipelinePart::First(_) | PipelinePart::Last(_) => memory.copy(&pipelined_steps[number].step),
                    _ => memory.run(&pipelined_steps[number].step),
                }
                if matches!(pipelined_steps[number].part, PipelinePart::First(_)) {
                    for number in 0..MAX_PIPELINE_STEPS {
                        let place = Place { offset: numbers.offset + 4 * number, ..numbers };
                        memory.bytes(&Span { place, bytes: 4 }).fill((before + number) as u64);
                    }
                }
            }
        }
        memory.bound()
    }

    #[test]
    fn a_pipeline_computes_the_same_as_sequential_steps_in_any_stream_order() {
        let plan = plan(&program(), None, true).unwrap();
        let pipeline = plan.pipeline.as_ref().unwrap();
        // The first weights are not needed after the outer gradient, and are updated in place like the sum.
        assert_eq!((pipeline.carried.len(), pipeline.copied.len()), (1, 2));
        for count in 2..=7 {
            let expected = left_by(&plan, &vec![1; count], 0);
            assert!((0..40).all(|seed| left_by(&plan, &[count], seed) == expected), "{count} steps");
            assert!(left_by(&plan, &[2, count], 1) == left_by(&plan, &[count + 2], 2), "{count} steps");
        }
    }

    #[test]
    fn a_step_begins_before_the_one_before_it_is_over() {
        let plan = plan(&program(), None, true).unwrap();
        let pipelined_steps = plan.pipeline.as_ref().unwrap().unrolled(3, false);
        let steps: Vec<Step> = pipelined_steps.iter().map(|pipelined| pipelined.step.clone()).collect();
        let end = |steps: &[Step]| {
            let done = finish_times(&dependencies(steps), &steps.iter().map(cost).collect::<Vec<_>>());
            done.into_iter().map(|(end, _)| end).fold(0.0, f64::max)
        };
        let (all, alone) = (end(&steps), end(plan.carry_only.as_ref().unwrap_or(&plan.body)));
        assert!(all < 2.6 * alone, "{all} of {alone}");
    }

    #[test]
    fn loops_with_late_or_in_place_carries_are_not_pipelined() {
        let g = Graph::new();
        let x = g.input("x", [64, 64], DType::F32);
        let planned = |next: Tensor| plan(&Program::builder(&g).carry(x, next).build().unwrap(), None, true).unwrap();
        assert!(planned(x.sin()).pipeline.is_none(), "in place");
        assert!(planned(x.matmul(x).matmul(x)).pipeline.is_none(), "the end of the step");
    }

    #[test]
    fn pipelines_have_about_the_same_length() {
        let plan = plan(&program(), None, true).unwrap();
        let pipeline = plan.pipeline.as_ref().unwrap();
        let lengths = |mut steps: usize| {
            let mut found = vec![];
            while steps > 0 {
                found.push(pipeline.length(steps));
                steps -= found[found.len() - 1];
            }
            found
        };
        assert_eq!((lengths(1), lengths(16), lengths(17)), (vec![1], vec![16], vec![9, 8]));
        assert_eq!(lengths(100), [15, 15, 14, 14, 14, 14, 14]);
    }
}
