//! The context of code generation: the schedule, its memory, and the wanted members.

use crate::codegen::kernel::Code;
use crate::codegen::renderer::Dialect;
use crate::compile::device_asserts::Checks;
use bilevel_graph::Result;
use bilevel_plan::{Access, MemoryMap, Operand, Place, Schedule, StorageType, expect};
use std::collections::HashMap;

/// The context of a group.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The language of kernels.
    pub dialect: Dialect,
    /// The program.
    pub schedule: &'a Schedule,
    /// The addresses of all values.
    pub map: &'a MemoryMap,
    /// By member: the carried inputs it updates in place.
    pub updates: &'a HashMap<usize, Vec<usize>>,
    /// The checks that can fail, after which carried inputs must stay unchanged.
    pub checks: &'a Checks,
    /// Whether only carried values are wanted, because the outputs of this step are not needed.
    pub carry_only: bool,
    /// Whether only workspace sizes are wanted: no kernel text is generated.
    pub measures: bool,
    /// The product whose epilogue is run as a separate loop, and the place from which that loop reads it.
    pub product: Option<(usize, Place)>,
}

impl Context<'_> {
    /// Returns true if a node must be computed.
    pub fn wants(&self, node: usize) -> bool {
        !self.carry_only || self.schedule.in_every_step(node)
    }

    /// Returns the address of a node.
    pub fn place(&self, node: usize) -> Result<Place> {
        let product = self.product.filter(|(product, _)| *product == node).map(|(_, place)| place);
        expect(product.or(self.map.nodes[node]), "the memory of a value", self.schedule.nodes[node].location)
    }

    /// Returns how a member of a loop reads an operand: a product that was computed before its epilogue, from memory.
    pub fn access(&self, member: usize, operand: &Operand) -> Option<Access> {
        let read = operand.at().map(|(read, _)| read);
        let is_product = self.product.is_some_and(|(product, _)| Some(product) == read);
        if is_product { Some(Access::Memory) } else { self.schedule.access(member, operand) }
    }

    /// Returns the element type of a node in memory.
    pub fn storage(&self, node: usize) -> StorageType {
        self.schedule.nodes[node].storage
    }

    /// Returns true if one of these members overwrites a carried input.
    pub fn overwrites(&self, members: &[usize]) -> bool {
        members.iter().any(|member| self.updates.contains_key(member))
    }

    /// Makes a kernel exit early after a failure if it would overwrite carried inputs.
    pub fn guard(&self, code: &mut Code, stored: &[usize]) {
        if !self.checks.all.is_empty() && self.overwrites(stored) {
            code.stop_after_report();
        }
    }

    /// Returns the addresses to which a member must be stored.
    pub fn stores(&self, member: usize) -> Result<Vec<Place>> {
        let mut places = vec![];
        if self.schedule.is_stored(member) {
            places.push(self.place(member)?);
        }
        for &input in self.updates.get(&member).into_iter().flatten() {
            places.push(self.place(input)?);
        }
        // The next value of a carried input may share its address.
        places.dedup();
        Ok(places)
    }
}
