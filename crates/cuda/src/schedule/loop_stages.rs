//! The late half of a step beside the early half of the next one.
//!
//!   early 0 → early 1 → early 2 → …
//!        ↘ late 0 ↘ late 1 ↘ …
//!
//! A loop of n steps runs as its first early half, n − 1 times a late half together with the next early half, and the last late half.
//! Neither of two halves that run together fills a GPU all the time: while one waits for its slowest block, or for a kernel to begin,
//! the other is at work. Both have memory of their own for what lives within them; what they share is kept in order by who reads and
//! writes it.

use crate::compile::step::Step;
use crate::runtime::device::STREAMS;
use crate::schedule::streams::{Turn, cost, needs, needs_beside, streams_of, turns, waits};
use crate::target::ALIGN;
use bilevel_graph::DType;
use bilevel_plan::{MemoryMap, Place, Region};

/// What each half must have of the time of a step, by rough costs, for them to be worth the memory.
const LEAST: f64 = 0.25;

/// Halves may take half as much memory again as steps that run one by one, or so many bytes more.
const LITTLE: usize = 256 << 20;

/// How a step is halved.
pub(crate) struct Staggered {
    /// How many of the steps of a body, and of a lean one, are the early half.
    early: [usize; 2],
    /// Where the number of the step is, and where the late half finds its own.
    counter: Option<(Place, Place)>,
    /// Bytes that outlive a run, with those of the number.
    pub kept_bytes: usize,
}

/// Which halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halves {
    /// The early one of the first step.
    First,
    /// The late one of a step, and the early one of the next.
    Together,
    /// The late one of the last step.
    Last,
}

impl Staggered {
    /// True where two halves take little more memory than steps that run one by one, and nothing else is kept from step to step that
    /// both would write.
    pub fn fits(one_by_one: &MemoryMap, in_halves: &MemoryMap) -> bool {
        let bytes = |map: &MemoryMap| map.bound_bytes + map.kept_bytes + map.arena_bytes;
        let more = bytes(in_halves).saturating_sub(bytes(one_by_one));
        in_halves.raised[1].is_none() && more <= (bytes(one_by_one) / 2).max(LITTLE)
    }

    /// Of the halves of a step; none where one of them is short.
    pub fn new(map: &MemoryMap, halves: &[Vec<Step>; 2]) -> Option<Self> {
        let [early, late] = halves.each_ref().map(|half| half.iter().map(cost).sum::<f64>());
        if early.min(late) < LEAST * (early + late) {
            return None;
        }
        let kept = map.kept_bytes.next_multiple_of(ALIGN);
        let counter = map.counter.map(|counter| (counter, Place { region: Region::Kept, offset: kept }));
        let kept_bytes = if counter.is_some() { kept + DType::I32.size() } else { map.kept_bytes };
        Some(Staggered { early: [0; 2], counter, kept_bytes })
    }

    /// With so many steps in the early half, and in that of a lean step.
    pub fn split_at(self, full: usize, lean: Option<usize>) -> Self {
        Staggered { early: [full, lean.unwrap_or(full)], ..self }
    }

    /// Where the late half finds the number of its step.
    pub fn late_counter(&self) -> Option<Place> {
        self.counter.map(|(_, late)| late)
    }

    /// A step of the late half, which finds its number there.
    pub fn counted_apart(&self, step: &Step) -> Step {
        match self.counter {
            Some((counter, late)) => step.moved(|place| if place == counter { late } else { place }),
            None => step.clone(),
        }
    }

    /// The steps of some halves, in an order in which they can run, each by its number in the body, and when each runs. The late half is of a
    /// lean step unless it is the last and `shows`, the early one unless `shows`.
    pub fn turns(&self, halves: Halves, [full, lean]: [&[Step]; 2], shows: bool) -> Vec<(bool, usize, Turn)> {
        let of = |all: bool| if all { (full, self.early[0]) } else { (lean, self.early[1]) };
        let half = |late: bool, all: bool| -> Vec<(bool, usize)> {
            let (steps, early) = of(all);
            let numbers = if late { early..steps.len() } else { 0..early };
            numbers.map(|number| (all, number)).collect()
        };
        let step = |&(all, number): &(bool, usize)| of(all).0[number].clone();
        let steps = |half: &[(bool, usize)]| half.iter().map(step).collect::<Vec<Step>>();
        let (numbers, turns) = match halves {
            Halves::First | Halves::Last => {
                let own = half(halves == Halves::Last, shows);
                let turns = turns(&steps(&own), STREAMS);
                (own, turns)
            }
            Halves::Together => {
                let halves = [half(true, false), half(false, shows)];
                let (mut sets, mut on) = (vec![], vec![]);
                for (set, steps) in halves.iter().map(|half| steps(half)).enumerate() {
                    sets.extend(steps.iter().map(|_| set));
                    // The first streams come before others; neither half should.
                    let first = (1 + set) * STREAMS;
                    on.extend(streams_of(&steps, &needs(&steps), STREAMS).into_iter().map(|stream| first + stream));
                }
                let both = halves.concat();
                let turns = waits(&needs_beside(&steps(&both), &sets), &on);
                (both, turns)
            }
        };
        numbers.into_iter().zip(turns).map(|((all, number), turn)| (all, number, turn)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::Launch;
    use crate::compile::plan::{Plan, Space, plan, plan_with};
    use crate::schedule::oracle::{Memory, any_order};
    use crate::schedule::streams::ends;
    use bilevel_graph::conformance::{self, Size, varied_program};
    use bilevel_graph::{Graph, Program, Tensor, gradient_or_zeros};
    use std::collections::HashMap;

    /// HPO-SGLD with an L1 weight for every parameter: new weights, then the outer gradient at them, times the signs of the old ones. Both
    /// halves ask for the number of the step.
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

    /// What inputs and outputs are after so many steps: whole ones, or halves that run in some order.
    fn left_by(plan: &Plan, count: usize, seed: Option<u64>) -> HashMap<Region, Vec<u64>> {
        let mut memory = Memory::new(plan.arena_bytes);
        let lean = plan.lean.as_deref().unwrap_or(&plan.body);
        plan.prologue.iter().chain(&plan.seeds).for_each(|step| memory.run(step));
        for number in 0..=count {
            let shows = number + 1 >= count;
            let Some(seed) = seed else {
                let body = if shows { &plan.body } else { lean };
                body.iter().filter(|_| number < count).for_each(|step| memory.run(step));
                continue;
            };
            let halves = match number {
                0 => Halves::First,
                _ if number == count => Halves::Last,
                _ => Halves::Together,
            };
            let works = plan.staggered.as_ref().unwrap().turns(halves, [&plan.body, lean], shows);
            let turns: Vec<&Turn> = works.iter().map(|(_, _, turn)| turn).collect();
            for work in any_order(&turns, seed) {
                let (all, number, _) = works[work];
                memory.run(if all { &plan.body[number] } else { &lean[number] });
            }
        }
        plan.finish.iter().for_each(|step| memory.copy(step));
        memory.bound()
    }

    #[test]
    fn halves_leave_what_whole_steps_do_in_whatever_order_streams_run() {
        let plan = plan(&program(8), None, true).unwrap();
        assert!(plan.lean.is_some(), "the mean is an output only");
        for count in 1..=5 {
            let expected = left_by(&plan, count, None);
            assert!((0..40).all(|seed| left_by(&plan, count, Some(seed)) == expected), "{count} steps");
        }
    }

    /// By steps of another plan, which has no halves.
    #[test]
    fn so_it_is_for_every_loop_whose_kernels_are_the_same() {
        let cases = conformance::carries(40, 70, DType::F32).unwrap().into_iter();
        let varied = (0..600).map(|seed| varied_program(seed, &Graph::new(), DType::F32, Size::small).unwrap());
        let mut halved = 0;
        for case in cases.chain(varied) {
            let [plan, whole] =
                [Space::Some, Space::Least].map(|space| plan_with(&case.program, None, true, space).unwrap());
            // Fewer kernels are put together where they are in different halves.
            let texts = |plan: &Plan| {
                let counts = |launch: &&Launch| launch.source.contains("+= 1;");
                let mut texts: Vec<String> =
                    plan.kernels().filter(|launch| !counts(launch)).map(|launch| launch.source.to_string()).collect();
                texts.sort_unstable();
                texts
            };
            if plan.staggered.is_some() && texts(&plan) == texts(&whole) {
                let expected = left_by(&whole, 4, None);
                assert!((0..10).all(|seed| left_by(&plan, 4, Some(seed)) == expected), "{}", case.name);
                halved += 1;
            }
        }
        assert!(halved > 3, "{halved} loops");
    }

    #[test]
    fn each_half_counts_by_itself() {
        let plan = plan(&program(8), None, true).unwrap();
        let staggered = plan.staggered.as_ref().unwrap();
        let (counter, late) = staggered.counter.unwrap();
        assert!(counter != late && plan.kept_bytes >= late.offset + DType::I32.size());
        let (steps, others) = plan.body.split_at(staggered.early[0]);
        for (half, own, other) in [(steps, counter, late), (others, late, counter)] {
            let uses =
                |step: &Step, place: Place| step.reads.iter().chain(&step.writes).any(|span| span.place == place);
            assert!(!half.iter().any(|step| uses(step, other)));
            let writes = |step: &&Step| step.writes.iter().any(|span| span.place == own);
            assert_eq!(half.iter().filter(writes).count(), 1);
        }
    }

    #[test]
    fn where_memory_is_short_steps_are_whole() {
        let [some, least] = [Space::Some, Space::Least].map(|space| plan_with(&program(8), None, true, space).unwrap());
        assert!(some.staggered.is_some() && least.staggered.is_none() && least.overlap.is_none());
    }

    #[test]
    fn two_halves_take_as_long_as_the_longer_of_them() {
        let plan = plan(&program(512), None, true).unwrap();
        let staggered = plan.staggered.as_ref().unwrap();
        let lean = plan.lean.as_deref().unwrap();
        let seconds = |halves| {
            let works = staggered.turns(halves, [&plan.body, lean], false);
            let steps: Vec<Step> = works.iter().map(|&(_, number, _)| lean[number].clone()).collect();
            let done = ends(&needs(&steps), &steps.iter().map(cost).collect::<Vec<_>>());
            done.into_iter().map(|(end, _)| end).fold(0.0, f64::max)
        };
        let [first, last, together] = [Halves::First, Halves::Last, Halves::Together].map(seconds);
        assert!(together < 0.7 * (first + last), "{together} of {first} and {last}");
    }

    #[test]
    fn conformance_has_such_a_loop() {
        let cases = conformance::carries(64, 64, DType::F32).unwrap();
        let case = cases.into_iter().find(|case| case.name.starts_with("what is only added up")).unwrap();
        assert!(plan(&case.program, None, true).unwrap().staggered.is_some());
    }

    #[test]
    fn what_depends_on_all_that_is_carried_is_not_halved() {
        let g = Graph::new();
        let [x, y] = ["x", "y"].map(|name| g.input(name, [64, 64], DType::F32));
        let planned = |[next_x, next_y]: [Tensor; 2]| {
            let program = Program::builder(&g).carry(x, next_x).carry(y, next_y).build().unwrap();
            plan(&program, None, true).unwrap().staggered.is_some()
        };
        let (x_next, outer) = (x - x.matmul(x) * 0.1, |x: Tensor| x.sin().matmul(x));
        assert!(planned([x_next, y + outer(x_next)]));
        assert!(!planned([x_next + y, y + outer(x_next)]), "each needs the other");
        assert!(!planned([x_next, y.sin()]), "there is little of what is late");
        assert!(!planned([x.matmul(x), y + outer(x_next)]), "copied at the end of a step");
    }
}
