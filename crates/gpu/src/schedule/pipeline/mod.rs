//! Software pipelining of a loop: parts of several iterations run at the same time, if one alone does not fill a GPU.
//!
//! An iteration has one or two stages, and its values have one or several copies.
//!
//! One stage, several copies (`rotation.rs`): carried values are known early, so whole iterations overlap.
//!
//!   θ₀ → step 0 → θ₁ → step 1 → θ₂ → …
//!
//! Two stages, one copy: no other carried value depends on the late stage, so it overlaps with the next early stage.
//! Each stage has separate memory for its own values; dependencies through shared values are tracked.
//!
//!   early 0 → early 1 → early 2 → …
//!        ↘ late 0 ↘ late 1 ↘ …
//!
//! A loop runs as a sequence of windows, each a graph that contains some stages of some iterations.

mod rotation;

use crate::compile::step::{LibraryCall, Step};
use crate::compile::workspace::ALIGN;
use crate::schedule::pipeline::rotation::Rotation;
use crate::schedule::streams::{
    STREAMS, StreamSlot, cost, dependencies, dependencies_in_sets, place_events, streams_of,
};
use bilevel_graph::DType;
use bilevel_plan::{CostModel, MemoryMap, Place, Region};
use std::collections::HashMap;

pub use crate::schedule::pipeline::rotation::{MAX_PIPELINE_STEPS, PIPELINE_STREAMS, Rotatable, STEPS_IN_FLIGHT};

/// The minimum share of each of two stages in the time of a step, by estimated costs, for which the extra memory pays.
const MIN_STAGE_SHARE: f64 = 0.25;

/// A loop whose iterations overlap.
pub struct SoftwarePipeline<C> {
    overlap: Overlap<C>,
    costs: CostModel,
    /// The address of the step number; and those of the pipeline's own numbers: of all iterations of a window, or of
    /// the late stage.
    pub counter: Option<(Place, Place)>,
    /// Bytes of the arena, and of persistent memory with the pipeline's own numbers.
    pub arena_bytes: usize,
    /// As above.
    pub persistent_bytes: usize,
    /// The number of streams for the steps of a stage.
    streams: usize,
}

/// The overlapping parts.
enum Overlap<C> {
    /// Whole iterations, on rotating copies of their values.
    Iterations(Rotation<C>),
    /// The late stage with the next early stage: the number of steps in the early stage, of the body and of the
    /// carry-only body.
    Stages([usize; 2]),
}

/// The stages that one graph contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stages {
    /// All stages of this many iterations.
    All(usize),
    /// The early stage of the first iteration.
    First,
    /// The late stage of an iteration, and the early stage of the next.
    Overlapped,
    /// The late stage of the last iteration.
    Last,
}

/// A graph of a pipelined loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its stages.
    pub stages: Stages,
    /// Whether the outputs of its newest iteration are needed.
    pub shows: bool,
}

/// The part of a pipeline that a step belongs to, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelinePart {
    /// The steps before the first iteration.
    First(usize),
    /// The steps of an iteration that carried values depend on.
    CarryOnly(usize),
    /// All steps of an iteration.
    Full(usize),
    /// The steps after the last iteration.
    Last(usize),
}

/// A step of a window, and its stream slot.
pub struct PipelinedStep<C> {
    /// The part that it belongs to.
    pub part: PipelinePart,
    /// The step, with the addresses of its iteration.
    pub step: Step<C>,
    /// Its stream and events.
    pub slot: StreamSlot,
}

/// A stage of an iteration of a window, with all its steps or only those that carried values depend on.
#[derive(Clone, Copy)]
struct StageOf {
    iteration: usize,
    late: bool,
    all: bool,
}

impl<C: LibraryCall> SoftwarePipeline<C> {
    /// Returns true if two stages need little more memory than sequential steps, and no other persistent value is
    /// written by both.
    pub fn fits_in_stages(costs: &CostModel, sequential: &MemoryMap, in_stages: &MemoryMap) -> bool {
        let bytes = |map: &MemoryMap| map.bound_bytes + map.persistent_bytes + map.arena_bytes;
        let more = bytes(in_stages).saturating_sub(bytes(sequential));
        in_stages.amax_words[1].is_none() && more <= (bytes(sequential) / 2).max(costs.max_stage_bytes)
    }

    /// Builds the pipeline of the stages of a step; `None` if one of them is short.
    pub fn of_stages(costs: CostModel, map: &MemoryMap, stages: &[Vec<Step<C>>; 2]) -> Option<Self> {
        let [early, late] = stages.each_ref().map(|stage| stage.iter().map(|step| cost(&costs, step)).sum::<f64>());
        if early.min(late) < MIN_STAGE_SHARE * (early + late) {
            return None;
        }
        let kept = map.persistent_bytes.next_multiple_of(ALIGN);
        let counter = map.counter.map(|counter| (counter, Place { region: Region::Persistent, offset: kept }));
        let persistent_bytes = if counter.is_some() { kept + DType::I32.size() } else { map.persistent_bytes };
        let overlap = Overlap::Stages([0; 2]);
        let arena_bytes = map.arena_bytes;
        Some(SoftwarePipeline { overlap, costs, counter, arena_bytes, persistent_bytes, streams: STREAMS })
    }

    /// Sets the number of steps in the early stage, of the body and of the carry-only body, if there are two stages.
    pub fn split_at(self, full: usize, carry_only: Option<usize>) -> Self {
        let overlap = match self.overlap {
            Overlap::Stages(_) => Overlap::Stages([full, carry_only.unwrap_or(full)]),
            rotation => rotation,
        };
        SoftwarePipeline { overlap, ..self }
    }

    /// The same with at most this many streams for the steps of a stage.
    pub fn on_streams(self, streams: usize) -> Self {
        SoftwarePipeline { streams: streams.min(STREAMS), ..self }
    }

    fn rotation(&self) -> Option<&Rotation<C>> {
        match &self.overlap {
            Overlap::Iterations(rotation) => Some(rotation),
            Overlap::Stages(_) => None,
        }
    }

    /// Returns the additional bytes that iterations in flight need.
    pub fn extra_bytes(&self) -> usize {
        self.rotation().map_or(0, |rotation| self.arena_bytes - rotation.memory.arena_stride())
    }

    /// Returns the number of carried values that rotate, and of those that windows work on copies of.
    pub fn copies(&self) -> (usize, usize) {
        self.rotation().map_or((0, 0), |rotation| rotation.memory.counts())
    }

    /// Returns true if a failed check leaves the carried inputs of a window as they were.
    pub fn undoes_failed_windows(&self) -> bool {
        self.rotation().is_some()
    }

    /// Returns the address of the step number for the late stage.
    pub fn late_counter(&self) -> Option<Place> {
        self.counter.filter(|_| self.rotation().is_none()).map(|(_, late)| late)
    }

    /// Redirects a step of the late stage to its own step number.
    pub fn with_late_counter(&self, step: &Step<C>) -> Step<C> {
        match self.counter {
            Some((counter, late)) => step.moved(|place| if place == counter { late } else { place }),
            None => step.clone(),
        }
    }

    /// Returns the pipeline's own steps by part, if it does not consist of those of the plan: first, carry-only, full
    /// and last.
    pub fn own_steps(&self) -> Option<[&[Step<C>]; 4]> {
        let rotation = self.rotation()?;
        Some([&rotation.first, rotation.carry_only.as_deref().unwrap_or(&[]), &rotation.full, &rotation.last])
    }

    /// Returns how many of the remaining iterations run next; 1 if pipelining does not pay.
    pub fn length(&self, iterations: usize) -> usize {
        self.rotation().map_or(iterations, |rotation| rotation.length(iterations))
    }

    /// Returns the windows of this many iterations; `None` if they should run one after the other.
    pub fn windows(&self, count: usize, shows: bool) -> Option<Vec<Window>> {
        let window = |stages: Stages, shows: bool| Window { stages, shows };
        if self.rotation().is_some() {
            return (count > 1).then(|| vec![window(Stages::All(count), shows)]);
        }
        let early = |number: usize| if number == 0 { Stages::First } else { Stages::Overlapped };
        let first = (0..count).map(|number| window(early(number), shows && number + 1 == count));
        Some(first.chain((count > 0).then_some(window(Stages::Last, shows))).collect())
    }

    /// Returns the steps of a window in an executable order, given those of the plan, all and carry-only.
    pub fn unrolled(&self, window: Window, plan: (&[Step<C>], Option<&[Step<C>]>)) -> Vec<PipelinedStep<C>> {
        let (full, carry_only) = self.rotation().map_or(plan, |own| (&own.full, own.carry_only.as_deref()));
        let stages = window.parts();
        let (mut parts, mut steps, mut streams, mut sets) = (vec![], vec![], vec![], vec![]);
        let mut put = |part: PipelinePart, step: Step<C>, stream: usize, set: usize| {
            parts.push(part);
            steps.push(step);
            streams.push(stream);
            sets.push(set);
        };
        let around = |steps: &[Step<C>], part: fn(usize) -> PipelinePart| -> Vec<(PipelinePart, Step<C>)> {
            steps.iter().enumerate().map(|(number, step)| (part(number), step.clone())).collect()
        };
        let [first, last] = self.rotation().map_or([&[][..]; 2], |own| [&own.first, &own.last]);
        around(first, PipelinePart::First).into_iter().for_each(|(part, step)| put(part, step, 0, 0));
        // By stage and whether all its steps run: their streams.
        let mut known: HashMap<(bool, bool), Vec<(usize, bool)>> = HashMap::new();
        for (number, of) in stages.iter().enumerate() {
            let all = of.all || carry_only.is_none();
            let own = if all { full } else { carry_only.unwrap_or(full) };
            let range = self.range(of.late, all, own.len());
            let on = known.entry((of.late, all)).or_insert_with(|| self.streams(&own[range.clone()]));
            for (at, &(stream, urgent)) in range.zip(&*on) {
                let part = if all { PipelinePart::Full(at) } else { PipelinePart::CarryOnly(at) };
                match self.rotation() {
                    Some(rotation) => {
                        let of = (of.iteration, stages.len());
                        let set = if urgent { 0 } else { 1 + rotation.memory.arena_of(of) };
                        put(part, rotation.step(&own[at], of, self.counter), STREAMS * set + stream, 0);
                    }
                    // The first set of streams has priority; of two stages neither should.
                    None => {
                        let set = if stages.len() == 1 { 0 } else { 1 + number };
                        put(part, own[at].clone(), STREAMS * set + stream, number);
                    }
                }
            }
        }
        around(last, PipelinePart::Last).into_iter().for_each(|(part, step)| put(part, step, 0, 0));
        let slots = place_events(&dependencies_in_sets(&steps, &sets), &streams);
        let steps = parts.into_iter().zip(steps).zip(slots);
        steps.map(|((part, step), slot)| PipelinedStep { part, step, slot }).collect()
    }

    /// The steps of a stage, as indices into those of an iteration.
    fn range(&self, late: bool, all: bool, count: usize) -> std::ops::Range<usize> {
        match (&self.overlap, late) {
            (Overlap::Iterations(_), _) => 0..count,
            (Overlap::Stages(early), false) => 0..early[usize::from(!all)],
            (Overlap::Stages(early), true) => early[usize::from(!all)]..count,
        }
    }

    /// By step of a stage: its stream within its set, and whether the next iteration waits for it.
    fn streams(&self, steps: &[Step<C>]) -> Vec<(usize, bool)> {
        let dependencies = dependencies(steps);
        let streams = streams_of(&self.costs, steps, &dependencies, self.streams);
        let is_urgent = match self.rotation() {
            Some(rotation) => rotation.urgent(&self.costs, steps, &dependencies),
            None => vec![false; steps.len()],
        };
        streams.into_iter().zip(is_urgent).collect()
    }
}

impl Window {
    /// Returns the stages of a window in the order of their steps.
    fn parts(self) -> Vec<StageOf> {
        let of = |iteration: usize, late: bool, all: bool| StageOf { iteration, late, all };
        match self.stages {
            Stages::All(count) => (0..count).map(|i| of(i, false, self.shows && i + 1 == count)).collect(),
            Stages::First => vec![of(0, false, self.shows)],
            Stages::Overlapped => vec![of(0, true, false), of(1, false, self.shows)],
            Stages::Last => vec![of(0, true, self.shows)],
        }
    }
}
