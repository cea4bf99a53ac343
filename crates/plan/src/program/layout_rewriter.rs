//! Rewrites a program with permuted axes of some values.
//!
//! A value v with the permutation o is stored as v', where axis a of v' is axis o\[a\] of v. Operations that are
//! layout-agnostic, or that name their axes, are rewritten for permuted operands; transposes fold into the operand's
//! permutation.

use crate::ir::rewrite::{Rewritable, Rewriter};
use bilevel_graph::shape::inverse_permutation;
use bilevel_graph::{Op, Program, ProgramNode};
use std::collections::HashMap;

/// Axis a of the stored value is axis `order[a]` of the original.
pub(crate) type Permutation = Vec<usize>;

/// The maximum depth of operations that are duplicated for each permutation in which they are read.
const MAX_DUPLICATED_OPERATIONS: usize = 16;

/// The new program so far, and how it stores the values of the old one.
pub(crate) struct LayoutRewriter<'a> {
    /// The new program so far. Values that are emitted on demand have no separate node.
    new: Rewriter<'a, Program>,
    /// By old node: its permutation, or the preferred one.
    orders: Vec<Permutation>,
    /// By old node: the number of operations to emit it, if it needs no memory and is available in any permutation.
    free: Vec<Option<usize>>,
    /// The nodes emitted on demand, by permutation.
    known: HashMap<(usize, Permutation), usize>,
}

impl<'a> LayoutRewriter<'a> {
    pub fn new(old: &'a Program) -> Self {
        LayoutRewriter { new: Rewriter::new(old), orders: vec![], free: vec![], known: HashMap::new() }
    }

    /// Returns an old node.
    pub fn old(&self, id: usize) -> &'a ProgramNode {
        &self.new.old.nodes[id]
    }

    /// Returns the new program.
    pub fn finish(mut self) -> Option<Program> {
        let old = self.new.old;
        let ports = old.inputs.iter().chain(&old.outputs).filter_map(|port| port.node);
        let read = ports.chain(old.carries.iter().map(|carry| carry.next));
        let at: HashMap<usize, usize> = read.map(|node| (node, self.read_as_it_was(node))).collect();
        old.with_nodes(self.new.nodes, |node| at.get(&node).copied())
    }

    /// Returns the permutation of a value.
    pub fn of(&self, id: usize) -> &Permutation {
        &self.orders[id]
    }

    /// Returns true if a value is available in any permutation.
    pub fn is_free(&self, id: usize) -> bool {
        self.free[id].is_some()
    }

    /// Returns true if a function of these operands is cheaply available in any permutation.
    pub fn are_free(&self, operands: &[usize]) -> bool {
        operands.iter().all(|&id| self.free[id].is_some_and(|operations| operations < MAX_DUPLICATED_OPERATIONS))
    }

    /// Adds an operation with the location and type of an old node.
    pub fn push(&mut self, op: Op, inputs: Vec<usize>, shape: Vec<usize>, like: &ProgramNode) -> usize {
        self.new.push(op, inputs, &shape, like.meta.dtype, like)
    }

    /// Adds a transpose.
    pub fn push_transpose(&mut self, of: usize, perm: Permutation, like: &ProgramNode) -> usize {
        let shape = permuted(&self.new.nodes[of].meta.shape, &perm);
        self.push(Op::Transpose(perm), vec![of], shape, like)
    }

    /// Maps the next old node to this new node with this permutation.
    pub fn hold(&mut self, node: usize, order: Permutation) {
        self.next(Some(node), order, None);
    }

    fn next(&mut self, held: Option<usize>, order: Permutation, free: Option<usize>) {
        self.new.hold(held);
        self.orders.push(order);
        self.free.push(free);
    }

    /// Marks the next old node to be emitted on demand: a constant, a broadcast, a function of such, or a transpose.
    pub fn leave(&mut self, id: usize) {
        let node = self.old(id);
        let (order, free) = match &node.op {
            Op::Transpose(perm) => {
                let (operand, back) = (node.inputs[0], inverse_permutation(perm));
                let held = &self.orders[operand];
                // A transpose of a value with the identity permutation is no reason to permute others.
                let order = if is_identity(held) { held.clone() } else { held.iter().map(|&a| back[a]).collect() };
                (order, self.free[operand])
            }
            Op::Broadcast(axes) => {
                let order = self.orders[node.inputs[0]].iter().map(|&a| axes[a]).collect();
                (completed(order, node.meta.shape.len()), Some(1))
            }
            _ => {
                let others = node.inputs.iter().map(|&i| &self.orders[i]).find(|order| !is_identity(order));
                let operations = node.inputs.iter().filter_map(|&i| self.free[i]).max().unwrap_or(0) + 1;
                (others.cloned().unwrap_or_else(|| identity(node)), Some(operations))
            }
        };
        self.next(None, order, free);
    }

    /// Copies the next old node, with operands in the identity permutation.
    pub fn keep(&mut self, id: usize) {
        let node = self.old(id);
        let inputs = node.inputs.iter().map(|&i| self.read_as_it_was(i)).collect();
        let made = self.push(node.op.clone(), inputs, node.meta.shape.clone(), node);
        self.hold(made, identity(node));
    }

    /// Rewrites the next old node for operands in this permutation; returns false if the op is not layout-agnostic.
    pub fn write(&mut self, id: usize, order: &Permutation) -> bool {
        let node = self.old(id);
        let places = inverse_permutation(order);
        let sorted = |axes: &[usize]| {
            let mut axes: Vec<usize> = axes.iter().map(|&a| places[a]).collect();
            axes.sort_unstable();
            axes
        };
        let mut result = order.clone();
        let op = match &node.op {
            Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Convert(_) | Op::StopGradient => node.op.clone(),
            Op::Slice { start, stop, step } => {
                let [start, stop, step] = [start, stop, step].map(|numbers| permuted(numbers, order));
                Op::Slice { start, stop, step }
            }
            Op::Pad { low, high, interior } => {
                let [low, high, interior] = [low, high, interior].map(|numbers| permuted(numbers, order));
                Op::Pad { low, high, interior }
            }
            Op::Reverse(axes) => Op::Reverse(sorted(axes)),
            Op::Concat(axis) => Op::Concat(places[*axis]),
            Op::CumSum { axis, reverse } => Op::CumSum { axis: places[*axis], reverse: *reverse },
            Op::Reduce(how, axes) => {
                let before = |axis: usize| axis - axes.iter().filter(|&&gone| gone < axis).count();
                result = order.iter().filter(|axis| !axes.contains(axis)).map(|&axis| before(axis)).collect();
                Op::Reduce(*how, sorted(axes))
            }
            Op::Reshape => {
                let from = &self.old(node.inputs[0]).meta.shape;
                let Some(order) = regrouped(from, &node.meta.shape, order) else { return false };
                result = order;
                Op::Reshape
            }
            _ => return false,
        };
        let inputs = node.inputs.iter().map(|&i| self.read(i, order)).collect();
        let made = self.push(op, inputs, permuted(&node.meta.shape, &result), node);
        self.hold(made, result);
        true
    }

    /// Returns the new node of an old value in the identity permutation.
    pub fn read_as_it_was(&mut self, id: usize) -> usize {
        let order = identity(self.old(id));
        self.read(id, &order)
    }

    /// Returns the new node of an old value in this permutation.
    pub fn read(&mut self, id: usize, order: &Permutation) -> usize {
        let (node, held) = (self.old(id), self.new.held(id));
        if let Some(held) = held.filter(|_| self.orders[id] == *order) {
            return held;
        }
        if let Op::Transpose(perm) = &node.op {
            return self.read(node.inputs[0], &permuted(perm, order));
        }
        if let Some(&known) = self.known.get(&(id, order.clone())) {
            return known;
        }
        let made = match (held, &node.op) {
            (Some(held), _) => {
                let places = inverse_permutation(&self.orders[id]);
                self.push_transpose(held, permuted(&places, order), node)
            }
            (None, Op::Broadcast(axes)) => {
                let inner = order.iter().filter_map(|axis| axes.iter().position(|a| a == axis)).collect();
                let operand = self.read(node.inputs[0], &inner);
                let axes = (0..order.len()).filter(|&a| axes.contains(&order[a])).collect();
                self.push(Op::Broadcast(axes), vec![operand], permuted(&node.meta.shape, order), node)
            }
            (None, op) => {
                let op = match op {
                    Op::Iota(axis) => Op::Iota(inverse_permutation(order)[*axis]),
                    op => op.clone(),
                };
                let inputs = node.inputs.iter().map(|&i| self.read(i, order)).collect();
                self.push(op, inputs, permuted(&node.meta.shape, order), node)
            }
        };
        self.known.insert((id, order.clone()), made);
        made
    }
}

/// Returns the identity permutation of a node's axes.
fn identity(node: &ProgramNode) -> Permutation {
    (0..node.meta.shape.len()).collect()
}

pub(crate) fn is_identity(order: &[usize]) -> bool {
    order.iter().copied().eq(0..order.len())
}

/// Permutes numbers: entry a of the result is entry `order[a]`.
pub(crate) fn permuted(numbers: &[usize], order: &[usize]) -> Vec<usize> {
    order.iter().map(|&axis| numbers[axis]).collect()
}

/// Completes a permutation of some axes, inserting each missing axis after its predecessor.
fn completed(mut order: Permutation, rank: usize) -> Permutation {
    for axis in (0..rank).filter(|axis| !order.contains(axis)).collect::<Vec<_>>() {
        let place = order.iter().position(|&other| other + 1 == axis).map_or(0, |place| place + 1);
        order.insert(place, axis);
    }
    order
}

/// Returns the permutation of a reshape's result for an operand in this permutation, if axes that are split or merged
/// are still adjacent.
pub(crate) fn regrouped(from: &[usize], to: &[usize], order: &Permutation) -> Option<Permutation> {
    if is_identity(order) {
        return Some((0..to.len()).collect());
    }
    if from.contains(&0) {
        return None;
    }
    let (mut result, mut at) = (vec![], 0);
    let long: Vec<usize> = order.iter().copied().filter(|&axis| from[axis] != 1).collect();
    let groups = groups(from, to);
    while let Some(first) = long.get(at) {
        let (old, new) = groups.iter().find(|(old, _)| old.first() == Some(first))?;
        if long.get(at..at + old.len())? != old.as_slice() {
            return None;
        }
        result.extend(new);
        at += old.len();
    }
    Some(completed(result, to.len()))
}

/// Returns the smallest runs of axes of two shapes with equal numbers of elements, in order, without axes of length 1.
fn groups(from: &[usize], to: &[usize]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let long = |shape: &[usize]| (0..shape.len()).filter(|&axis| shape[axis] != 1).collect::<Vec<_>>();
    let (mut from_axes, mut to_axes) = (long(from).into_iter(), long(to).into_iter());
    let mut groups = vec![];
    while let (Some(a), Some(b)) = (from_axes.next(), to_axes.next()) {
        let (mut old, mut new, mut counts) = (vec![a], vec![b], (from[a], to[b]));
        while counts.0 != counts.1 {
            let next = if counts.0 < counts.1 { from_axes.next() } else { to_axes.next() };
            match next {
                Some(axis) if counts.0 < counts.1 => {
                    counts.0 *= from[axis];
                    old.push(axis);
                }
                Some(axis) => {
                    counts.1 *= to[axis];
                    new.push(axis);
                }
                None => return groups,
            }
        }
        groups.push((old, new));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reshape_keeps_a_permutation_in_which_the_axes_it_merges_are_adjacent() {
        let last = vec![0, 2, 3, 1];
        // Two-by-two windows split from an image, and merged again.
        let (image, windows) = ([8, 4, 6, 10], [8, 4, 3, 2, 5, 2]);
        let cut = regrouped(&image, &windows, &last).unwrap();
        assert_eq!(cut, [0, 2, 3, 4, 5, 1]);
        assert_eq!(regrouped(&windows, &image, &cut).unwrap(), last);
        // Rows and columns merge; rows and channels cannot.
        assert_eq!(regrouped(&image, &[8, 4, 60], &last).unwrap(), [0, 2, 1]);
        assert_eq!(regrouped(&image, &[8, 24, 10], &last), None);
        // Axes of length 1 appear and disappear.
        assert_eq!(regrouped(&image, &[8, 1, 4, 6, 10, 1], &last).unwrap(), [0, 1, 3, 4, 5, 2]);
        assert_eq!(regrouped(&[8, 4, 1, 1], &[8, 4], &last).unwrap(), [0, 1]);
    }
}
