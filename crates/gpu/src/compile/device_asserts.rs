//! Device-side asserts: the index checks of a program and their numbers.

use bilevel_graph::Line;
use bilevel_plan::{IndexCheck, Schedule};
use std::collections::HashMap;

/// An operation that fails if an index is out of range.
#[derive(Clone, Debug)]
pub struct Check {
    /// The check.
    pub of: IndexCheck,
    /// The line of user code.
    pub location: Line,
}

/// All checks of a program, in the order in which they run.
pub struct Checks {
    /// By number.
    pub all: Vec<Check>,
    /// By node: its number.
    numbers: HashMap<usize, usize>,
}

impl Checks {
    /// Collects the checks of a schedule.
    pub fn of(schedule: &Schedule) -> Self {
        let mut found = Checks { all: vec![], numbers: HashMap::new() };
        for &id in schedule.groups().iter().flat_map(|group| &group.members) {
            if let Some(of) = schedule.index_check(id) {
                found.numbers.insert(id, found.all.len());
                found.all.push(Check { of, location: schedule.nodes[id].location });
            }
        }
        found
    }

    /// Returns true if a step of the loop can fail.
    pub fn are_in_loop(&self, schedule: &Schedule) -> bool {
        self.numbers.keys().any(|&id| schedule.group_of(id).is_some_and(|group| group >= schedule.prologue))
    }

    /// The number of a node's check; `None` if the node cannot fail.
    pub fn number(&self, node: usize) -> Option<usize> {
        self.numbers.get(&node).copied()
    }
}
