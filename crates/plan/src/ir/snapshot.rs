//! A program as a pass leaves it: operations of the graph before `lower`, nodes after it, and steps on a GPU.

use crate::ir::lowered::LoweredProgram;
use bilevel_graph::{Op, Program, ProgramNode};
use std::fmt::Display;

/// A program after a pass, to be printed ([`Display`]) or counted.
pub trait Snapshot: Display {
    /// Operations, or steps, that compute something.
    fn operations(&self) -> usize;

    /// Groups; `None` before fusion, and if groups are already steps.
    fn groups(&self) -> Option<usize>;

    /// Bytes that they write: the results of all operations and, from fusion on, of those that leave their group.
    fn bytes_written(&self) -> usize;
}

impl Snapshot for Program {
    fn operations(&self) -> usize {
        self.nodes.iter().filter(|node| is_operation(node)).count()
    }

    fn groups(&self) -> Option<usize> {
        None
    }

    fn bytes_written(&self) -> usize {
        let bytes = |node: &ProgramNode| {
            node.meta.shape.iter().fold(node.meta.dtype.size(), |bytes, length| bytes.saturating_mul(*length))
        };
        let operations = self.nodes.iter().filter(|node| is_operation(node));
        operations.fold(0, |sum, node| bytes(node).saturating_add(sum))
    }
}

fn is_operation(node: &ProgramNode) -> bool {
    !matches!(node.op, Op::Input(_) | Op::Constant(_))
}

impl Snapshot for LoweredProgram<'_> {
    fn operations(&self) -> usize {
        (0..self.nodes.len()).filter(|&id| self.is_operation(id)).count()
    }

    fn groups(&self) -> Option<usize> {
        self.grouping.map(|grouping| grouping.groups.iter().filter(|group| !group.members.is_empty()).count())
    }

    fn bytes_written(&self) -> usize {
        let stored = self.stored();
        let written = (0..self.nodes.len()).filter(|&id| self.is_operation(id) && stored[id]);
        written.fold(0, |sum, id| self.nodes[id].bytes().saturating_add(sum))
    }
}
