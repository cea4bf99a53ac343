//! A symbolic executor of steps: tests which steps may run concurrently, without a GPU.

use crate::compile::step::{LibraryCall, Span, Step, Work};
use crate::schedule::streams::StreamSlot;
use bilevel_graph::conformance::Dice;
use bilevel_plan::Region;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// By byte of memory: a hash of the computation that produced it.
pub struct SymbolicMemory {
    regions: HashMap<Region, Vec<u64>>,
    /// Bytes of the arena for values within a step.
    within: usize,
}

impl SymbolicMemory {
    /// Creates memory with this many bytes of arena for values within a step.
    pub fn new(within: usize) -> Self {
        SymbolicMemory { regions: HashMap::new(), within }
    }

    /// Returns the contents of a span.
    pub fn bytes(&mut self, span: &Span) -> &mut [u64] {
        let region = self.regions.entry(span.place.region).or_default();
        let end = span.place.offset + span.bytes;
        if region.len() < end {
            region.resize(end, 0);
        }
        &mut region[span.place.offset..end]
    }

    /// Runs a step that copies each of its operands.
    pub fn copy<C>(&mut self, step: &Step<C>) {
        for (from, to) in step.reads.iter().zip(&step.writes).filter(|(from, to)| from.bytes == to.bytes) {
            let copied = self.bytes(from).to_vec();
            self.bytes(to).copy_from_slice(&copied);
        }
    }

    /// Runs a step: each result is a hash of the operation and of all operands. Values within a step must be written
    /// before they are read.
    pub fn run<C: LibraryCall>(&mut self, step: &Step<C>) {
        let mut hasher = DefaultHasher::new();
        if let Work::Kernel(launch) = &step.work {
            launch.kernel.hash(&mut hasher);
        }
        let within = self.within;
        let lives_within = |span: &Span| span.place.region == Region::Arena && span.place.offset < within;
        let is_read = |span: &&Span| !lives_within(span) || !step.writes.contains(span);
        in_order(step, &step.reads).iter().filter(is_read).for_each(|span| self.bytes(span).hash(&mut hasher));
        let found = hasher.finish();
        for (number, span) in in_order(step, &step.writes).iter().enumerate() {
            self.bytes(span).iter_mut().enumerate().for_each(|(at, byte)| *byte = found ^ (number << 32 | at) as u64);
        }
    }

    /// Returns the contents of inputs and outputs.
    pub fn bound(mut self) -> HashMap<Region, Vec<u64>> {
        self.regions.retain(|region, _| matches!(region, Region::Input(_) | Region::Output(_)));
        self.regions
    }
}

/// Returns the spans of a step in argument order, which does not depend on addresses.
fn in_order<C: LibraryCall>(step: &Step<C>, spans: &[Span]) -> Vec<Span> {
    let accesses = step.work.accesses();
    let mut spans = spans.to_vec();
    spans.sort_by_key(|span| accesses.iter().position(|access| span.holds(&access.at)));
    spans
}

/// Returns a random order in which steps with these stream slots may run.
pub fn any_order(slots: &[&StreamSlot], seed: u64) -> Vec<usize> {
    let (mut order, mut done, mut dice) = (vec![], vec![false; slots.len()], Dice::new(seed));
    while order.len() < slots.len() {
        let is_first = |number: usize| {
            let same = |other: &usize| slots[*other].stream == slots[number].stream;
            (0..number).filter(same).all(|other| done[other])
        };
        let can = |number: &usize| {
            !done[*number] && is_first(*number) && slots[*number].after.iter().all(|&dependency| done[dependency])
        };
        let ready: Vec<usize> = (0..slots.len()).filter(can).collect();
        let chosen = dice.pick(&ready);
        done[chosen] = true;
        order.push(chosen);
    }
    order
}
