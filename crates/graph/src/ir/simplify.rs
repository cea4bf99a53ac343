//! Rewrites applied as a node is made: the graph is simplified from birth and no pass runs later.
//!
//! Each rule returns a node that equals the original in exact arithmetic, and stays inside the range of the type
//! whenever the original does: (x·c)·y is not (x·y)·c, because x·y may overflow or vanish although x·c did not.
//!
//! `0·x` is 0 unless x is infinite or NaN. While a derivative is taken it counts as 0 all the same: a structurally zero
//! derivative must be known to be zero. Written by a person it is computed, so that a NaN shows.

use crate::Line;
use crate::ir::graph::{GraphData, NodeId, constant_bits};
use crate::ir::infer::Meta;
use crate::ir::op::{BinaryOp, BlockOp, Op, ReduceOp, UnaryOp};
use crate::scalar;
use crate::shape::{element_count, other_axes};

/// Products of constants between this and its inverse are merged: far from under- and overflow of 32-bit floats.
const TINY: f64 = 1e-30;

/// Returns true for ±2ᵏ: a product with it is exact, unless it leaves the range.
fn is_power_of_two(c: f64) -> bool {
    c.is_normal() && c.to_bits() << 12 == 0
}

/// How a rule answers.
enum Simplified {
    /// A node that is simpler.
    To(NodeId),
    /// No rule applies.
    Not,
    /// No rule may be applied.
    Never,
}

impl GraphData {
    /// The value of a constant node.
    pub(crate) fn constant_value(&self, id: NodeId) -> Option<f64> {
        match self.op(id) {
            Op::Constant(bits) => Some(f64::from_bits(*bits)),
            _ => None,
        }
    }

    /// Returns true if a product with this operand is zero: a zero whose other factor cannot be infinite or NaN, or any
    /// zero while a derivative is taken.
    fn zero_with(&self, zero: Option<f64>, other: NodeId) -> bool {
        zero == Some(0.0) && (self.deriving.is_some() || self.surely_finite(other))
    }

    fn surely_finite(&self, id: NodeId) -> bool {
        match self.op(id) {
            _ if !self.meta(id).dtype.is_float() => true,
            Op::Constant(bits) => f64::from_bits(*bits).is_finite(),
            Op::Binary(op) => op.is_comparison(),
            Op::Iota(_) | Op::Random(..) => true,
            _ => false,
        }
    }

    fn constant_node(&mut self, value: f64, meta: &Meta, line: Line) -> NodeId {
        self.add(Op::Constant(constant_bits(value, meta.dtype)), vec![], meta.clone(), line)
    }

    /// A node that is simpler than `op` on `inputs` and equals it, if a rule finds one.
    pub(crate) fn simplified(&mut self, op: &Op, inputs: &[NodeId], meta: &Meta, line: Line) -> Option<NodeId> {
        // Nothing to compute: an empty tensor, or every operand known.
        if element_count(&meta.shape) == 0 && !matches!(op, Op::Constant(_) | Op::Input(_)) {
            return Some(self.constant_node(0.0, meta, line));
        }
        match op {
            Op::Unary(op) => self.simplify_unary(*op, inputs[0], meta, line),
            Op::Binary(op) => self.simplify_binary(*op, inputs[0], inputs[1], meta, line),
            Op::Select => self.simplify_select(inputs),
            // Nothing to derive by.
            Op::Custom(_) if inputs[1..].iter().all(|&id| self.constant_value(id).is_some()) => Some(inputs[0]),
            Op::Convert(to) => self.simplify_convert(*to, inputs[0], meta, line),
            Op::Reduce(op, axes) => self.simplify_reduce(*op, axes, inputs[0], meta, line),
            Op::Reshape => self.simplify_reshape(inputs[0], meta, line),
            Op::Transpose(perm) => self.simplify_transpose(perm, inputs[0], meta, line),
            Op::Broadcast(axes) => self.simplify_broadcast(axes, inputs[0], meta, line),
            Op::Slice { start, stop, step } => self.simplify_slice((start, stop, step), inputs[0], meta, line),
            Op::Pad { .. } if self.meta(inputs[0]) == meta => Some(inputs[0]),
            Op::Concat(_) if inputs.len() == 1 => Some(inputs[0]),
            Op::Concat(axis) => self.simplify_concat(*axis, inputs, meta, line),
            Op::Reverse(axes) => {
                let moved: Vec<usize> = axes.iter().copied().filter(|&a| meta.shape[a] > 1).collect();
                match self.op(inputs[0]) {
                    _ if moved.is_empty() => Some(inputs[0]),
                    Op::Reverse(inner) if *inner == moved => Some(self.inputs(inputs[0])[0]),
                    Op::Constant(_) => Some(inputs[0]),
                    _ if moved.len() < axes.len() => {
                        Some(self.add(Op::Reverse(moved), inputs.to_vec(), meta.clone(), line))
                    }
                    _ => None,
                }
            }
            // Linear in an operand that is zero.
            Op::Pad { .. } | Op::CumSum { .. } if self.constant_value(inputs[0]) == Some(0.0) => {
                Some(self.constant_node(0.0, meta, line))
            }
            Op::Dot(..) | Op::Conv(..) => {
                let [a, b] = *inputs else { return None };
                let zero = self.zero_with(self.constant_value(a), b) || self.zero_with(self.constant_value(b), a);
                zero.then(|| self.constant_node(0.0, meta, line))
            }
            Op::ScatterAdd { .. } if self.constant_value(inputs[1]) == Some(0.0) => {
                Some(self.constant_node(0.0, meta, line))
            }
            // A solution is linear in the right side.
            Op::Block(BlockOp::TriangularSolve { .. }) if self.zero_with(self.constant_value(inputs[1]), inputs[0]) => {
                Some(self.constant_node(0.0, meta, line))
            }
            Op::Gather { .. } => {
                let value = self.constant_value(inputs[0])?;
                Some(self.constant_node(value, meta, line))
            }
            _ => None,
        }
    }

    fn simplify_unary(&mut self, op: UnaryOp, x: NodeId, meta: &Meta, line: Line) -> Option<NodeId> {
        if let Some(value) = self.constant_value(x) {
            return Some(self.constant_node(scalar::unary(op, value, meta.dtype), meta, line));
        }
        match (op, self.op(x).clone()) {
            (UnaryOp::Neg, Op::Unary(UnaryOp::Neg)) => Some(self.inputs(x)[0]),
            (UnaryOp::Neg, Op::Binary(BinaryOp::Sub)) => {
                let (a, b) = (self.inputs(x)[0], self.inputs(x)[1]);
                Some(self.add(Op::Binary(BinaryOp::Sub), vec![b, a], meta.clone(), line))
            }
            // −(x·c) = x·(−c)
            (UnaryOp::Neg, Op::Binary(BinaryOp::Mul)) => {
                let (y, c) = self.constant_factor(x)?;
                let minus = self.constant_node(scalar::unary(UnaryOp::Neg, c, meta.dtype), meta, line);
                Some(self.add(Op::Binary(BinaryOp::Mul), vec![y, minus], meta.clone(), line))
            }
            // Work on the smaller tensor: f(broadcast x) = broadcast f(x).
            (_, Op::Broadcast(axes)) => {
                let inner = self.inputs(x)[0];
                let small = self.add(Op::Unary(op), vec![inner], self.meta(inner).clone(), line);
                Some(self.add(Op::Broadcast(axes), vec![small], meta.clone(), line))
            }
            _ => None,
        }
    }

    /// For a product with a constant: the other operand and the constant.
    fn constant_factor(&self, id: NodeId) -> Option<(NodeId, f64)> {
        let Op::Binary(BinaryOp::Mul) = self.op(id) else { return None };
        let (a, b) = (self.inputs(id)[0], self.inputs(id)[1]);
        match (self.constant_value(a), self.constant_value(b)) {
            (None, Some(c)) => Some((a, c)),
            (Some(c), None) => Some((b, c)),
            _ => None,
        }
    }

    fn negated(&self, id: NodeId) -> Option<NodeId> {
        matches!(self.op(id), Op::Unary(UnaryOp::Neg)).then(|| self.inputs(id)[0])
    }

    fn simplify_binary(&mut self, op: BinaryOp, a: NodeId, b: NodeId, meta: &Meta, line: Line) -> Option<NodeId> {
        use BinaryOp::{Add, Div, Mul, Polygamma, Pow, Sub};
        let (ca, cb) = (self.constant_value(a), self.constant_value(b));
        let node = |g: &mut Self, op: Op, inputs: Vec<NodeId>| Some(g.add(op, inputs, meta.clone(), line));
        match (op, ca, cb) {
            (_, Some(x), Some(y)) => {
                return Some(self.constant_node(scalar::binary(op, x, y, meta.dtype), meta, line));
            }
            (Add, Some(0.0), _) | (Mul, Some(1.0), _) => return Some(b),
            (Add | Sub, _, Some(0.0)) | (Mul | Div | Pow, _, Some(1.0)) => return Some(a),
            (Mul, _, _) if self.zero_with(ca, b) || self.zero_with(cb, a) => {
                return Some(self.constant_node(0.0, meta, line));
            }
            // Not even a finite x makes 0/x zero: x may be 0.
            (Div, Some(0.0), _) if self.deriving.is_some() => return Some(self.constant_node(0.0, meta, line)),
            (Sub, Some(0.0), _) | (Mul, Some(-1.0), _) => return node(self, Op::Unary(UnaryOp::Neg), vec![b]),
            (Mul, _, Some(-1.0)) => return node(self, Op::Unary(UnaryOp::Neg), vec![a]),
            (Div, Some(1.0), _) => return node(self, Op::Unary(UnaryOp::Recip), vec![b]),
            // Division by a power of two is exact as a product, if the type has its inverse.
            (Div, _, Some(c)) if is_power_of_two(c) && scalar::round(1.0 / c, meta.dtype) == 1.0 / c => {
                let inverse = self.constant_node(1.0 / c, meta, line);
                return node(self, Op::Binary(Mul), vec![a, inverse]);
            }
            (Polygamma, Some(0.0), _) => return node(self, Op::Unary(UnaryOp::Digamma), vec![b]),
            (Pow, _, Some(0.0)) => return Some(self.constant_node(1.0, meta, line)),
            (Pow, _, Some(2.0)) => return node(self, Op::Binary(Mul), vec![a, a]),
            (Pow, _, Some(3.0)) => {
                let square = self.add(Op::Binary(Mul), vec![a, a], meta.clone(), line);
                return node(self, Op::Binary(Mul), vec![square, a]);
            }
            (Pow, _, Some(0.5)) => return node(self, Op::Unary(UnaryOp::Sqrt), vec![a]),
            (Pow, _, Some(-1.0)) => return node(self, Op::Unary(UnaryOp::Recip), vec![a]),
            _ => {}
        }
        match op {
            // Exact in every type, and a constant factor can travel on.
            Add if a == b => {
                let two = self.constant_node(2.0, meta, line);
                return node(self, Op::Binary(Mul), vec![a, two]);
            }
            Add => {
                if let Some(y) = self.negated(b) {
                    return node(self, Op::Binary(Sub), vec![a, y]);
                }
                if let Some(x) = self.negated(a) {
                    return node(self, Op::Binary(Sub), vec![b, x]);
                }
            }
            Sub => {
                if let Some(y) = self.negated(b) {
                    return node(self, Op::Binary(Add), vec![a, y]);
                }
            }
            Mul if meta.dtype.is_float() => match self.simplify_product([(a, ca), (b, cb)], meta, line) {
                Simplified::To(product) => return Some(product),
                Simplified::Never => return None,
                Simplified::Not => {}
            },
            _ => {}
        }
        self.binary_on_broadcasts(op, a, b, meta, line)
    }

    /// A product of floats, each with its value if it is a constant: constant factors and signs travel outwards.
    fn simplify_product(&mut self, factors: [(NodeId, Option<f64>); 2], meta: &Meta, line: Line) -> Simplified {
        use BinaryOp::Mul;
        let [(a, ca), (b, cb)] = factors;
        // (x·c)·d = x·(c·d), unless c·d is out of range of the type, or x·c is rounded up to a number so small that
        // x·(c·d) is rounded down to 0.
        for (scaled, constant) in [(a, cb), (b, ca)] {
            let (Some((x, c)), Some(d)) = (self.constant_factor(scaled), constant) else { continue };
            let product = scalar::binary(Mul, c, d, meta.dtype);
            let vanishes = d.abs() < 1.0 && !is_power_of_two(d) && (c.abs() < 1.0 || !is_power_of_two(c));
            if vanishes || !(TINY..=1.0 / TINY).contains(&product.abs()) {
                return Simplified::Never;
            }
            let product = self.constant_node(product, meta, line);
            return Simplified::To(self.add(Op::Binary(Mul), vec![x, product], meta.clone(), line));
        }
        let (x, y) = (self.negated(a), self.negated(b));
        if x.is_none() && y.is_none() {
            return Simplified::Not;
        }
        let product = self.add(Op::Binary(Mul), vec![x.unwrap_or(a), y.unwrap_or(b)], meta.clone(), line);
        let negative = x.is_some() != y.is_some();
        Simplified::To(if negative {
            self.add(Op::Unary(UnaryOp::Neg), vec![product], meta.clone(), line)
        } else {
            product
        })
    }

    /// f(broadcast a, broadcast b) = broadcast f(a, b), if both repeat along the same axes or one is a constant.
    fn binary_on_broadcasts(&mut self, op: BinaryOp, a: NodeId, b: NodeId, meta: &Meta, line: Line) -> Option<NodeId> {
        let axes = match (self.op(a), self.op(b)) {
            (Op::Broadcast(p), Op::Broadcast(q)) if p == q => p.clone(),
            (Op::Broadcast(p), Op::Constant(_)) => p.clone(),
            (Op::Constant(_), Op::Broadcast(q)) => q.clone(),
            _ => return None,
        };
        let source = if matches!(self.op(a), Op::Broadcast(_)) { a } else { b };
        let small_meta = self.meta(self.inputs(source)[0]).clone();
        let mut shrink = |id: NodeId| match self.constant_value(id) {
            Some(value) => self.constant_node(value, &small_meta, line),
            None => self.inputs(id)[0],
        };
        let operands = vec![shrink(a), shrink(b)];
        let small = self.add(Op::Binary(op), operands, small_meta, line);
        Some(self.add(Op::Broadcast(axes), vec![small], meta.clone(), line))
    }

    fn simplify_select(&mut self, inputs: &[NodeId]) -> Option<NodeId> {
        let [mask, a, b] = *inputs else { return None };
        match self.constant_value(mask) {
            Some(0.0) => Some(b),
            Some(_) => Some(a),
            None if a == b => Some(a),
            None => None,
        }
    }

    fn simplify_convert(&mut self, to: crate::DType, x: NodeId, meta: &Meta, line: Line) -> Option<NodeId> {
        if self.meta(x).dtype == to {
            return Some(x);
        }
        if let Some(value) = self.constant_value(x) {
            return Some(self.constant_node(value, meta, line));
        }
        if let Op::Iota(axis) = *self.op(x) {
            return Some(self.add(Op::Iota(axis), vec![], meta.clone(), line));
        }
        if let Op::Broadcast(axes) = self.op(x).clone() {
            let inner = self.inputs(x)[0];
            let small = Meta { dtype: to, shape: self.meta(inner).shape.clone() };
            let small = self.add(Op::Convert(to), vec![inner], small, line);
            return Some(self.add(Op::Broadcast(axes), vec![small], meta.clone(), line));
        }
        None
    }

    fn simplify_reduce(&mut self, op: ReduceOp, axes: &[usize], x: NodeId, meta: &Meta, line: Line) -> Option<NodeId> {
        let shape = self.meta(x).shape.clone();
        if axes.is_empty() {
            return Some(x);
        }
        let count = axes.iter().map(|&a| shape[a]).product::<usize>();
        if count == 1 {
            return Some(self.add(Op::Reshape, vec![x], meta.clone(), line));
        }
        if let Some(value) = self.constant_value(x) {
            let value = match op {
                ReduceOp::Sum if meta.dtype.is_float() => value * count as f64,
                ReduceOp::Sum => (value as i32).wrapping_mul(count as i32) as f64,
                ReduceOp::Max => value,
            };
            return (count > 0).then(|| self.constant_node(value, meta, line));
        }
        match (op, self.op(x).clone()) {
            (_, Op::Reduce(inner_op, inner_axes)) if inner_op == op => {
                let inner = self.inputs(x)[0];
                let kept = other_axes(self.meta(inner).shape.len(), &inner_axes);
                // Which of several largest is the first, and takes the derivative, must not change: the outer axes must
                // count before the inner ones in the joined order too.
                let outer_first = axes.iter().all(|&a| inner_axes.iter().all(|&i| kept[a] < i));
                if op == ReduceOp::Max && !outer_first {
                    return None;
                }
                let mut all: Vec<usize> = axes.iter().map(|&a| kept[a]).chain(inner_axes).collect();
                all.sort_unstable();
                Some(self.add(Op::Reduce(op, all), vec![inner], meta.clone(), line))
            }
            // Σ over an axis that only repeats is a product with its length.
            (ReduceOp::Sum, Op::Broadcast(placed)) if axes.iter().any(|a| !placed.contains(a)) => {
                let inner = self.inputs(x)[0];
                let repeats: usize = axes.iter().filter(|a| !placed.contains(a)).map(|&a| shape[a]).product();
                let still: Vec<usize> = (0..placed.len()).filter(|&i| axes.contains(&placed[i])).collect();
                let mut summed_meta = self.meta(inner).clone();
                summed_meta.shape = other_axes(placed.len(), &still).iter().map(|&i| summed_meta.shape[i]).collect();
                let summed = self.add(Op::Reduce(op, still.clone()), vec![inner], summed_meta.clone(), line);
                let times = self.constant_node(repeats as f64, &summed_meta, line);
                let product = self.add(Op::Binary(BinaryOp::Mul), vec![summed, times], summed_meta, line);
                // Axes that repeat and are kept must repeat again.
                let kept_out = other_axes(shape.len(), axes);
                let kept_placed: Vec<usize> = placed.iter().copied().filter(|a| !axes.contains(a)).collect();
                let new_axes =
                    kept_placed.iter().filter_map(|a| kept_out.iter().position(|k| k == a)).collect::<Vec<_>>();
                Some(self.add(Op::Broadcast(new_axes), vec![product], meta.clone(), line))
            }
            (ReduceOp::Sum, Op::Unary(UnaryOp::Neg)) => {
                let inner = self.inputs(x)[0];
                let sum = self.add(Op::Reduce(op, axes.to_vec()), vec![inner], meta.clone(), line);
                Some(self.add(Op::Unary(UnaryOp::Neg), vec![sum], meta.clone(), line))
            }
            // Σ c·x = c·Σ x if |c| ≥ 1: with a smaller one, Σ x may overflow although Σ c·x does not.
            (ReduceOp::Sum, Op::Binary(BinaryOp::Mul)) if meta.dtype.is_float() => {
                let (rest, c) = self.constant_factor(x).filter(|(_, c)| c.abs() >= 1.0)?;
                let sum = self.add(Op::Reduce(op, axes.to_vec()), vec![rest], meta.clone(), line);
                let outside = self.constant_node(c, meta, line);
                Some(self.add(Op::Binary(BinaryOp::Mul), vec![sum, outside], meta.clone(), line))
            }
            _ => None,
        }
    }
}
