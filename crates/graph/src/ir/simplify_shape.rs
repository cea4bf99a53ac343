//! Simplifications of operations that only move elements.

use crate::Line;
use crate::ir::graph::{GraphData, NodeId, constant_bits};
use crate::ir::infer::Meta;
use crate::ir::op::{DotDims, Op};
use crate::shape::other_axes;

type Ranges<'a> = (&'a [usize], &'a [usize], &'a [usize]);

impl GraphData {
    /// The constant `x` is, in another shape.
    fn same_constant(&mut self, x: NodeId, meta: &Meta, line: Line) -> Option<NodeId> {
        let value = self.constant_value(x)?;
        Some(self.add(Op::Constant(constant_bits(value, meta.dtype)), vec![], meta.clone(), line))
    }

    pub(crate) fn simplify_reshape(&mut self, x: NodeId, meta: &Meta, line: Line) -> Option<NodeId> {
        if self.meta(x) == meta {
            return Some(x);
        }
        if let Some(constant) = self.same_constant(x, meta, line) {
            return Some(constant);
        }
        match self.op(x) {
            Op::Reshape => Some(self.add(Op::Reshape, vec![self.inputs(x)[0]], meta.clone(), line)),
            // A repeated scalar is a repeated scalar in any shape.
            Op::Broadcast(axes) if axes.is_empty() => {
                Some(self.add(Op::Broadcast(vec![]), vec![self.inputs(x)[0]], meta.clone(), line))
            }
            _ => None,
        }
    }

    pub(crate) fn simplify_transpose(&mut self, perm: &[usize], x: NodeId, meta: &Meta, line: Line) -> Option<NodeId> {
        if perm.iter().copied().eq(0..perm.len()) {
            return Some(x);
        }
        if let Some(constant) = self.same_constant(x, meta, line) {
            return Some(constant);
        }
        // Moving axes of length 1 moves no element.
        let moved = perm.iter().filter(|&&p| self.meta(x).shape[p] != 1);
        if moved.is_sorted() {
            return Some(self.add(Op::Reshape, vec![x], meta.clone(), line));
        }
        match self.op(x).clone() {
            Op::Transpose(inner) => {
                let composed = perm.iter().map(|&p| inner[p]).collect();
                Some(self.add(Op::Transpose(composed), vec![self.inputs(x)[0]], meta.clone(), line))
            }
            Op::Dot(dims, precision) => {
                let (a, b) = (self.inputs(x)[0], self.inputs(x)[1]);
                let batch = dims.lhs_batch.len();
                let left = self.meta(a).shape.len() - batch - dims.lhs_contract.len();
                let rank = perm.len();
                // (AB)ᵀ = BᵀAᵀ, and contracted axes need no transposing.
                let swapped = (0..batch).chain(batch + left..rank).chain(batch..batch + left);
                perm.iter().copied().eq(swapped).then(|| {
                    let dims = DotDims {
                        lhs_contract: dims.rhs_contract,
                        rhs_contract: dims.lhs_contract,
                        lhs_batch: dims.rhs_batch,
                        rhs_batch: dims.lhs_batch,
                    };
                    self.add(Op::Dot(dims, precision), vec![b, a], meta.clone(), line)
                })
            }
            Op::Broadcast(axes) if axes.is_empty() => {
                Some(self.add(Op::Broadcast(vec![]), vec![self.inputs(x)[0]], meta.clone(), line))
            }
            _ => None,
        }
    }

    pub(crate) fn simplify_broadcast(&mut self, axes: &[usize], x: NodeId, meta: &Meta, line: Line) -> Option<NodeId> {
        if self.meta(x) == meta {
            return Some(x);
        }
        if let Some(constant) = self.same_constant(x, meta, line) {
            return Some(constant);
        }
        match self.op(x).clone() {
            Op::Broadcast(inner) => {
                let composed = inner.iter().map(|&i| axes[i]).collect();
                Some(self.add(Op::Broadcast(composed), vec![self.inputs(x)[0]], meta.clone(), line))
            }
            Op::Iota(axis) => Some(self.add(Op::Iota(axes[axis]), vec![], meta.clone(), line)),
            // Only axes of length 1 are new: no element moves.
            _ if other_axes(meta.shape.len(), axes).iter().all(|&a| meta.shape[a] == 1) => {
                Some(self.add(Op::Reshape, vec![x], meta.clone(), line))
            }
            // Reshapes that insert axes of length 1 do not hide repetition.
            Op::Reshape => {
                let inner = self.inputs(x)[0];
                let long = |id: NodeId, g: &Self| -> Vec<usize> {
                    let shape = &g.meta(id).shape;
                    (0..shape.len()).filter(|&i| shape[i] != 1).collect()
                };
                let (outer_long, inner_long) = (long(x, self), long(inner, self));
                let same = outer_long.len() == inner_long.len()
                    && outer_long
                        .iter()
                        .zip(&inner_long)
                        .all(|(&o, &i)| self.meta(x).shape[o] == self.meta(inner).shape[i]);
                (same && inner_long.len() == self.meta(inner).shape.len()).then(|| {
                    let placed = outer_long.iter().map(|&o| axes[o]).collect();
                    self.add(Op::Broadcast(placed), vec![inner], meta.clone(), line)
                })
            }
            _ => None,
        }
    }

    pub(crate) fn simplify_slice(&mut self, ranges: Ranges, x: NodeId, meta: &Meta, line: Line) -> Option<NodeId> {
        let (start, stop, step) = ranges;
        if self.meta(x) == meta {
            return Some(x);
        }
        if let Some(constant) = self.same_constant(x, meta, line) {
            return Some(constant);
        }
        let rank = start.len();
        match self.op(x).clone() {
            Op::Slice { start: s0, step: k0, .. } => {
                let last = |i: usize| s0[i] + (start[i] + (meta.shape[i] - 1) * step[i]) * k0[i] + 1;
                let slice = Op::Slice {
                    start: (0..rank).map(|i| s0[i] + start[i] * k0[i]).collect(),
                    stop: (0..rank).map(last).collect(),
                    step: (0..rank).map(|i| step[i] * k0[i]).collect(),
                };
                Some(self.add(slice, vec![self.inputs(x)[0]], meta.clone(), line))
            }
            // A slice that lies inside one operand of a concatenation.
            Op::Concat(axis) => {
                let mut offset = 0;
                for part in self.inputs(x).to_vec() {
                    let length = self.meta(part).shape[axis];
                    if offset <= start[axis] && stop[axis] <= offset + length {
                        let (mut start, mut stop) = (start.to_vec(), stop.to_vec());
                        start[axis] -= offset;
                        stop[axis] -= offset;
                        let slice = Op::Slice { start, stop, step: step.to_vec() };
                        return Some(self.add(slice, vec![part], meta.clone(), line));
                    }
                    offset += length;
                }
                None
            }
            // The slice that undoes a padding.
            Op::Pad { low, interior, .. } => {
                let inner = self.inputs(x)[0];
                let undone = (0..rank).all(|i| start[i] == low[i] && step[i] == interior[i] + 1);
                (undone && self.meta(inner) == meta).then_some(inner)
            }
            Op::Broadcast(axes) => {
                let inner = self.inputs(x)[0];
                let pick = |values: &[usize]| axes.iter().map(|&a| values[a]).collect::<Vec<_>>();
                let slice = Op::Slice { start: pick(start), stop: pick(stop), step: pick(step) };
                let small = Meta { dtype: meta.dtype, shape: pick(&meta.shape) };
                let small = self.add(slice, vec![inner], small, line);
                Some(self.add(Op::Broadcast(axes), vec![small], meta.clone(), line))
            }
            _ => None,
        }
    }

    pub(crate) fn simplify_concat(
        &mut self,
        axis: usize,
        inputs: &[NodeId],
        meta: &Meta,
        line: Line,
    ) -> Option<NodeId> {
        // Empty operands and nested concatenations along the same axis.
        let flat: Vec<NodeId> = inputs
            .iter()
            .flat_map(|&i| match self.op(i) {
                Op::Concat(inner) if *inner == axis => self.inputs(i).to_vec(),
                _ => vec![i],
            })
            .filter(|&i| self.meta(i).shape[axis] > 0)
            .collect();
        if flat != inputs {
            return Some(self.add(Op::Concat(axis), flat, meta.clone(), line));
        }
        let value = self.constant_value(inputs[0])?;
        if inputs.iter().all(|&i| self.constant_value(i).map(f64::to_bits) == Some(value.to_bits())) {
            return self.same_constant(inputs[0], meta, line);
        }
        None
    }
}
