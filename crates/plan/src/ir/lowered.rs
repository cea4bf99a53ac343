//! The lowered program between two passes: nodes, and groups once there are any.

use crate::fuse::group::Grouping;
use crate::fuse::topo_order::TopoOrder;
use crate::ir::node::{Kind, Node, Operand};
use crate::lower::carried_casts::InitialCast;
use crate::schedule::in_place::Carry;
use crate::schedule::{Schedule, stored_nodes};

/// A lowered program, to be printed ([`Display`](std::fmt::Display)), counted or verified ([`verify`](Self::verify)).
pub struct LoweredProgram<'a> {
    pub(crate) nodes: &'a [Node],
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: &'a [Operand],
    pub(crate) carries: Vec<Carry>,
    pub(crate) initial_casts: &'a [InitialCast],
    pub(crate) live: Vec<bool>,
    /// The groups, once there are any.
    pub(crate) grouping: Option<&'a Grouping>,
    /// The order that groups must keep, before they are numbered as they run.
    pub(crate) order: Option<&'a TopoOrder>,
    /// How many groups are invariant, once groups are numbered as they run.
    pub(crate) prologue: Option<usize>,
    /// By node: it is in memory, once that is decided.
    pub(crate) stored: Option<&'a [bool]>,
}

impl<'a> LoweredProgram<'a> {
    /// The lowered program of a finished schedule.
    pub fn of(schedule: &'a Schedule) -> Self {
        let computes = |id: usize| schedule.group_of(id).is_some() || !is_computed(&schedule.nodes[id].kind);
        LoweredProgram {
            nodes: &schedule.nodes,
            inputs: schedule.inputs.clone(),
            outputs: &schedule.outputs,
            carries: schedule.carries.clone(),
            initial_casts: &schedule.initial_casts,
            live: (0..schedule.nodes.len()).map(computes).collect(),
            grouping: Some(&schedule.grouping),
            order: None,
            prologue: Some(schedule.prologue),
            stored: Some(&schedule.stored),
        }
    }

    /// By node: its values are in memory, as far as that is known.
    pub(crate) fn stored(&self) -> Vec<bool> {
        match (self.stored, self.grouping) {
            (Some(stored), _) => stored.to_vec(),
            (None, Some(grouping)) => {
                let copied = self.carries.iter().filter(|carry| !carry.in_place).map(|carry| &carry.next);
                stored_nodes(self.nodes, &self.live, grouping, self.outputs.iter().chain(copied))
            }
            (None, None) => self.live.clone(),
        }
    }

    /// Returns true for a node that computes something that is used.
    pub(crate) fn is_operation(&self, id: usize) -> bool {
        self.live[id] && is_computed(&self.nodes[id].kind)
    }
}

/// False for inputs, carried casts and tables.
pub(crate) fn is_computed(kind: &Kind) -> bool {
    !matches!(kind, Kind::Input | Kind::CarriedCast(_) | Kind::Table(_))
}
