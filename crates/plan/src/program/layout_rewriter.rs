//! A program written anew with the axes of some values in another order.
//!
//! A value v whose axes stand in the order o is held as v' with axis a of v' being axis o\[a\] of v. Operations that treat all axes
//! alike, or name the ones they mean, are written for operands in any order; a transpose is no operation at all but another order to
//! read its operand in.

use bilevel_graph::shape::inverse_permutation;
use bilevel_graph::{Meta, Op, ProgramNode};
use std::collections::HashMap;

/// Axis a of what is held is axis `order[a]` of the value.
pub(crate) type Permutation = Vec<usize>;

/// Most operations one after the other that are written again for each order they are read in.
const MAX_DUPLICATED_OPERATIONS: usize = 16;

/// The new program as far as it is written, and how it holds the values of the old one.
pub(crate) struct LayoutRewriter<'a> {
    /// The old program.
    pub old: &'a [ProgramNode],
    /// The new one.
    pub nodes: Vec<ProgramNode>,
    /// By old node: the order in which it is held, or can best be had.
    orders: Vec<Permutation>,
    /// By old node: the new one that holds it; none for what is written as it is read.
    held: Vec<Option<usize>>,
    /// By old node: where it is made of numbers that take no memory and can be had in any order, how many operations that takes.
    free: Vec<Option<usize>>,
    /// What was written for a reader in this order.
    known: HashMap<(usize, Permutation), usize>,
}

impl<'a> LayoutRewriter<'a> {
    pub fn new(old: &'a [ProgramNode]) -> Self {
        LayoutRewriter { old, nodes: vec![], orders: vec![], held: vec![], free: vec![], known: HashMap::new() }
    }

    /// The order in which a value is held.
    pub fn of(&self, id: usize) -> &Permutation {
        &self.orders[id]
    }

    /// True where a value can be had in any order.
    pub fn is_free(&self, id: usize) -> bool {
        self.free[id].is_some()
    }

    /// True where a function of these operands can be had in any order, for little.
    pub fn are_free(&self, operands: &[usize]) -> bool {
        operands.iter().all(|&id| self.free[id].is_some_and(|operations| operations < MAX_DUPLICATED_OPERATIONS))
    }

    /// Adds an operation in the name of an old node.
    pub fn push(&mut self, op: Op, inputs: Vec<usize>, shape: Vec<usize>, like: &ProgramNode) -> usize {
        let meta = Meta { dtype: like.meta.dtype, shape };
        self.nodes.push(ProgramNode { op, inputs, meta, location: like.location });
        self.nodes.len() - 1
    }

    /// Adds a transpose.
    pub fn push_transpose(&mut self, of: usize, perm: Permutation, like: &ProgramNode) -> usize {
        let shape = permuted(&self.nodes[of].meta.shape, &perm);
        self.push(Op::Transpose(perm), vec![of], shape, like)
    }

    /// The next old value is held by this new node, in this order.
    pub fn hold(&mut self, node: usize, order: Permutation) {
        self.next(Some(node), order, None);
    }

    fn next(&mut self, held: Option<usize>, order: Permutation, free: Option<usize>) {
        self.held.push(held);
        self.orders.push(order);
        self.free.push(free);
    }

    /// The next old value is written whenever somebody reads it: a constant, a broadcast, a function of such, or a transpose.
    pub fn leave(&mut self, id: usize) {
        let node = &self.old[id];
        let (order, free) = match &node.op {
            Op::Transpose(perm) => {
                let (operand, back) = (node.inputs[0], inverse_permutation(perm));
                let held = &self.orders[operand];
                // A transpose of what lies as it always did is no reason to have anything in another order.
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

    /// The next old value is what it was, of operands as they were.
    pub fn keep(&mut self, id: usize) {
        let node = &self.old[id];
        let inputs = node.inputs.iter().map(|&i| self.read_as_it_was(i)).collect();
        let made = self.push(node.op.clone(), inputs, node.meta.shape.clone(), node);
        self.hold(made, identity(node));
    }

    /// The next old value is computed of operands in this order; says no where the operation cannot be.
    pub fn write(&mut self, id: usize, order: &Permutation) -> bool {
        let node = &self.old[id];
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
                let from = &self.old[node.inputs[0]].meta.shape;
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

    /// The new node with the value of an old one as it was.
    pub fn read_as_it_was(&mut self, id: usize) -> usize {
        let order = identity(&self.old[id]);
        self.read(id, &order)
    }

    /// The new node with the value of an old one in this order.
    pub fn read(&mut self, id: usize, order: &Permutation) -> usize {
        let (node, held) = (&self.old[id], self.held[id]);
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

/// All axes of a node's value in turn.
fn identity(node: &ProgramNode) -> Permutation {
    (0..node.meta.shape.len()).collect()
}

pub(crate) fn is_identity(order: &[usize]) -> bool {
    order.iter().copied().eq(0..order.len())
}

/// Number a is number `order[a]` of these.
pub(crate) fn permuted(numbers: &[usize], order: &[usize]) -> Vec<usize> {
    order.iter().map(|&axis| numbers[axis]).collect()
}

/// An order of some axes with the rest of them put in, each behind the one before it.
fn completed(mut order: Permutation, rank: usize) -> Permutation {
    for axis in (0..rank).filter(|axis| !order.contains(axis)).collect::<Vec<_>>() {
        let place = order.iter().position(|&other| other + 1 == axis).map_or(0, |place| place + 1);
        order.insert(place, axis);
    }
    order
}

/// The order of the axes of a reshape's result, where it can be made of an operand in this order: every axis that is cut, and all
/// axes that become one, must still stand together.
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

/// The smallest runs of axes of two shapes that have the same number of elements, in turn; axes of length 1 are in none.
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
    fn a_reshape_keeps_an_order_that_leaves_together_what_it_joins() {
        let last = vec![0, 2, 3, 1];
        // Windows of two by two cut out of an image, and put together again.
        let (image, windows) = ([8, 4, 6, 10], [8, 4, 3, 2, 5, 2]);
        let cut = regrouped(&image, &windows, &last).unwrap();
        assert_eq!(cut, [0, 2, 3, 4, 5, 1]);
        assert_eq!(regrouped(&windows, &image, &cut).unwrap(), last);
        // Rows and columns become one, rows and channels cannot.
        assert_eq!(regrouped(&image, &[8, 4, 60], &last).unwrap(), [0, 2, 1]);
        assert_eq!(regrouped(&image, &[8, 24, 10], &last), None);
        // Axes of length 1 come and go.
        assert_eq!(regrouped(&image, &[8, 1, 4, 6, 10, 1], &last).unwrap(), [0, 1, 3, 4, 5, 2]);
        assert_eq!(regrouped(&[8, 4, 1, 1], &[8, 4], &last).unwrap(), [0, 1]);
    }
}
