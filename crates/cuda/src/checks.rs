//! Operations that fail where an index is out of range, by their numbers.

use bilevel_graph::Result;
use bilevel_plan::{Kind, Schedule, lacks};
use std::collections::HashMap;
use std::panic::Location;

/// An operation that fails where an index is out of range.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    /// Its name.
    pub operation: &'static str,
    /// Indices are below this.
    pub limit: usize,
    /// The line of user code it comes from.
    pub location: &'static Location<'static>,
}

/// All of them in a program, in the order in which they run.
pub(crate) struct Checks {
    /// By number.
    pub all: Vec<Check>,
    /// By node: its number.
    numbers: HashMap<usize, usize>,
}

impl Checks {
    /// Of a program.
    pub fn of(schedule: &Schedule) -> Self {
        let mut found = Checks { all: vec![], numbers: HashMap::new() };
        for &id in schedule.groups().iter().flat_map(|group| &group.members) {
            let node = &schedule.nodes[id];
            let (operation, limit) = match node.kind {
                Kind::Gather { batch } => ("gather", node.operands[0].at().map_or(0, |(_, x)| x.shape[batch])),
                Kind::ScatterAdd { batch } | Kind::AddRows { batch } => ("scatter_add", node.shape[batch]),
                Kind::Fetch { limit, checked: true, .. } => ("gather", limit),
                Kind::CheckIndex { limit, operation } => (operation, limit),
                _ => continue,
            };
            found.numbers.insert(id, found.all.len());
            found.all.push(Check { operation, limit, location: node.location });
        }
        found
    }

    /// True where a step of the loop can fail.
    pub fn are_in_loop(&self, schedule: &Schedule) -> bool {
        self.numbers.keys().any(|&id| schedule.group_of(id).is_some_and(|group| group >= schedule.prologue))
    }

    /// The number of a node that can fail.
    pub fn number(&self, node: usize) -> Result<usize> {
        self.numbers.get(&node).copied().ok_or_else(|| lacks("the number of an operation that can fail"))
    }
}
