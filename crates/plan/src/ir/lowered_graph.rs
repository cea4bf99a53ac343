//! The lowered graph: nodes, and which of them inputs, outputs and carries are.

use crate::ir::node::{Kind, Node, Operand};
use crate::lower::carried_casts::InitialCast;

/// A program whose operations are nodes with memory, before they are grouped.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoweredGraph {
    pub nodes: Vec<Node>,
    /// The node of each program input that is used.
    pub inputs: Vec<Option<usize>>,
    /// The operand of each output.
    pub outputs: Vec<Operand>,
    /// The input node and the operand of its next value, for every carry.
    pub carries: Vec<(usize, Operand)>,
    /// Carried casts that are computed before the first step.
    pub initial_casts: Vec<InitialCast>,
}

impl LoweredGraph {
    /// Returns which nodes are live.
    pub fn live(&self) -> Vec<bool> {
        let checked = |node: &Node| matches!(node.kind, Kind::CheckIndex { .. } | Kind::Input | Kind::CarriedCast(_));
        let mut live: Vec<bool> = self.nodes.iter().map(checked).collect();
        let results = self.outputs.iter().chain(self.carries.iter().map(|(_, next)| next));
        results.filter_map(Operand::at).for_each(|(node, _)| live[node] = true);
        // Operands precede their readers.
        for id in (0..live.len()).rev() {
            if live[id] {
                self.nodes[id].reads().for_each(|(read, _)| live[read] = true);
            }
        }
        live
    }
}
