//! The program of one rank: every operation in its chosen way, and the communication of its operands.

use crate::partition::analysis::Analysis;
use crate::partition::placement::{Owned, Placement, Sharding};
use crate::partition::rules::Way;
use bilevel_graph::shape::{inverse_permutation, other_axes};
use bilevel_graph::{
    Collective, CollectiveKind, Error, ErrorKind, Link, Meta, Op, Port, Program, ProgramNode, ReduceOp, Result,
};
use std::collections::HashMap;

/// A rank's program in the making.
pub(crate) struct Emitter<'a> {
    program: &'a Program,
    link: &'a Link,
    owned: &'a Owned,
    nodes: Vec<ProgramNode>,
    /// The values of the program's nodes: by node and placement, the new node.
    made: HashMap<(usize, Placement), usize>,
}

/// Returns the program of this rank of the link.
pub(crate) fn emit(program: &Program, analysis: &Analysis, link: &Link, owned: &Owned) -> Result<Program> {
    let mut emitter = Emitter { program, link, owned, nodes: vec![], made: HashMap::new() };
    for (number, way) in analysis.ways.iter().enumerate() {
        emitter.operation(number, way)?;
        if analysis.summed[number] && way.result.is_partial() {
            emitter.at(number, &Placement::Replicated)?;
        }
    }
    emitter.finish()
}

impl Emitter<'_> {
    fn finish(mut self) -> Result<Program> {
        let (mut inputs, mut outputs) = (self.program.inputs.clone(), self.program.outputs.clone());
        let mut carries = self.program.carries.clone();
        let owned = self.owned;
        let mut place = |port: &mut Port, place: &Placement| -> Result<()> {
            port.node = port.node.map(|node| self.at(node, place)).transpose()?;
            port.meta.shape = place.local(&port.meta.shape, self.link.rank());
            Ok(())
        };
        inputs.iter_mut().zip(&owned.inputs).try_for_each(|(port, own)| place(port, own))?;
        outputs.iter_mut().zip(&owned.outputs).try_for_each(|(port, own)| place(port, own))?;
        for carry in &mut carries {
            carry.next = self.at(carry.next, &owned.inputs[carry.input])?;
        }
        Ok(Program { nodes: self.nodes, inputs, outputs, carries, step: self.program.step, shards: vec![] })
    }

    fn push(&mut self, op: Op, inputs: Vec<usize>, meta: Meta, like: usize) -> usize {
        self.nodes.push(ProgramNode { op, inputs, meta, location: self.program.nodes[like].location });
        self.nodes.len() - 1
    }

    fn shape(&self, node: usize) -> &[usize] {
        &self.nodes[node].meta.shape
    }

    /// An operation on this rank's parts.
    fn operation(&mut self, number: usize, way: &Way) -> Result<()> {
        let node = &self.program.nodes[number];
        let mut operands = vec![];
        for (&input, place) in node.inputs.iter().zip(&way.operands) {
            operands.push(self.at(input, place)?);
        }
        let meta = Meta { dtype: node.meta.dtype, shape: way.result.local(&node.meta.shape, self.link.rank()) };
        let mut op = node.op.clone();
        if let (Op::Slice { stop, .. }, Some(Sharding { axis, .. })) = (&mut op, way.result.sharding()) {
            stop[*axis] = meta.shape[*axis];
        }
        let mut made = self.push(op, operands, meta, number);
        if way.is_maximum {
            made = self.largest(made, number);
        }
        self.made.insert((number, way.result.clone()), made);
        Ok(())
    }

    /// The largest of the values of all ranks.
    fn largest(&mut self, own: usize, like: usize) -> usize {
        let meta = self.nodes[own].meta.clone();
        let shaped = |n: usize| Meta { dtype: meta.dtype, shape: [&[n], &meta.shape[..]].concat() };
        let row = self.push(Op::Reshape, vec![own], shaped(1), like);
        let ranks = self.link.size();
        let all = self.collective(CollectiveKind::GatherRanks(vec![1; ranks]), row, shaped(ranks).shape, like);
        self.push(Op::Reduce(ReduceOp::Max, vec![0]), vec![all], meta, like)
    }

    fn collective(&mut self, kind: CollectiveKind, x: usize, shape: Vec<usize>, like: usize) -> usize {
        let collective = Collective { kind, link: self.link.clone() };
        let meta = Meta { dtype: self.nodes[x].meta.dtype, shape };
        self.push(Op::Collective(collective), vec![x], meta, like)
    }

    /// The value of a node of the program in the needed placement.
    fn at(&mut self, number: usize, place: &Placement) -> Result<usize> {
        let key = (number, place.clone());
        if let Some(&made) = self.made.get(&key) {
            return Ok(made);
        }
        let known = |place: &Placement| self.made.get(&(number, place.clone())).copied();
        let terms = known(&Placement::Partial);
        let made = match (place, known(&Placement::Replicated)) {
            (Placement::Replicated, _) => match terms {
                Some(terms) => {
                    let shape = self.shape(terms).to_vec();
                    self.collective(CollectiveKind::SumRanks, terms, shape, number)
                }
                None => self.gathered(number)?,
            },
            // 0 is the sum of zeros; no other value is needed in terms.
            (Placement::Partial, Some(whole)) => whole,
            (Placement::Partial, None) => return Err(misplaced(number, place)),
            (Placement::Sharded(at), Some(_)) => self.own_part(number, at)?,
            (Placement::Sharded(at), None) => match terms {
                Some(terms) => self.scattered(terms, at, number),
                None => {
                    self.at(number, &Placement::Replicated)?;
                    self.own_part(number, at)?
                }
            },
        };
        self.made.insert(key, made);
        Ok(made)
    }

    /// Parts of all ranks, one after another along their axis.
    fn gathered(&mut self, number: usize) -> Result<usize> {
        let parts = self.made.iter().filter(|((node, _), _)| *node == number);
        let parts = parts.filter_map(|((_, place), &made)| Some((place.sharding()?.clone(), made)));
        // The first of several: the order of a hash table is not the same on every rank.
        let Some((at, own)) = parts.min_by_key(|(_, made)| *made) else {
            return Err(misplaced(number, &Placement::Replicated));
        };
        let front = self.with_first(own, at.axis, number);
        let mut shape = self.shape(front).to_vec();
        shape[0] = at.parts.iter().sum();
        let all = self.collective(CollectiveKind::GatherRanks(at.parts.to_vec()), front, shape, number);
        Ok(self.with_restored(all, at.axis, number))
    }

    /// This rank's part of a sum of terms.
    fn scattered(&mut self, terms: usize, at: &Sharding, like: usize) -> usize {
        let front = self.with_first(terms, at.axis, like);
        let mut shape = self.shape(front).to_vec();
        shape[0] = at.parts[self.link.rank()];
        let own = self.collective(CollectiveKind::ScatterSum(at.parts.to_vec()), front, shape, like);
        self.with_restored(own, at.axis, like)
    }

    /// With an axis before all others, whose order stays.
    fn with_first(&mut self, x: usize, axis: usize, like: usize) -> usize {
        let rank = self.shape(x).len();
        self.transposed(x, [&[axis], &other_axes(rank, &[axis])[..]].concat(), like)
    }

    fn with_restored(&mut self, x: usize, axis: usize, like: usize) -> usize {
        let rank = self.shape(x).len();
        self.transposed(x, inverse_permutation(&[&[axis], &other_axes(rank, &[axis])[..]].concat()), like)
    }

    fn transposed(&mut self, x: usize, perm: Vec<usize>, like: usize) -> usize {
        if perm.is_sorted() {
            return x;
        }
        let meta = &self.nodes[x].meta;
        let meta = Meta { dtype: meta.dtype, shape: perm.iter().map(|&from| meta.shape[from]).collect() };
        self.push(Op::Transpose(perm), vec![x], meta, like)
    }

    /// This rank's part of a value that it has as a whole: computed as such if that only changes a shape.
    fn own_part(&mut self, number: usize, at: &Sharding) -> Result<usize> {
        let node = &self.program.nodes[number];
        let place = at.place();
        let meta = Meta { dtype: node.meta.dtype, shape: place.local(&node.meta.shape, self.link.rank()) };
        match &node.op {
            Op::Constant(_) => return Ok(self.push(node.op.clone(), vec![], meta, number)),
            Op::Iota(axis) if *axis != at.axis => return Ok(self.push(node.op.clone(), vec![], meta, number)),
            Op::Broadcast(axes) => {
                let from = axes.iter().position(|&axis| axis == at.axis);
                let operand = from.map_or(Placement::Replicated, |axis| at.on(axis).place());
                let operand = self.at(node.inputs[0], &operand)?;
                return Ok(self.push(node.op.clone(), vec![operand], meta, number));
            }
            _ => {}
        }
        let whole = self.at(number, &Placement::Replicated)?;
        let own = Collective::own_part(&at.parts, self.link.rank());
        let (mut start, mut stop) = (vec![0; meta.shape.len()], node.meta.shape.clone());
        (start[at.axis], stop[at.axis]) = (own.start, own.end);
        let step = vec![1; start.len()];
        Ok(self.push(Op::Slice { start, stop, step }, vec![whole], meta, number))
    }
}

/// An error of the rules: a value is needed in an unreachable placement.
fn misplaced(number: usize, place: &Placement) -> Error {
    Error::new(ErrorKind::Planning { reason: format!("operation {number} cannot be placed as {place}") })
}
