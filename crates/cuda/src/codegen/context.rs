//! What a kernel's text is written from: the program, where its values lie, and which of them are wanted.

use crate::codegen::kernel::{Cell, Code};
use crate::compile::device_asserts::Checks;
use bilevel_graph::Result;
use bilevel_plan::{MemoryMap, Place, Schedule, expect};
use std::collections::HashMap;

/// What a group is part of.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The program.
    pub schedule: &'a Schedule,
    /// Where everything lies.
    pub map: &'a MemoryMap,
    /// By member: the carried input it is written to in place.
    pub updates: &'a HashMap<usize, Vec<usize>>,
    /// What can fail, and must leave carried inputs as they were.
    pub checks: &'a Checks,
    /// Only what every step must compute is wanted: nobody will look at the outputs of this one.
    pub carry_only: bool,
    /// Only workspaces are asked for: no text of a loop is written.
    pub measures: bool,
}

impl Context<'_> {
    /// True if a node is to be computed.
    pub fn wants(&self, node: usize) -> bool {
        !self.carry_only || self.schedule.in_every_step(node)
    }

    /// Where a node lies.
    pub fn place(&self, node: usize) -> Result<Place> {
        expect(self.map.nodes[node], "the memory of a value", self.schedule.nodes[node].location)
    }

    /// The type of a node's elements in memory.
    pub fn cell(&self, node: usize) -> Cell {
        let node = &self.schedule.nodes[node];
        match node.narrow {
            true if node.is_scaled_f16() => Cell::Half,
            true => Cell::Bf16,
            false => node.dtype.into(),
        }
    }

    /// True if one of these members is written over a carried input.
    pub fn overwrites(&self, members: &[usize]) -> bool {
        members.iter().any(|member| self.updates.contains_key(member))
    }

    /// Has a kernel that stores these members do nothing where it would overwrite carried inputs after something has
    /// failed.
    pub fn guard(&self, code: &mut Code, stored: &[usize]) {
        if !self.checks.all.is_empty() && self.overwrites(stored) {
            code.stop_after_report();
        }
    }

    /// Where the values of a member must be written.
    pub fn stores(&self, member: usize) -> Result<Vec<Place>> {
        let mut places = vec![];
        if self.schedule.is_stored(member) {
            places.push(self.place(member)?);
        }
        for &input in self.updates.get(&member).into_iter().flatten() {
            places.push(self.place(input)?);
        }
        // The next value of a carried input may lie where the input does.
        places.dedup();
        Ok(places)
    }
}
