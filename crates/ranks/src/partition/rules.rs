//! One propagation rule per primitive: from the placements of its operands to the ways in which ranks can compute it on
//! their parts.
//!
//! A way is a placement of each operand and of the result. With op applied to the parts of the operands,
//!
//!   replicated operands → replicated,    equal parts along an axis that op does not mix → parts of the result,
//!   parts of a summed axis → terms of a sum,    terms of a sum through a linear op → terms of a sum.
//!
//! If no way exists, the operands are gathered, and every rank computes the whole.

use crate::partition::placement::{Placement, Sharding};
use crate::partition::reshaped::reshaped;
use bilevel_graph::shape::other_axes;
use bilevel_graph::{BinaryOp, BlockOp, ConvDims, DotDims, Meta, Op, ReduceOp, UnaryOp};

/// A way to compute an operation on the parts of ranks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Way {
    /// The required placement of each operand.
    pub operands: Vec<Placement>,
    /// The placement of the result.
    pub result: Placement,
    /// The ranks' results are maxima of their parts, of which the largest is the result.
    pub is_maximum: bool,
}

/// An operation whose operands have places.
pub(crate) struct Site<'a> {
    pub op: &'a Op,
    pub operands: Vec<&'a Meta>,
    pub result: &'a Meta,
    pub have: Vec<&'a Placement>,
    /// By operand: it is the constant 0.
    pub zero: Vec<bool>,
}

impl Site<'_> {
    /// The way that always exists: every rank computes the whole.
    pub fn whole(&self) -> Way {
        way(vec![Placement::Replicated; self.operands.len()], Placement::Replicated)
    }

    /// All ways in which some sharded operand keeps its placement.
    pub fn ways(&self) -> Vec<Way> {
        let mut ways: Vec<Way> = self.linear().into_iter().collect();
        for (number, place) in self.have.iter().enumerate() {
            let Placement::Sharded(sharding) = place else { continue };
            if let Some(way) = self.along(number, sharding)
                && !ways.contains(&way)
            {
                ways.push(way);
            }
        }
        ways
    }

    fn rank(&self, operand: usize) -> usize {
        self.operands[operand].shape.len()
    }

    /// The way in which an operand keeps its parts.
    fn along(&self, number: usize, at: &Sharding) -> Option<Way> {
        let axis = at.axis;
        match self.op {
            Op::Input(_) | Op::Constant(_) | Op::Iota(_) | Op::Random(..) | Op::Custom(_) => None,
            Op::Host(_) | Op::Collective(_) => None,
            Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Convert(_) | Op::CheckIndex(_) | Op::StopGradient => {
                Some(self.same_axis(at))
            }
            Op::Reshape => self.one(at, reshaped(at, &self.operands[0].shape, &self.result.shape)?),
            Op::Transpose(perm) => self.one(at, at.on(perm.iter().position(|&from| from == axis)?)),
            Op::Broadcast(axes) => self.one(at, at.on(axes[axis])),
            Op::Slice { start, stop, step } => {
                let whole = start[axis] == 0 && stop[axis] == self.operands[0].shape[axis] && step[axis] == 1;
                whole.then(|| self.same_axis(at))
            }
            Op::Pad { low, high, interior } => {
                ([low[axis], high[axis], interior[axis]] == [0; 3]).then(|| self.same_axis(at))
            }
            Op::Concat(along) => (axis != *along).then(|| self.same_axis(at)),
            Op::Reverse(axes) => (!axes.contains(&axis)).then(|| self.same_axis(at)),
            Op::CumSum { axis: along, .. } => (axis != *along).then(|| self.same_axis(at)),
            Op::Reduce(op, axes) => Some(self.reduce(*op, axes, at)),
            Op::ArgMax(along) => (axis != *along).then(|| self.one(at, at.on(axis - usize::from(axis > *along))))?,
            Op::Dot(dims, _) => Some(self.dot(dims, number, at)),
            Op::Conv(dims, ..) => self.conv(dims, number, at),
            Op::Gather { batch } => self.gather(*batch, number, at),
            Op::ScatterAdd { batch, .. } => self.scatter_add(*batch, number, at),
            Op::WindowArgMax(_) => (axis + 2 < self.rank(0)).then(|| self.same_axis(at)),
            Op::Block(op) => self.block(*op, at),
        }
    }

    /// Every operand and the result in parts along one axis.
    fn same_axis(&self, at: &Sharding) -> Way {
        way(vec![at.place(); self.operands.len()], at.place())
    }

    /// The only operand in parts.
    fn one(&self, at: &Sharding, result: Sharding) -> Option<Way> {
        Some(way(vec![at.place()], result.place()))
    }

    /// One operand in parts, the others whole.
    fn alone(&self, number: usize, at: &Sharding, result: Placement) -> Way {
        let mut operands = vec![Placement::Replicated; self.operands.len()];
        operands[number] = at.place();
        way(operands, result)
    }

    fn reduce(&self, op: ReduceOp, axes: &[usize], at: &Sharding) -> Way {
        let operands = vec![at.place()];
        match op {
            _ if !axes.contains(&at.axis) => {
                let before = axes.iter().filter(|&&axis| axis < at.axis).count();
                way(operands, at.on(at.axis - before).place())
            }
            ReduceOp::Sum => way(operands, Placement::Partial),
            ReduceOp::Max => Way { operands, result: Placement::Replicated, is_maximum: true },
        }
    }

    /// Parts of a batch axis or a free axis are parts of the result; parts of a contracted axis are terms of it.
    fn dot(&self, dims: &DotDims, number: usize, at: &Sharding) -> Way {
        let contract = [&dims.lhs_contract, &dims.rhs_contract];
        let batch = [&dims.lhs_batch, &dims.rhs_batch];
        let find = |axes: &[usize]| axes.iter().position(|&axis| axis == at.axis);
        let paired = |axes: [&Vec<usize>; 2], k: usize| vec![at.on(axes[0][k]).place(), at.on(axes[1][k]).place()];
        if let Some(k) = find(contract[number]) {
            return way(paired(contract, k), Placement::Partial);
        }
        if let Some(k) = find(batch[number]) {
            return way(paired(batch, k), at.on(k).place());
        }
        let free = |side: usize| other_axes(self.rank(side), &[&batch[side][..], contract[side]].concat());
        let before = if number == 0 { 0 } else { free(0).len() };
        let place = free(number).iter().take_while(|&&axis| axis != at.axis).count();
        self.alone(number, at, at.on(dims.lhs_batch.len() + before + place).place())
    }

    /// Image `[n, c, h, w]`, kernel `[o, c, kh, kw]`: n and o are axes of the result, c is summed over.
    fn conv(&self, dims: &ConvDims, number: usize, at: &Sharding) -> Option<Way> {
        match (number, at.axis) {
            (0, 0) => Some(self.alone(0, at, at.place())),
            (1, 0) if dims.groups == 1 => Some(self.alone(1, at, at.on(1).place())),
            (_, 1) if dims.groups == 1 => Some(way(vec![at.place(); 2], Placement::Partial)),
            _ => None,
        }
    }

    /// x `[b.., n, inner..]`, indices `[b.., k..]`: `[b.., k.., inner..]`.
    fn gather(&self, batch: usize, number: usize, at: &Sharding) -> Option<Way> {
        let of_indices = self.rank(1);
        match (number, at.axis) {
            (_, axis) if axis < batch => Some(self.same_axis(at)),
            (0, axis) if axis == batch => None,
            (0, axis) => Some(self.alone(0, at, at.on(of_indices + axis - batch - 1).place())),
            (_, axis) => Some(self.alone(1, at, at.on(axis).place())),
        }
    }

    /// Indices `[b.., k..]`, updates `[b.., k.., inner..]`: `[b.., size, inner..]`; sums over k.
    fn scatter_add(&self, batch: usize, number: usize, at: &Sharding) -> Option<Way> {
        let of_indices = self.rank(0);
        match at.axis {
            axis if axis < batch => Some(self.same_axis(at)),
            axis if axis < of_indices => Some(way(vec![at.place(); 2], Placement::Partial)),
            axis if number == 1 => Some(self.alone(1, at, at.on(axis - of_indices + batch + 1).place())),
            _ => None,
        }
    }

    /// Axes before those of a block are batches.
    fn block(&self, op: BlockOp, at: &Sharding) -> Option<Way> {
        (at.axis + op.rank() < self.rank(0)).then(|| self.same_axis(at))
    }

    /// The way in which terms of a sum stay terms: through an operation that is linear in them, and whose result is no larger.
    fn linear(&self) -> Option<Way> {
        use Placement::{Partial, Replicated};
        let is_partial = |operand: usize| self.have[operand].is_partial();
        let is_whole = |operand: usize| self.have[operand].is_replicated();
        let of_floats = self.operands.iter().all(|meta| meta.dtype.is_float());
        let all = || self.have.iter().any(|place| place.is_partial()) && (0..self.have.len()).all(|i| self.is_term(i));
        let operands = match self.op {
            Op::Unary(UnaryOp::Neg) | Op::StopGradient if is_partial(0) => vec![Partial],
            Op::Convert(to) if is_partial(0) && of_floats && to.is_float() => vec![Partial],
            Op::Binary(BinaryOp::Add | BinaryOp::Sub) | Op::Concat(_) if all() => vec![Partial; self.have.len()],
            Op::Binary(BinaryOp::Mul | BinaryOp::Div) if is_partial(0) && is_whole(1) => vec![Partial, Replicated],
            Op::Binary(BinaryOp::Mul) if is_whole(0) && is_partial(1) => vec![Replicated, Partial],
            Op::Select if is_whole(0) && self.is_term(1) && self.is_term(2) && (is_partial(1) || is_partial(2)) => {
                vec![Replicated, Partial, Partial]
            }
            Op::Reshape | Op::Transpose(_) | Op::Slice { .. } | Op::Reverse(_) if is_partial(0) => vec![Partial],
            Op::Reduce(ReduceOp::Sum, _) if is_partial(0) => vec![Partial],
            _ => return None,
        };
        Some(way(operands, Partial))
    }

    /// Returns true for terms of a sum, and for 0, which is the sum of zeros.
    fn is_term(&self, operand: usize) -> bool {
        self.have[operand].is_partial() || (self.zero[operand] && self.have[operand].is_replicated())
    }
}

fn way(operands: Vec<Placement>, result: Placement) -> Way {
    Way { operands, result, is_maximum: false }
}

impl Sharding {
    /// The same parts along another axis.
    pub fn on(&self, axis: usize) -> Sharding {
        Sharding { axis, parts: self.parts.clone() }
    }

    pub fn place(&self) -> Placement {
        Placement::Sharded(self.clone())
    }
}
