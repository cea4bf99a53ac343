//! Stream assignment: each step runs on one of a few streams and waits for events of its dependencies on others.

use crate::compile::step::{LibraryCall, Span, Step, Work};
use bilevel_plan::{CostModel, Region};
use std::collections::HashMap;

/// The number of streams for concurrent work within a step; more gain nothing (decision 020).
pub const STREAMS: usize = 3;

/// The stream of a step and the events around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSlot {
    /// The stream.
    pub stream: usize,
    /// Earlier steps on other streams whose events it waits for.
    pub after: Vec<usize>,
    /// Whether a step on another stream waits for it, so that an event is recorded.
    pub awaited: bool,
}

/// A span of memory with its last writer and the readers since.
struct MemoryUse {
    span: Span,
    writer: Option<usize>,
    readers: Vec<usize>,
}

/// Assigns every step to one of `streams` streams and places events.
pub fn assign_streams<C: LibraryCall>(costs: &CostModel, steps: &[Step<C>], streams: usize) -> Vec<StreamSlot> {
    let dependencies = dependencies(steps);
    let on = streams_of(costs, steps, &dependencies, streams);
    place_events(&dependencies, &on)
}

/// By step: its stream. The critical path, by estimated costs, is on the first stream, so that no concurrent work
/// delays it.
pub fn streams_of<C: LibraryCall>(
    costs: &CostModel,
    steps: &[Step<C>],
    dependencies: &[Vec<usize>],
    streams: usize,
) -> Vec<usize> {
    let mut decisive = vec![false; steps.len()];
    let costs: Vec<f64> = steps.iter().map(|step| cost(costs, step)).collect();
    critical_path(dependencies, &costs).into_iter().for_each(|step| decisive[step] = true);
    let mut on: Vec<usize> = vec![];
    // By stream: its last step.
    let mut last: Vec<Option<usize>> = vec![None; streams.max(1)];
    for (number, dependencies) in dependencies.iter().enumerate() {
        let stream = if decisive[number] || streams < 2 {
            0
        } else {
            // After its newest dependency if that is the last step of its stream; otherwise on the stream that has been
            // idle longest.
            let is_last = |stream: &usize| {
                *stream > 0 && last[*stream].is_some_and(|step| dependencies.binary_search(&step).is_ok())
            };
            let behind = dependencies.iter().rev().map(|&dependency: &usize| on[dependency]).find(is_last);
            behind.unwrap_or_else(|| (1..last.len()).min_by_key(|&s| last[s].map_or(0, |step| step + 1)).unwrap_or(0))
        };
        on.push(stream);
        last[stream] = Some(number);
    }
    on
}

/// Places the events between steps on these streams.
pub fn place_events(dependencies: &[Vec<usize>], on: &[usize]) -> Vec<StreamSlot> {
    let streams = on.iter().max().map_or(1, |most| most + 1);
    let mut slots: Vec<StreamSlot> = vec![];
    let mut last: Vec<Option<usize>> = vec![None; streams];
    // By step and stream: the newest step known to be done when it starts.
    let mut done: Vec<Vec<Option<usize>>> = vec![];
    for (number, (dependencies, &stream)) in dependencies.iter().zip(on).enumerate() {
        // Streams run in order, so only the newest dependency on each stream counts, unless it is already implied.
        let before = |step: usize| known_after(&done[step], on[step], step);
        let mut known = last[stream].map_or_else(|| vec![None; streams], before);
        let mut after = vec![];
        for &dependency in dependencies.iter().rev() {
            if on[dependency] != stream && known[on[dependency]] < Some(dependency) {
                after.push(dependency);
                known.iter_mut().zip(before(dependency)).for_each(|(known, more)| *known = (*known).max(more));
            }
        }
        after.iter().for_each(|&dependency| slots[dependency].awaited = true);
        slots.push(StreamSlot { stream, after, awaited: false });
        done.push(known);
        last[stream] = Some(number);
    }
    slots
}

/// Returns the steps known to be done, by stream, after a step.
fn known_after(done: &[Option<usize>], stream: usize, step: usize) -> Vec<Option<usize>> {
    let mut known = done.to_vec();
    known[stream] = Some(step);
    known
}

/// By step: its direct dependencies in order, without transitive ones.
pub fn dependencies<C: LibraryCall>(steps: &[Step<C>]) -> Vec<Vec<usize>> {
    dependencies_in_sets(steps, &vec![0; steps.len()])
}

/// As [`dependencies`], for sets of steps that run concurrently: a step that occupies the whole GPU waits for all
/// earlier ones of its set.
pub fn dependencies_in_sets<C: LibraryCall>(steps: &[Step<C>], sets: &[usize]) -> Vec<Vec<usize>> {
    let mut uses: HashMap<Region, Vec<MemoryUse>> = HashMap::new();
    // Steps that can fail; later steps that are skipped after a failure depend on them.
    let mut checks: Vec<usize> = vec![];
    // By set: the steps since the last one that occupied the whole GPU.
    let mut beside: Vec<Vec<usize>> = vec![vec![]; sets.iter().max().map_or(0, |most| most + 1)];
    let (mut all, mut before) = (vec![], Ancestors::new(steps.len()));
    for (number, step) in steps.iter().enumerate() {
        let mut dependencies = vec![];
        if step.work.occupies_whole_gpu() {
            dependencies.append(&mut beside[sets[number]]);
        }
        beside[sets[number]].push(number);
        if step.work.skips_after_failure() {
            dependencies.extend(&checks);
        }
        if step.work.can_fail() {
            checks.push(number);
        }
        for span in &step.writes {
            for found in uses.entry(span.place.region).or_default().iter().filter(|found| found.span.meets(span)) {
                dependencies.extend(found.writer.iter().chain(&found.readers));
            }
        }
        for span in &step.reads {
            for found in uses.entry(span.place.region).or_default().iter().filter(|found| found.span.meets(span)) {
                dependencies.extend(&found.writer);
            }
        }
        all.push(before.newest_of(dependencies));
        for span in &step.reads {
            let list = uses.entry(span.place.region).or_default();
            let mut known = false;
            for found in list.iter_mut().filter(|found| found.span.meets(span)) {
                found.readers.push(number);
                known |= found.span == *span;
            }
            if !known {
                list.push(MemoryUse { span: *span, writer: None, readers: vec![number] });
            }
        }
        for span in &step.writes {
            let list = uses.entry(span.place.region).or_default();
            let (first, end) = (span.place.offset, span.place.offset + span.bytes);
            list.retain(|found| found.span.place.offset < first || found.span.place.offset + found.span.bytes > end);
            list.push(MemoryUse { span: *span, writer: Some(number), readers: vec![] });
        }
    }
    all
}

/// By step: a bit set of its ancestors.
struct Ancestors {
    words: usize,
    bits: Vec<u64>,
}

impl Ancestors {
    /// Creates sets for this many steps.
    fn new(steps: usize) -> Self {
        Ancestors { words: steps.div_ceil(64), bits: vec![] }
    }

    /// Records the ancestors of the next step, and returns its dependencies without transitive ones.
    fn newest_of(&mut self, mut dependencies: Vec<usize>) -> Vec<usize> {
        dependencies.sort_unstable();
        dependencies.dedup();
        let mut own = vec![0u64; self.words];
        let mut newest = vec![];
        for &dependency in dependencies.iter().rev() {
            let (word, bit) = (dependency / 64, 1 << (dependency % 64));
            if own[word] & bit == 0 {
                let before = &self.bits[dependency * self.words..(dependency + 1) * self.words];
                own.iter_mut().zip(before).for_each(|(own, before)| *own |= before);
                own[word] |= bit;
                newest.push(dependency);
            }
        }
        newest.reverse();
        self.bits.extend(own);
        newest
    }
}

/// Returns the estimated seconds of a step.
pub fn cost<C: LibraryCall>(costs: &CostModel, step: &Step<C>) -> f64 {
    let bytes: usize = step.reads.iter().chain(&step.writes).map(|span| span.bytes).sum();
    let multiplications = match &step.work {
        Work::Library(call) => call.multiplications(),
        Work::Kernel(_) | Work::Copy { .. } => 0,
    };
    costs.seconds(multiplications, bytes)
}

/// By step: its earliest finish time for these durations, and the dependency that determines it.
pub fn finish_times(dependencies: &[Vec<usize>], seconds: &[f64]) -> Vec<(f64, Option<usize>)> {
    let mut done: Vec<(f64, Option<usize>)> = vec![];
    for (dependencies, seconds) in dependencies.iter().zip(seconds) {
        let latest = dependencies.iter().copied().max_by(|&a, &b| done[a].0.total_cmp(&done[b].0));
        done.push((latest.map_or(0.0, |step| done[step].0) + seconds, latest));
    }
    done
}

/// Returns the steps of the critical path for these durations.
pub fn critical_path(dependencies: &[Vec<usize>], seconds: &[f64]) -> Vec<usize> {
    let done = finish_times(dependencies, seconds);
    let mut at = (0..done.len()).max_by(|&a, &b| done[a].0.total_cmp(&done[b].0));
    let mut path = vec![];
    while let Some(step) = at {
        path.push(step);
        at = done[step].1;
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::Code;
    use crate::compile::step::Work;
    use crate::host::HostCpp;
    use crate::host::NoCall;
    use bilevel_plan::Place;

    fn step(reads: &[usize], writes: &[usize]) -> Step<NoCall> {
        let span = |&at: &usize| Span { place: Place { region: Region::Arena, offset: at * 8 }, bytes: 8 };
        let place = Place { region: Region::Arena, offset: 0 };
        Step {
            work: Work::Copy { from: place, to: place, bytes: 8 },
            reads: reads.iter().map(span).collect(),
            writes: writes.iter().map(span).collect(),
            location: bilevel_graph::Line::caller(),
        }
    }

    #[test]
    fn two_chains_run_side_by_side_and_meet() {
        let steps = [step(&[], &[0]), step(&[], &[1]), step(&[0], &[2]), step(&[1], &[3]), step(&[2, 3], &[4])];
        let slots = assign_streams(&CostModel::PLAIN, &steps, 2);
        assert_eq!(slots.iter().map(|turn| turn.stream).collect::<Vec<_>>(), [1, 0, 1, 0, 0]);
        assert_eq!(slots[4].after, [2]);
        assert!(slots[2].awaited && !slots[3].awaited);
    }

    #[test]
    fn no_event_is_waited_for_twice() {
        // All read the result of the first step; the long chain is on the first stream, the others on the second.
        let mut steps = vec![step(&[], &[0])];
        steps.extend((1..8).map(|n| step(&[n - 1, 0], &[n])));
        steps.extend((8..11).map(|n| step(&[0], &[n])));
        steps.extend([step(&[3, 10], &[11]), step(&[2, 11], &[12])]);
        let slots = assign_streams(&CostModel::PLAIN, &steps, 2);
        assert_eq!(slots.iter().map(|turn| turn.stream).collect::<Vec<_>>(), [[0; 8].to_vec(), vec![1; 5]].concat());
        let waits: Vec<&[usize]> = slots[8..].iter().map(|turn| &turn.after[..]).collect();
        assert_eq!(waits, [&[0][..], &[], &[], &[3], &[]]);
    }

    #[test]
    fn the_longest_way_is_that_of_the_slower_branch() {
        let steps = [step(&[], &[0]), step(&[], &[1]), step(&[0], &[2]), step(&[1], &[3]), step(&[2, 3], &[4])];
        assert_eq!(critical_path(&dependencies(&steps), &[1.0, 2.0, 3.0, 1.5, 1.0]), [0, 2, 4]);
        assert_eq!(critical_path(&dependencies(&steps), &[1.0, 2.0, 3.0, 2.5, 1.0]), [1, 3, 4]);
    }

    #[test]
    fn steps_that_are_skipped_after_a_failure_wait_for_all_checks_before_them() {
        let kernel = |write: fn(&mut Code)| {
            let mut code = Code::new(&HostCpp);
            write(&mut code);
            Step { work: Work::Kernel(code.launch([1, 1], 1)), ..step(&[], &[]) }
        };
        let reporting = || kernel(|code| drop(code.report(0, "0", "0")));
        let heeding = kernel(Code::stop_after_report);
        let steps = [reporting(), step(&[], &[0]), reporting(), heeding, step(&[], &[1])];
        assert_eq!(dependencies(&steps), [vec![], vec![], vec![], vec![0, 2], vec![]]);
    }

    #[test]
    fn a_step_that_occupies_the_whole_gpu_waits_for_all_before_it() {
        let mut launch = Code::new(&HostCpp).launch([1, 1], 1);
        launch.shared = 1 << 16;
        let filling = || Step { work: Work::Kernel(launch.clone()), ..step(&[], &[]) };
        let steps = [step(&[], &[0]), step(&[], &[1]), filling(), step(&[0], &[2]), step(&[], &[3]), filling()];
        assert_eq!(dependencies(&steps), [vec![], vec![], vec![0, 1], vec![0], vec![], vec![2, 3, 4]]);
    }

    #[test]
    fn memory_is_not_written_before_it_was_read() {
        let steps = [step(&[], &[0]), step(&[0], &[1]), step(&[0], &[2]), step(&[], &[0])];
        let slots = assign_streams(&CostModel::PLAIN, &steps, 3);
        let last = &slots[3];
        let mut waits = last.after.clone();
        waits.extend((0..3).filter(|&s| slots[s].stream == last.stream));
        assert!([1, 2].iter().all(|reader| waits.contains(reader)), "{slots:?}");
    }
}
