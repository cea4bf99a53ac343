//! Carried inputs: which of them are updated in place.

use crate::group::{Grouping, Role};
use crate::lower::Lowering;
use crate::node::{Kind, Node, Operand};
use crate::order::Order;
use std::collections::HashMap;

/// What a carried input becomes at the end of a step.
#[derive(Clone, Debug)]
pub struct Carry {
    /// The node of the input.
    pub input: usize,
    /// Where its next value is. Never a constant.
    pub next: Operand,
    /// The loop that computes the next value writes each element over the old one, where all who need it read it, unless it has
    /// memory of its own; everybody else who reads the old value runs before. Where false, the next value is copied when the
    /// step is over.
    pub in_place: bool,
}

/// Decides for each carry whether the loop that computes the next value can write it over the old one: it reads the old one
/// only element by element, and everybody else who reads it can run before, which the order is made to say.
pub(crate) fn carries_in_place(low: &Lowering, grouping: &Grouping, order: &mut Order) -> Vec<Carry> {
    let mut readers: HashMap<usize, Vec<usize>> = low.carries.iter().map(|(input, _)| (*input, vec![])).collect();
    for (id, node) in low.nodes.iter().enumerate() {
        for (operand, _) in node.reads() {
            readers.entry(operand).and_modify(|readers| readers.push(id));
        }
    }
    // What can fail comes first too, so that a step that fails leaves its inputs as they were.
    let failing: Vec<usize> = (0..low.nodes.len()).filter(|&id| can_fail(&low.nodes, id)).collect();
    let mut carries = vec![];
    for (input, next) in &low.carries {
        let group = next.at().and_then(|(node, view)| {
            let group = grouping.group_of[node]?;
            let simple = low.nodes[node].is_whole(view) && grouping.role[node] == Some(Role::Full);
            let in_step = grouping.reads_in_step(&low.nodes, group, *input);
            (simple && !grouping.groups[group].invariant && in_step).then_some(group)
        });
        let in_place = group.is_some_and(|group| {
            let first = readers.get(input).into_iter().flatten().chain(&failing);
            let in_loop = |&g: &usize| g != group && !grouping.groups[g].invariant;
            let mut first: Vec<usize> = first.filter_map(|&id| grouping.group_of[id]).filter(in_loop).collect();
            first.sort_unstable();
            first.dedup();
            first.into_iter().all(|reader| order.add_edge(reader, group))
        });
        carries.push(Carry { input: *input, next: next.clone(), in_place });
    }
    carries
}

/// True for operations that stop a run where an index is out of range. Places of largest elements never are.
pub(crate) fn can_fail(nodes: &[Node], id: usize) -> bool {
    let indices = match nodes[id].kind {
        Kind::CheckIndex(_) | Kind::ScatterAdd { .. } => 0,
        Kind::Gather { .. } => 1,
        _ => return false,
    };
    let source = nodes[id].operands[indices].at().map(|(node, _)| &nodes[node].kind);
    !matches!(source, Some(Kind::WindowArgMax(_)))
}
