//! The verifier: the invariants of a lowered program between any two passes.
//!
//! Nodes are checked one by one (`nodes.rs`, `storage.rs`), then their connections to inputs, outputs and carries, then
//! groups and their order (`groups.rs`). Rewrites of a program and memory maps have separate rules (`program.rs`,
//! `memory.rs`). An error names the node or group and the rule it breaks.

mod groups;
pub(crate) mod memory;
mod nodes;
pub(crate) mod program;
mod storage;

use crate::internal_error::internal_error;
use crate::ir::lowered::{LoweredProgram, is_computed};
use crate::ir::node::{CastForm, Kind, Operand};
use bilevel_graph::{Error, ErrorKind, Result};

/// The error for a broken rule.
pub(crate) fn broken(rule: String) -> Error {
    Error::new(ErrorKind::Planning { reason: rule })
}

/// An error with this text unless the rule holds.
pub(crate) fn require(holds: bool, rule: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(broken(rule())) }
}

impl LoweredProgram<'_> {
    /// Checks every rule that a lowered program keeps; an error that names the first one broken.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph, Program};
    /// use bilevel_plan::{LoweredProgram, Operand, Schedule, Target};
    /// let g = Graph::new();
    /// let x = g.input("x", [4], DType::F32);
    /// let program = Program::builder(&g).output("y", x.exp()).build()?;
    /// let mut schedule = Schedule::new(&program, &Target::PLAIN)?;
    /// LoweredProgram::of(&schedule).verify()?;
    ///
    /// let Operand::At { view, .. } = &mut schedule.nodes[1].operands[0] else { panic!() };
    /// view.offset = 1;
    /// let said = LoweredProgram::of(&schedule).verify().unwrap_err().to_string();
    /// assert!(said.contains("node 1 reads elements 1 to 4 of node 0, which has 4"), "{said}");
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    pub fn verify(&self) -> Result<()> {
        for (id, node) in self.nodes.iter().enumerate() {
            self.verify_node(id).map_err(|error| error.at(node.location))?;
        }
        self.verify_ports()?;
        self.verify_groups()
    }

    /// Outputs, carries and carried casts.
    fn verify_ports(&self) -> Result<()> {
        for &input in &self.inputs {
            let is_input = self.nodes.get(input).is_some_and(|node| matches!(node.kind, Kind::Input));
            require(is_input, || format!("node {input} is a program input and must be of that kind"))?;
        }
        for (number, output) in self.outputs.iter().enumerate() {
            let (node, _) = self.in_range(output, || format!("output {number}"))?;
            let kind = &self.nodes[node].kind;
            require(!matches!(kind, Kind::Input), || {
                format!("output {number} is the memory of an input, which others may change")
            })?;
            require(!self.nodes[node].storage.is_reduced(), || {
                format!("output {number} is stored in two bytes for each element")
            })?;
        }
        let mut carried = vec![false; self.nodes.len()];
        for carry in &self.carries {
            let what = || format!("the next value of node {}", carry.input);
            let (next, view) = self.in_range(&carry.next, what)?;
            let input = self.nodes.get(carry.input).ok_or_else(|| internal_error("a carried node"))?;
            require(matches!(input.kind, Kind::Input | Kind::CarriedCast(_)), || {
                format!("node {} is carried but neither an input nor a cast of one", carry.input)
            })?;
            require(!std::mem::replace(&mut carried[carry.input], true), || {
                format!("node {} is carried twice", carry.input)
            })?;
            let made = &self.nodes[next];
            let alike = view.count() == input.count() && made.dtype == input.dtype;
            require(alike, || format!("node {next} is the next value of node {} and of another size", carry.input))?;
            require(made.storage == input.storage, || {
                format!("node {next} is the next value of node {} and stored differently", carry.input)
            })?;
        }
        self.verify_casts()
    }

    /// Every carried cast is made once before the first step, a scaled copy after its amax exponent.
    fn verify_casts(&self) -> Result<()> {
        let mut made = vec![false; self.nodes.len()];
        for initial_cast in self.initial_casts {
            let form = match self.nodes.get(initial_cast.cast).map(|node| &node.kind) {
                Some(Kind::CarriedCast(form)) => *form,
                _ => {
                    return Err(broken(format!(
                        "node {} is made before the first step and is no carried cast",
                        initial_cast.cast
                    )));
                }
            };
            let of_input = self.nodes.get(initial_cast.input).is_some_and(|node| matches!(node.kind, Kind::Input));
            require(of_input, || format!("the carried cast {} is not made of an input", initial_cast.cast))?;
            let has_amax = initial_cast.amax.is_some_and(|amax| made.get(amax) == Some(&true));
            require((form == CastForm::ScaledF16) == has_amax, || {
                format!(
                    "the carried cast {} needs the amax exponent of its input before it, if and only if it is scaled",
                    initial_cast.cast
                )
            })?;
            require(!std::mem::replace(&mut made[initial_cast.cast], true), || {
                format!("the carried cast {} is made twice", initial_cast.cast)
            })?;
        }
        let is_cast = |id: &usize| matches!(self.nodes[*id].kind, Kind::CarriedCast(_));
        let lost = (0..self.nodes.len()).filter(is_cast).find(|&id| !made[id]);
        require(lost.is_none(), || format!("the carried cast {lost:?} is not made before the first step"))
    }

    /// The node and view of an operand that must be in memory, inside the memory of a node that exists.
    pub(crate) fn in_range<'o>(
        &self,
        operand: &'o Operand,
        what: impl Fn() -> String,
    ) -> Result<(usize, &'o crate::View)> {
        let (node, view) = operand.at().ok_or_else(|| broken(format!("{} is a constant", what())))?;
        require(node < self.nodes.len(), || format!("{} is node {node}, which does not exist", what()))?;
        self.verify_view(node, view, what)?;
        Ok((node, view))
    }

    /// A view inside the memory of a node.
    pub(crate) fn verify_view(&self, node: usize, view: &crate::View, reader: impl Fn() -> String) -> Result<()> {
        require(view.shape.len() == view.strides.len(), || format!("{} reads a view without strides", reader()))?;
        if view.count() == 0 {
            return Ok(());
        }
        let count = self.nodes[node].count() as isize;
        let (mut first, mut last) = (view.offset, view.offset);
        for (&length, &stride) in view.shape.iter().zip(&view.strides) {
            let reach = (length as isize - 1) * stride;
            if reach < 0 { first += reach } else { last += reach }
        }
        require(first >= 0 && last < count, || {
            format!("{} reads elements {first} to {last} of node {node}, which has {count}", reader())
        })
    }

    /// Returns true for a node that a step or the prologue computes.
    pub(crate) fn computes(&self, id: usize) -> bool {
        is_computed(&self.nodes[id].kind)
    }
}
