//! Horizontal fusion: independent short kernels with the same code become one launch.
//!
//! Launching a kernel of a few blocks takes as long as running it, and the updates of a network's biases, or the final
//! sums of its norms, are dozens of them. They are fused if, by estimated costs, that does not lengthen the critical
//! path.

use crate::codegen::batched_launch::batched_launch;
use crate::codegen::limits::MAX_ARGUMENT_BYTES;
use crate::codegen::{Kernel, Launch};
use crate::compile::step::{LibraryCall, Step, Work};
use crate::schedule::streams::{STREAMS, cost, dependencies};
use bilevel_plan::CostModel;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The graph is wide if all steps on all streams take this many times as long as the critical path. Then kernels of any
/// size are fused, as in the update of all hyperparameters.
const MIN_WIDE_RATIO: f64 = 2.0;
/// The maximum number of kernel arguments, of eight bytes each, with room for those of the launch itself.
const MAX_ARGUMENTS: usize = MAX_ARGUMENT_BYTES / 8 - 32;

/// Returns the steps in an executable order, with equal kernels fused.
pub fn fuse_horizontally<C: LibraryCall>(costs: &CostModel, steps: Vec<Step<C>>) -> Vec<Step<C>> {
    let mut alike: HashMap<(&Kernel, u32), Vec<usize>> = HashMap::new();
    for (number, step) in steps.iter().enumerate() {
        if let Some(launch) = kernel(step) {
            alike.entry((&launch.kernel, launch.grid[1])).or_default().push(number);
        }
    }
    let mut classes: Vec<Vec<usize>> = alike.into_values().filter(|class| class.len() > 1).collect();
    if classes.is_empty() {
        return steps;
    }
    classes.sort_unstable();
    let mut order = FusionGraph::new(costs, &steps);
    let any = order.is_wide();
    for mut class in classes {
        class.retain(|&number| {
            any || kernel(&steps[number]).is_some_and(|launch| blocks(launch) <= costs.max_fused_blocks)
        });
        let mut left = class;
        while left.len() > 1 {
            let all = order.gather(&left, most(&steps[left[0]]));
            left.retain(|number| !all.contains(number));
        }
    }
    order.arranged(steps)
}

/// Returns the kernel of a step that can be fused.
fn kernel<C>(step: &Step<C>) -> Option<&Launch> {
    match &step.work {
        Work::Kernel(launch) => Some(launch).filter(|launch| launch.shared == 0),
        _ => None,
    }
}

fn blocks(launch: &Launch) -> u32 {
    launch.grid[0].saturating_mul(launch.grid[1])
}

/// Returns how many kernels like that of this step can be fused.
fn most<C>(step: &Step<C>) -> usize {
    // Each also passes its number of blocks.
    kernel(step).map_or(1, |launch| MAX_ARGUMENTS / (launch.args.len() + 1))
}

/// The dependency graph of steps. The first step of a fused set represents all of it.
struct FusionGraph {
    /// By step: the steps it represents, in order; empty if another represents it.
    members: Vec<Vec<usize>>,
    /// By representative: its dependencies, and the steps that depend on it.
    dependencies: Vec<Vec<usize>>,
    dependents: Vec<Vec<usize>>,
    /// By step: its estimated seconds.
    seconds: Vec<f64>,
    /// The part of them that a fused step saves.
    launch_seconds: f64,
    /// By step: its earliest and latest start for the shortest schedule.
    earliest: Vec<f64>,
    latest: Vec<f64>,
    /// A topological order.
    sequence: Vec<usize>,
}

impl FusionGraph {
    fn new<C: LibraryCall>(costs: &CostModel, steps: &[Step<C>]) -> Self {
        let (dependencies, count) = (dependencies(steps), steps.len());
        let mut dependents = vec![vec![]; count];
        for (number, dependencies) in dependencies.iter().enumerate() {
            dependencies.iter().for_each(|&dependency| dependents[dependency].push(number));
        }
        let mut order = FusionGraph {
            members: (0..count).map(|number| vec![number]).collect(),
            dependencies,
            dependents,
            seconds: steps.iter().map(|step| cost(costs, step)).collect(),
            launch_seconds: costs.launch_seconds,
            earliest: vec![],
            latest: vec![],
            sequence: vec![],
        };
        order.time();
        order
    }

    /// Computes a topological order and the start times of all steps.
    fn time(&mut self) {
        let count = self.members.len();
        let mut waits: Vec<usize> = self.dependencies.iter().map(Vec::len).collect();
        let is_first = |&number: &usize| !self.members[number].is_empty() && waits[number] == 0;
        let mut ready: BinaryHeap<Reverse<usize>> = (0..count).filter(is_first).map(Reverse).collect();
        (self.sequence, self.earliest) = (vec![], vec![0.0; count]);
        while let Some(Reverse(number)) = ready.pop() {
            self.sequence.push(number);
            let end = self.earliest[number] + self.seconds[number];
            for &next in &self.dependents[number] {
                self.earliest[next] = self.earliest[next].max(end);
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
        let [longest, all] = self.durations();
        let end = longest.max(all);
        self.latest = vec![end; count];
        for &number in self.sequence.iter().rev() {
            let end = self.dependents[number].iter().map(|&next| self.latest[next]).fold(end, f64::min);
            self.latest[number] = end - self.seconds[number];
        }
    }

    /// Returns the seconds of the critical path, and of all steps on all streams.
    fn durations(&self) -> [f64; 2] {
        let ends = self.sequence.iter().map(|&number| self.earliest[number] + self.seconds[number]);
        let all: f64 = self.sequence.iter().map(|&number| self.seconds[number]).sum();
        [ends.fold(0.0, f64::max), all / STREAMS as f64]
    }

    fn is_wide(&self) -> bool {
        let [longest, all] = self.durations();
        all > MIN_WIDE_RATIO * longest
    }

    /// Fuses the first of these steps with others that can start at the same time, up to `most`, and returns all of
    /// them.
    fn gather(&mut self, class: &[usize], most: usize) -> Vec<usize> {
        let (mut all, mut begins, mut must) = (vec![], 0.0f64, f64::INFINITY);
        // Descendants and ancestors of the set.
        let [mut after, mut before] = [(); 2].map(|()| vec![false; self.members.len()]);
        for &step in class {
            let times = (begins.max(self.earliest[step]), must.min(self.latest[step]));
            let fits = all.len() < most && times.0 <= times.1 && !after[step] && !before[step];
            // The first in any case, whatever its rounded times.
            if all.is_empty() || fits {
                mark(&self.dependents, step, &mut after);
                mark(&self.dependencies, step, &mut before);
                (begins, must) = times;
                all.push(step);
            }
        }
        if let [first, ref others @ ..] = all[..]
            && !others.is_empty()
        {
            others.iter().for_each(|&other| self.join(first, other));
            self.time();
        }
        all
    }

    /// Adds a step to a fused set.
    fn join(&mut self, first: usize, other: usize) {
        self.seconds[first] += self.seconds[other] - self.launch_seconds;
        let moved = std::mem::take(&mut self.members[other]);
        self.members[first].extend(moved);
        hand_over(&mut self.dependencies, &mut self.dependents, other, first);
        hand_over(&mut self.dependents, &mut self.dependencies, other, first);
    }

    /// Returns the steps, each fused set as one.
    fn arranged<C: LibraryCall>(self, steps: Vec<Step<C>>) -> Vec<Step<C>> {
        let mut steps: Vec<Option<Step<C>>> = steps.into_iter().map(Some).collect();
        let mut arranged = vec![];
        for number in self.sequence {
            let members = self.members[number].iter().filter_map(|&member| steps[member].take()).collect();
            arranged.extend(together(members));
        }
        arranged
    }
}

/// Marks all descendants of a step.
fn mark(next: &[Vec<usize>], from: usize, marked: &mut [bool]) {
    let mut open = vec![from];
    while let Some(number) = open.pop() {
        open.extend(next[number].iter().filter(|&&next| !std::mem::replace(&mut marked[next], true)));
    }
}

/// Moves the edges of one step to another; `back` holds the reverse edges.
fn hand_over(of: &mut [Vec<usize>], back: &mut [Vec<usize>], from: usize, to: usize) {
    for number in std::mem::take(&mut of[from]) {
        back[number].retain(|&step| step != from);
        if !of[to].contains(&number) {
            of[to].push(number);
            back[number].push(to);
        }
    }
}

/// Fuses steps with equal kernels.
fn together<C: LibraryCall>(mut steps: Vec<Step<C>>) -> Option<Step<C>> {
    if steps.len() > 1 {
        let launches: Vec<&Launch> = steps.iter().filter_map(kernel).collect();
        let work = Work::Kernel(batched_launch(&launches));
        let of = |spans: fn(&Step<C>) -> &Vec<_>| steps.iter().flat_map(spans).copied().collect();
        let (reads, writes, location) = (of(|step| &step.reads), of(|step| &step.writes), steps[0].location);
        return Some(Step { work, reads, writes, location });
    }
    steps.pop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::Code;
    use crate::compile::step::Span;
    use crate::host::HostCpp;
    use crate::host::{COSTS, NoCall};
    use bilevel_graph::DType;
    use bilevel_plan::{Place, Region};

    fn place(at: usize) -> Place {
        Place { region: Region::Arena, offset: at * 4096 }
    }

    /// A kernel of this many blocks that reads some arrays and writes another.
    fn step(blocks: usize, reads: &[usize], writes: usize) -> Step<NoCall> {
        let mut code = Code::new(&HostCpp);
        let from: Vec<String> = reads.iter().map(|&at| code.input(place(at), DType::F32, 0)).collect();
        let to = code.output(place(writes), DType::F32, 0);
        code.line(format!(
            "{to}[0] = {};",
            from.iter().map(|from| format!("{from}[0]")).collect::<Vec<_>>().join(" + ")
        ));
        let span = |at: usize| Span { place: place(at), bytes: 4096 };
        Step {
            work: Work::Kernel(code.launch([blocks, 1], 128)),
            reads: reads.iter().map(|&at| span(at)).collect(),
            writes: vec![span(writes)],
            location: bilevel_graph::Line::caller(),
        }
    }

    /// By step: the number of fused kernels, and the first array it writes.
    fn made(steps: &[Step<NoCall>]) -> Vec<(u32, usize)> {
        let of = |step: &Step<NoCall>| match &step.work {
            Work::Kernel(launch) => (launch.kernel.batch as u32, step.writes[0].place.offset / 4096),
            _ => (0, 0),
        };
        steps.iter().map(of).collect()
    }

    #[test]
    fn alike_kernels_that_need_nothing_of_each_other_are_one_and_run_when_all_can() {
        // Three chains of a long kernel and a short one, and a step that reads the results of the short ones.
        let long = |n: usize| step(500, &[n], 10 + n);
        let short = |n: usize| step(1, &[10 + n], 20 + n);
        let steps = vec![long(0), short(0), long(1), short(1), long(2), short(2), step(1, &[20, 21, 22], 30)];
        assert_eq!(made(&fuse_horizontally(&COSTS, steps)), [(1, 10), (1, 11), (1, 12), (3, 20), (1, 30)]);
    }

    #[test]
    fn kernels_with_dependencies_or_on_the_critical_path_are_not_fused() {
        let chain = vec![step(1, &[0], 1), step(1, &[1], 2), step(1, &[2], 3)];
        assert_eq!(made(&fuse_horizontally(&COSTS, chain)), [(1, 1), (1, 2), (1, 3)]);
        // The first is on the critical path, and the second can start only near its end.
        let mut steps = vec![step(1, &[0], 1)];
        steps.extend((1..9).map(|n| step(500, &[n], n + 1)));
        steps.push(step(1, &[9], 20));
        steps.push(step(500, &[9], 21));
        let found = made(&fuse_horizontally(&COSTS, steps));
        assert!(found.iter().all(|(parts, _)| *parts == 1), "{found:?}");
    }

    #[test]
    fn long_kernels_are_one_where_little_waits_for_anything() {
        let chain = |n: usize| [step(500, &[n], 100 + n), step(1, &[100 + n], 200 + n)];
        let steps: Vec<Step<NoCall>> = (0..9).flat_map(chain).collect();
        assert_eq!(made(&fuse_horizontally(&COSTS, steps)), [(9, 100), (9, 200)]);
    }

    #[test]
    fn kernels_that_reuse_memory_are_not_fused() {
        let steps = vec![step(1, &[0], 5), step(500, &[5], 6), step(1, &[1], 5), step(500, &[5], 7)];
        assert_eq!(made(&fuse_horizontally(&COSTS, steps)), [(1, 5), (1, 6), (1, 5), (1, 7)]);
    }

    #[test]
    fn no_more_are_put_together_than_a_kernel_takes_arguments() {
        let steps: Vec<Step<NoCall>> = (0..400).map(|n| step(1, &[n], 1000 + n)).collect();
        let parts: Vec<u32> = made(&fuse_horizontally(&COSTS, steps)).into_iter().map(|(parts, _)| parts).collect();
        assert_eq!(parts, [160, 160, 80]);
    }
}
