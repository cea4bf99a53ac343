//! Two-stage software pipelining: the late stage of a step runs concurrently with the early stage of the next.
//!
//!   early 0 → early 1 → early 2 → …
//!        ↘ late 0 ↘ late 1 ↘ …
//!
//! A loop of n steps runs as its first early stage, n − 1 pairs of a late stage with the next early stage, and the last
//! late stage. Neither stage fills a GPU all the time: while one waits for its slowest block, or for a launch, the
//! other computes. Each has separate memory for its own values; dependencies through shared values are tracked.

use crate::compile::step::Step;
use crate::runtime::device::STREAMS;
use crate::schedule::streams::{
    StreamSlot, assign_streams, cost, dependencies, dependencies_in_sets, place_events, streams_of,
};
use crate::target::ALIGN;
use bilevel_graph::DType;
use bilevel_plan::{MemoryMap, Place, Region};

/// The minimum share of each stage in the time of a step, by estimated costs, for which the extra memory pays.
const MIN_STAGE_SHARE: f64 = 0.25;

/// Stages may need half as much memory again as sequential steps, or this many bytes more.
const MAX_EXTRA_BYTES: usize = 256 << 20;

/// A loop whose steps are split into two stages.
pub(crate) struct StagedLoop {
    /// The number of steps in the early stage, of the body and of the carry-only body.
    early: [usize; 2],
    /// The address of the step number, and of its copy for the late stage.
    counter: Option<(Place, Place)>,
    /// Bytes of persistent memory, including the copy of the step number.
    pub persistent_bytes: usize,
}

/// The stages that one graph contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stages {
    /// The early stage of the first step.
    First,
    /// The late stage of a step, and the early stage of the next.
    Overlapped,
    /// The late stage of the last step.
    Last,
}

impl StagedLoop {
    /// True if two stages need little more memory than sequential steps, and no other persistent value is written by
    /// both.
    pub fn fits(sequential: &MemoryMap, in_stages: &MemoryMap) -> bool {
        let bytes = |map: &MemoryMap| map.bound_bytes + map.persistent_bytes + map.arena_bytes;
        let more = bytes(in_stages).saturating_sub(bytes(sequential));
        in_stages.amax_words[1].is_none() && more <= (bytes(sequential) / 2).max(MAX_EXTRA_BYTES)
    }

    /// Builds it from the stages of a step; `None` if one of them is short.
    pub fn new(map: &MemoryMap, stages: &[Vec<Step>; 2]) -> Option<Self> {
        let [early, late] = stages.each_ref().map(|stage| stage.iter().map(cost).sum::<f64>());
        if early.min(late) < MIN_STAGE_SHARE * (early + late) {
            return None;
        }
        let kept = map.persistent_bytes.next_multiple_of(ALIGN);
        let counter = map.counter.map(|counter| (counter, Place { region: Region::Persistent, offset: kept }));
        let persistent_bytes = if counter.is_some() { kept + DType::I32.size() } else { map.persistent_bytes };
        Some(StagedLoop { early: [0; 2], counter, persistent_bytes })
    }

    /// Sets the number of steps in the early stage, of the body and of the carry-only body.
    pub fn split_at(self, full: usize, carry_only: Option<usize>) -> Self {
        StagedLoop { early: [full, carry_only.unwrap_or(full)], ..self }
    }

    /// Returns the address of the step number for the late stage.
    pub fn late_counter(&self) -> Option<Place> {
        self.counter.map(|(_, late)| late)
    }

    /// Redirects a step of the late stage to its own step number.
    pub fn with_late_counter(&self, step: &Step) -> Step {
        match self.counter {
            Some((counter, late)) => step.moved(|place| if place == counter { late } else { place }),
            None => step.clone(),
        }
    }

    /// Returns the steps of these stages in an executable order, as indices into the body, with their stream slots. The
    /// late stage is carry-only unless it is the last and `shows`; the early stage unless `shows`.
    pub fn slots(
        &self,
        stages: Stages,
        [full, carry_only]: [&[Step]; 2],
        shows: bool,
    ) -> Vec<(bool, usize, StreamSlot)> {
        let of = |all: bool| if all { (full, self.early[0]) } else { (carry_only, self.early[1]) };
        let stage = |late: bool, all: bool| -> Vec<(bool, usize)> {
            let (steps, early) = of(all);
            let numbers = if late { early..steps.len() } else { 0..early };
            numbers.map(|number| (all, number)).collect()
        };
        let step = |&(all, number): &(bool, usize)| of(all).0[number].clone();
        let steps = |stage: &[(bool, usize)]| stage.iter().map(step).collect::<Vec<Step>>();
        let (numbers, slots) = match stages {
            Stages::First | Stages::Last => {
                let own = stage(stages == Stages::Last, shows);
                let slots = assign_streams(&steps(&own), STREAMS);
                (own, slots)
            }
            Stages::Overlapped => {
                let stages = [stage(true, false), stage(false, shows)];
                let (mut sets, mut on) = (vec![], vec![]);
                for (set, steps) in stages.iter().map(|stage| steps(stage)).enumerate() {
                    sets.extend(steps.iter().map(|_| set));
                    // The first set of streams has priority; neither stage should.
                    let first = (1 + set) * STREAMS;
                    on.extend(
                        streams_of(&steps, &dependencies(&steps), STREAMS).into_iter().map(|stream| first + stream),
                    );
                }
                let both = stages.concat();
                let slots = place_events(&dependencies_in_sets(&steps(&both), &sets), &on);
                (both, slots)
            }
        };
        numbers.into_iter().zip(slots).map(|((all, number), turn)| (all, number, turn)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::Launch;
    use crate::compile::plan::{MemoryBudget, Plan, plan, plan_with};
    use crate::schedule::oracle::{SymbolicMemory, any_order};
    use crate::schedule::streams::finish_times;
    use bilevel_graph::conformance::{self, Size, varied_program};
    use bilevel_graph::{Graph, Program, Tensor, gradient_or_zeros};
    use std::collections::HashMap;

    /// HPO-SGLD with an L1 weight per parameter: new weights, then the outer gradient at them, times the signs of the
    /// old ones. Both stages read the step number.
    fn program(size: usize) -> Program {
        let g = Graph::new();
        let [w, h, x, y] = ["w", "h", "x", "y"].map(|name| g.input(name, [size, size], DType::F32));
        let number = || g.step().convert(DType::F32).broadcast([], [size, size]);
        let net = |w: Tensor, x: Tensor| x.matmul(w).tanh().matmul(w);
        let slope = gradient_or_zeros(net(w, x).square().sum_all(), &[w]).unwrap()[0];
        let new = w - (slope + w.sign()) * 0.1 + number().sin();
        let outer = (net(new, y) - 1.0).square().sum_all();
        let f = gradient_or_zeros(outer, &[new]).unwrap()[0];
        let builder = Program::builder(&g).carry(w, new).carry(h, h + f * w.sign() * number());
        builder.output("outer", outer).output("mean", x.matmul(w).mean_all()).build().unwrap()
    }

    /// Returns the inputs and outputs after this many steps, sequential or in stages in a random valid order.
    fn left_by(plan: &Plan, count: usize, seed: Option<u64>) -> HashMap<Region, Vec<u64>> {
        let mut memory = SymbolicMemory::new(plan.arena_bytes);
        let carry_only = plan.carry_only.as_deref().unwrap_or(&plan.body);
        plan.prologue.iter().chain(&plan.initial_casts).for_each(|step| memory.run(step));
        for number in 0..=count {
            let shows = number + 1 >= count;
            let Some(seed) = seed else {
                let body = if shows { &plan.body } else { carry_only };
                body.iter().filter(|_| number < count).for_each(|step| memory.run(step));
                continue;
            };
            let stages = match number {
                0 => Stages::First,
                _ if number == count => Stages::Last,
                _ => Stages::Overlapped,
            };
            let works = plan.staged.as_ref().unwrap().slots(stages, [&plan.body, carry_only], shows);
            let slots: Vec<&StreamSlot> = works.iter().map(|(_, _, turn)| turn).collect();
            for work in any_order(&slots, seed) {
                let (all, number, _) = works[work];
                memory.run(if all { &plan.body[number] } else { &carry_only[number] });
            }
        }
        plan.finish.iter().for_each(|step| memory.copy(step));
        memory.bound()
    }

    #[test]
    fn stages_compute_the_same_as_sequential_steps_in_any_stream_order() {
        let plan = plan(&program(8), None, true).unwrap();
        assert!(plan.carry_only.is_some(), "the mean is an output only");
        for count in 1..=5 {
            let expected = left_by(&plan, count, None);
            assert!((0..40).all(|seed| left_by(&plan, count, Some(seed)) == expected), "{count} steps");
        }
    }

    /// Compares with a plan without stages.
    #[test]
    fn so_it_is_for_every_loop_whose_kernels_are_the_same() {
        let cases = conformance::carries(40, 70, DType::F32).unwrap().into_iter();
        let varied = (0..600).map(|seed| varied_program(seed, &Graph::new(), DType::F32, Size::small).unwrap());
        let mut by_stage = 0;
        for case in cases.chain(varied) {
            let [plan, whole] = [MemoryBudget::Relaxed, MemoryBudget::Minimal]
                .map(|space| plan_with(&case.program, None, true, space).unwrap());
            // Fewer kernels are fused if they are in different stages.
            let texts = |plan: &Plan| {
                let counts = |launch: &&Launch| launch.source.contains("+= 1;");
                let mut texts: Vec<String> =
                    plan.kernels().filter(|launch| !counts(launch)).map(|launch| launch.source.to_string()).collect();
                texts.sort_unstable();
                texts
            };
            if plan.staged.is_some() && texts(&plan) == texts(&whole) {
                let expected = left_by(&whole, 4, None);
                assert!((0..10).all(|seed| left_by(&plan, 4, Some(seed)) == expected), "{}", case.name);
                by_stage += 1;
            }
        }
        assert!(by_stage > 3, "{by_stage} loops");
    }

    #[test]
    fn each_half_counts_by_itself() {
        let plan = plan(&program(8), None, true).unwrap();
        let staged = plan.staged.as_ref().unwrap();
        let (counter, late) = staged.counter.unwrap();
        assert!(counter != late && plan.persistent_bytes >= late.offset + DType::I32.size());
        let (steps, others) = plan.body.split_at(staged.early[0]);
        for (stage, own, other) in [(steps, counter, late), (others, late, counter)] {
            let uses =
                |step: &Step, place: Place| step.reads.iter().chain(&step.writes).any(|span| span.place == place);
            assert!(!stage.iter().any(|step| uses(step, other)));
            let writes = |step: &&Step| step.writes.iter().any(|span| span.place == own);
            assert_eq!(stage.iter().filter(writes).count(), 1);
        }
    }

    #[test]
    fn where_memory_is_short_steps_are_whole() {
        let [some, least] = [MemoryBudget::Relaxed, MemoryBudget::Minimal]
            .map(|space| plan_with(&program(8), None, true, space).unwrap());
        assert!(some.staged.is_some() && least.staged.is_none() && least.pipeline.is_none());
    }

    #[test]
    fn two_overlapped_stages_take_as_long_as_the_longer_one() {
        let plan = plan(&program(512), None, true).unwrap();
        let staged = plan.staged.as_ref().unwrap();
        let carry_only = plan.carry_only.as_deref().unwrap();
        let seconds = |stages| {
            let works = staged.slots(stages, [&plan.body, carry_only], false);
            let steps: Vec<Step> = works.iter().map(|&(_, number, _)| carry_only[number].clone()).collect();
            let done = finish_times(&dependencies(&steps), &steps.iter().map(cost).collect::<Vec<_>>());
            done.into_iter().map(|(end, _)| end).fold(0.0, f64::max)
        };
        let [first, last, together] = [Stages::First, Stages::Last, Stages::Overlapped].map(seconds);
        assert!(together < 0.7 * (first + last), "{together} of {first} and {last}");
    }

    #[test]
    fn conformance_has_such_a_loop() {
        let cases = conformance::carries(64, 64, DType::F32).unwrap();
        let case = cases.into_iter().find(|case| case.name.starts_with("what is only added up")).unwrap();
        assert!(plan(&case.program, None, true).unwrap().staged.is_some());
    }

    #[test]
    fn a_step_that_depends_on_all_carried_values_has_no_stages() {
        let g = Graph::new();
        let [x, y] = ["x", "y"].map(|name| g.input(name, [64, 64], DType::F32));
        let planned = |[next_x, next_y]: [Tensor; 2]| {
            let program = Program::builder(&g).carry(x, next_x).carry(y, next_y).build().unwrap();
            plan(&program, None, true).unwrap().staged.is_some()
        };
        let (x_next, outer) = (x - x.matmul(x) * 0.1, |x: Tensor| x.sin().matmul(x));
        assert!(planned([x_next, y + outer(x_next)]));
        assert!(!planned([x_next + y, y + outer(x_next)]), "each needs the other");
        assert!(!planned([x_next, y.sin()]), "there is little of what is late");
        assert!(!planned([x.matmul(x), y + outer(x_next)]), "copied at the end of a step");
    }
}
