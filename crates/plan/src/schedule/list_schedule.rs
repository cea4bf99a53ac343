//! Memory-aware list scheduling: groups that free more memory than they allocate run first, otherwise program order.
//!
//! In program order, the gradients of all parameters would be live before the first is used. Used as soon as they are
//! ready, only one of them is.

use crate::fuse::group::Grouping;
use crate::fuse::topo_order::TopoOrder;
use crate::ir::node::{Kind, Node};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The bytes a group frees, its program order and its number.
type Freeing = (usize, Reverse<(Option<usize>, usize)>);

/// Returns the non-empty groups in execution order. `lasting` nodes are never freed.
pub(crate) fn list_schedule(nodes: &[Node], lasting: &[bool], grouping: &Grouping, order: &TopoOrder) -> Vec<usize> {
    let count = grouping.groups.len();
    let mut memory = LiveMemory::new(nodes, lasting, grouping);
    let mut waiting: Vec<usize> = (0..count).map(|g| order.before(g).len()).collect();
    // A loop merged into another has no members left; its position does not matter.
    let key = |g: usize| grouping.groups[g].members.last().copied();
    let mut ready = BinaryHeap::new();
    // Groups that free at least as much as they allocate, largest first. A group may be in both heaps.
    let mut freeing = BinaryHeap::new();
    let mut done = vec![false; count];
    let offer = |g: usize, memory: &LiveMemory, freeing: &mut BinaryHeap<Freeing>| {
        if let Some(freed) = memory.frees(g) {
            freeing.push((freed, Reverse((key(g), g))));
        }
    };
    for g in (0..count).filter(|&g| waiting[g] == 0) {
        ready.push(Reverse((key(g), g)));
        offer(g, &memory, &mut freeing);
    }
    let mut sequence = vec![];
    while let Some(g) = freeing.pop().map(|(_, Reverse((_, g)))| g).or_else(|| ready.pop().map(|Reverse((_, g))| g)) {
        if std::mem::replace(&mut done[g], true) {
            continue;
        }
        if !grouping.groups[g].members.is_empty() {
            sequence.push(g);
        }
        for last in memory.run(g) {
            if !done[last] && waiting[last] == 0 {
                offer(last, &memory, &mut freeing);
            }
        }
        for &next in order.after(g) {
            waiting[next] -= 1;
            if waiting[next] == 0 {
                ready.push(Reverse((key(next), next)));
                offer(next, &memory, &mut freeing);
            }
        }
    }
    sequence
}

/// The remaining readers of each value.
struct LiveMemory {
    /// By node: the bytes freed after its last reader, and the groups that have not read it yet.
    bytes: Vec<usize>,
    readers: Vec<Vec<usize>>,
    /// By group: the nodes of other groups it reads, and the bytes of it that others read.
    reads: Vec<Vec<usize>>,
    takes: Vec<usize>,
}

impl LiveMemory {
    fn new(nodes: &[Node], lasting: &[bool], grouping: &Grouping) -> Self {
        let mut memory = LiveMemory {
            bytes: vec![0; nodes.len()],
            readers: vec![vec![]; nodes.len()],
            reads: vec![vec![]; grouping.groups.len()],
            takes: vec![0; grouping.groups.len()],
        };
        for (g, group) in grouping.groups.iter().enumerate() {
            let mut read: Vec<usize> = group.members.iter().flat_map(|&id| nodes[id].reads().map(|(n, _)| n)).collect();
            read.sort_unstable();
            read.dedup();
            read.retain(|&node| grouping.group_of[node] != Some(g));
            for &node in &read {
                let made = !matches!(nodes[node].kind, Kind::Input | Kind::CarriedCast(_) | Kind::Table(_));
                // Values of the prologue stay for the next run.
                let passes = made && !lasting[node] && nodes[node].invariant == group.invariant;
                if passes && grouping.target.costs.is_large(nodes[node].bytes()) {
                    memory.bytes[node] = nodes[node].bytes();
                }
                memory.readers[node].push(g);
            }
            memory.reads[g] = read;
        }
        for (node, _) in memory.readers.iter().enumerate().filter(|(_, readers)| !readers.is_empty()) {
            if let Some(g) = grouping.group_of[node] {
                memory.takes[g] = memory.takes[g].saturating_add(nodes[node].bytes());
            }
        }
        memory
    }

    /// Returns the bytes a group frees, if at least as many as it allocates.
    fn frees(&self, g: usize) -> Option<usize> {
        let freed = (self.reads[g].iter().filter(|&&node| self.readers[node] == [g]))
            .fold(0usize, |sum, &node| sum.saturating_add(self.bytes[node]));
        (freed > 0 && freed >= self.takes[g]).then_some(freed)
    }

    /// Marks a group as run, and returns the groups that are now the last reader of a value.
    fn run(&mut self, g: usize) -> Vec<usize> {
        let mut last = vec![];
        for &node in &self.reads[g] {
            self.readers[node].retain(|&reader| reader != g);
            if let (true, &[only]) = (self.bytes[node] > 0, &self.readers[node][..]) {
                last.push(only);
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::node::Kind;
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::{DType, Graph, Program};

    #[test]
    fn large_products_are_used_as_soon_as_they_are_there_and_small_ones_in_the_order_they_were_written() {
        for (side, at_once) in [(600, true), (20, false)] {
            let g = Graph::new();
            let x = g.input("x", [side, side], DType::F32);
            let weights: Vec<_> = (0..4).map(|i| g.input(format!("w{i}"), [side, side], DType::F32)).collect();
            let products: Vec<_> = weights.iter().map(|&w| x.matmul(w)).collect();
            let mut builder = Program::builder(&g);
            for (&w, &product) in weights.iter().zip(&products) {
                builder = builder.carry(w, w - product * 0.1);
            }
            let schedule = Schedule::new(&builder.build().unwrap(), &Target::PLAIN).unwrap();
            let is_product = |group: &crate::Group| matches!(schedule.nodes[group.members[0]].kind, Kind::Dot(..));
            let kinds: Vec<bool> = schedule.groups().iter().map(is_product).collect();
            assert_eq!(kinds == [true, false, true, false, true, false, true, false], at_once, "{kinds:?}");
            let map = schedule.lay_out(&vec![0; kinds.len()]).unwrap();
            assert_eq!(map.arena_bytes <= 2 * side * side * 4, at_once);
        }
    }
}
