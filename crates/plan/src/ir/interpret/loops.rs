//! The interpreter's loops: a few blocks of rows, or of elements if a loop has no rows, one after the other.
//!
//! For each block the members are computed in order from registers and memory, and then written. So a member may be
//! written over memory that its own block is read from, and no other. Every second loop runs backwards: no result may
//! depend on the order of blocks.

use crate::fuse::affine_epilogue::AffineEpilogue;
use crate::fuse::group::{Access, Domain, Role};
use crate::internal_error::internal_error;
use crate::ir::interpret::ops::{Dense, amax_exponent, evaluate};
use crate::ir::interpret::{InterpreterRun, position};
use crate::ir::node::{Elementwise, Kind, Node, Operand};
use bilevel_graph::reference_ops::checked_index;
use bilevel_graph::{DType, Meta, Op, Result, scalar};
use std::collections::HashMap;
use std::ops::Range;

/// A loop has at least this many blocks, or one for each row.
const BLOCKS: usize = 7;

/// The values of a loop at hand: by node, those of the block in work, or of the whole loop.
pub(crate) type Values = HashMap<usize, Vec<f64>>;

/// A loop that runs.
struct Loop {
    group: usize,
    domain: Domain,
    /// Members that this step computes, but for products.
    members: Vec<(usize, Role)>,
    product: Option<usize>,
    /// Values of members of the block in work.
    registers: Values,
    /// Draws, and the operands of reductions, of all blocks.
    all: Values,
    /// Values of all blocks that products of the group read or give and that are not in memory.
    at_hand: Values,
}

impl Loop {
    fn rows(&self, elements: &Range<usize>) -> Range<usize> {
        let row = self.domain.row.unwrap_or(1);
        elements.start / row..elements.end / row
    }
}

impl InterpreterRun {
    /// Runs a loop with its products.
    pub(crate) fn run_loop(&mut self, g: usize, domain: Domain, last: bool) -> Result<()> {
        let group = self.schedule.groups()[g].clone();
        let needed = |id: &usize| last || self.schedule.in_every_step(*id);
        if let (Some(product), Some(form)) = (group.gemm, group.affine) {
            return if needed(&form.result) { self.run_affine(product, form) } else { Ok(()) };
        }
        let is_product = |id: &usize| [group.gemm, group.second_gemm].contains(&Some(*id));
        let members = group.members.iter().filter(|id| needed(id) && !is_product(id));
        let mut work = Loop {
            group: g,
            domain,
            members: members.filter_map(|&id| Some((id, self.schedule.role(id)?))).collect(),
            product: group.gemm,
            registers: Values::new(),
            all: Values::new(),
            at_hand: Values::new(),
        };
        if let Some(product) = group.gemm.filter(needed) {
            self.run_product(product, &mut work)?;
        }
        // If members are complete one after the other, all elements are one block.
        let at_once = domain.n <= self.schedule.grouping.target.can.sequential_max;
        let row = domain.row.unwrap_or(1).max(1);
        let step = if at_once { domain.n.max(1) } else { (domain.n / row / BLOCKS).max(1) * row };
        let starts = (0..domain.n).step_by(step);
        let fails = work.members.iter().any(|(id, _)| self.schedule.index_check(*id).is_some());
        // An error names the first index out of range.
        let starts: Vec<usize> = if g % 2 == 1 && !fails { starts.rev().collect() } else { starts.collect() };
        for start in starts {
            self.run_block(start..domain.n.min(start + step), group.second_gemm.is_some(), &mut work)?;
        }
        self.finish_sinks(&work)?;
        if let Some(next) = group.second_gemm.filter(|next| last || self.schedule.in_every_step(*next)) {
            self.run_product(next, &mut work)?;
        }
        Ok(())
    }

    /// A product whose result is stored after an affine map, as libraries do it: the members of the loop are not run.
    fn run_affine(&mut self, product: usize, form: AffineEpilogue) -> Result<()> {
        let node = self.schedule.nodes[product].clone();
        let Kind::Dot(layout, precision) = &node.kind else { return Err(internal_error("the product of a loop")) };
        let products = self.dot(&node, layout, *precision, &Values::new())?;
        let all = 0..products.len() as isize;
        let addend = form.addend.map(|(read, beta)| Ok((self.elements(read, all.clone())?, beta))).transpose()?;
        let column = |at: isize| at % layout.n as isize;
        let bias = form.bias.map(|(read, first)| self.elements(read, all.map(|at| first + column(at)))).transpose()?;
        for (at, value) in products.into_iter().enumerate() {
            let value = form.alpha * value
                + addend.as_ref().map_or(0.0, |(values, beta)| beta * values[at])
                + bias.as_ref().map_or(0.0, |values| values[at]);
            self.store(form.result, at, scalar::round(value, node.dtype));
        }
        Ok(())
    }

    /// A product of a loop: in memory, or at hand.
    fn run_product(&mut self, id: usize, work: &mut Loop) -> Result<()> {
        let node = self.schedule.nodes[id].clone();
        let Kind::Dot(layout, precision) = &node.kind else { return Err(internal_error("the product of a loop")) };
        let values = self.dot(&node, layout, *precision, &work.at_hand)?;
        if self.map.nodes[id].is_none() {
            let storage = node.storage;
            work.at_hand.insert(id, values.iter().map(|&value| storage.rounded(value)).collect());
        }
        values.into_iter().enumerate().for_each(|(at, value)| self.store(id, at, value));
        Ok(())
    }

    fn run_block(&mut self, elements: Range<usize>, keeps: bool, work: &mut Loop) -> Result<()> {
        for (id, role) in work.members.clone() {
            let node = &self.schedule.nodes[id];
            match role {
                Role::Reduction { full } => {
                    let range = if full { elements.clone() } else { work.rows(&elements) };
                    let count = if full { work.domain.n } else { work.rows(&(0..work.domain.n)).end };
                    let values = self.operand((id, role), &node.operands[0], range.clone(), work)?;
                    work.all.entry(id).or_insert_with(|| vec![f64::NAN; count])[range].copy_from_slice(&values);
                }
                Role::Full | Role::Row => {
                    let values = self.member((id, role), &elements, work)?;
                    work.registers.insert(id, values);
                }
            }
        }
        for (id, role) in work.members.clone() {
            let first = match role {
                Role::Full => elements.start,
                Role::Row => work.rows(&elements).start,
                Role::Reduction { .. } => continue,
            };
            let values = work.registers.remove(&id).ok_or_else(|| internal_error("the value of a member"))?;
            let storage = self.schedule.nodes[id].storage;
            values.iter().enumerate().for_each(|(i, &value)| self.store(id, first + i, value));
            if keeps && role == Role::Full && self.map.nodes[id].is_none() {
                let all = work.at_hand.entry(id).or_insert_with(|| vec![f64::NAN; work.domain.n]);
                values.iter().enumerate().for_each(|(i, &value)| all[first + i] = storage.rounded(value));
            }
        }
        Ok(())
    }

    /// The values of a member for these elements, or for their rows.
    fn member(&self, (id, role): (usize, Role), elements: &Range<usize>, work: &mut Loop) -> Result<Vec<f64>> {
        let node = &self.schedule.nodes[id];
        let own = if role == Role::Full { elements.clone() } else { work.rows(elements) };
        match &node.kind {
            Kind::Elementwise(Elementwise::Random(kind, stream)) => {
                if !work.all.contains_key(&id) {
                    let draws = self.draw(node, &Op::Random(*kind, *stream), work)?;
                    work.all.insert(id, draws);
                }
                Ok(work.all[&id][own].to_vec())
            }
            Kind::Reduce(..) | Kind::ArgMax => {
                let values = self.operand((id, role), &node.operands[0], elements.clone(), work)?;
                let (rows, row) = (own.len(), work.domain.row.ok_or_else(|| internal_error("the rows of a loop"))?);
                let of_rows = Node { shape: vec![rows], ..node.clone() };
                let op = match &node.kind {
                    Kind::Reduce(op, _) => Op::Reduce(*op, vec![1]),
                    _ => Op::ArgMax(1),
                };
                evaluate(&op, &[(Meta { dtype: self.dtype_read(node)?, shape: vec![rows, row] }, values)], &of_rows)
            }
            Kind::InlineGather { stride, limit, checked } => {
                let indices = self.operand((id, role), &node.operands[0], own.clone(), work)?;
                let (table, base) = node.operands[1].at().ok_or_else(|| internal_error("a table"))?;
                let gathered = indices.into_iter().zip(own).map(|(index, element)| {
                    if !(0.0..*limit as f64).contains(&index) {
                        let missed = checked_index("gather", index, *limit, node.location).map(|_| 0.0);
                        return if *checked { missed } else { Ok(0.0) };
                    }
                    self.load(table, position(base, element) + index as isize * *stride as isize)
                });
                gathered.collect()
            }
            Kind::Elementwise(function) => {
                let operands = node.operands.iter().map(|operand| self.operand((id, role), operand, own.clone(), work));
                let operands = operands.collect::<Result<Vec<_>>>()?;
                let mut x = vec![0.0; operands.len()];
                let mut value = |i: usize| {
                    x.iter_mut().zip(&operands).for_each(|(x, values)| *x = values[i]);
                    function.value(&x, node.dtype)
                };
                Ok((0..own.len()).map(&mut value).collect())
            }
            _ => Err(internal_error("the formula of a member of a loop")),
        }
    }

    /// An operand of a member for these of its elements or rows.
    fn operand(
        &self,
        (id, role): (usize, Role),
        operand: &Operand,
        own: Range<usize>,
        work: &Loop,
    ) -> Result<Vec<f64>> {
        let Operand::At { node: read, view } = operand else {
            let Operand::Constant(value) = operand else { return Err(internal_error("an operand")) };
            return Ok(vec![scalar::round(*value, self.schedule.nodes[id].dtype); own.len()]);
        };
        let domain = (work.group, work.domain);
        let access = self.schedule.grouping.access(&self.schedule.nodes, domain, (id, role), operand);
        let held = || work.registers.get(read).ok_or_else(|| internal_error("a value of the same loop"));
        match access.ok_or_else(|| internal_error("a way to read an operand"))? {
            Access::Memory => self.elements(*read, own.map(|element| position(view, element))),
            Access::Register if Some(*read) == work.product => own
                .map(|at| match work.at_hand.get(read) {
                    Some(values) => Ok(values[at]),
                    None => self.load(*read, at as isize),
                })
                .collect(),
            Access::Register => held().cloned(),
            Access::Repeat => {
                let row = work.domain.row.ok_or_else(|| internal_error("the rows of a loop"))?;
                Ok(held()?.iter().flat_map(|&value| std::iter::repeat_n(value, row)).collect())
            }
        }
    }

    /// All draws of a node; its key and counter are read whole.
    fn draw(&self, node: &Node, op: &Op, work: &Loop) -> Result<Vec<f64>> {
        let read = |operand: &Operand| -> Result<Dense> {
            let (read, view) = operand.at().ok_or_else(|| internal_error("the memory of a key"))?;
            let values = match work.registers.get(&read) {
                Some(values) => values.clone(),
                None => self.view(read, view)?,
            };
            Ok((Meta { dtype: DType::I32, shape: view.shape.clone() }, values))
        };
        let operands = node.operands.iter().map(read).collect::<Result<Vec<_>>>()?;
        evaluate(op, &operands, node)
    }

    /// Writes the results of the reductions of a loop.
    fn finish_sinks(&mut self, work: &Loop) -> Result<()> {
        for (id, _) in work.members.iter().filter(|(_, role)| matches!(role, Role::Reduction { .. })) {
            let node = self.schedule.nodes[*id].clone();
            let values = work.all.get(id).cloned().unwrap_or_default();
            let result = match &node.kind {
                Kind::Reduce(op, axes) => {
                    let (_, view) =
                        node.operands[0].at().ok_or_else(|| internal_error("the operand of a reduction"))?;
                    let meta = Meta { dtype: self.dtype_read(&node)?, shape: view.shape.clone() };
                    evaluate(&Op::Reduce(*op, axes.clone()), &[(meta, values)], &node)?
                }
                // Raised from what it was: every part of a loop may raise it.
                Kind::AmaxExponent => vec![amax_exponent(values).max(self.load(*id, 0)?)],
                _ => return Err(internal_error("the formula of a reduction")),
            };
            result.into_iter().enumerate().for_each(|(i, value)| self.store(*id, i, value));
        }
        Ok(())
    }

    fn dtype_read(&self, node: &Node) -> Result<DType> {
        let read = node.operands.first().and_then(Operand::at).map(|(read, _)| self.schedule.nodes[read].dtype);
        read.ok_or_else(|| internal_error("the operand of a reduction"))
    }
}
