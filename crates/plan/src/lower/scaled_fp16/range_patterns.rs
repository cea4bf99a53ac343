//! Joint bounds of factors: y with e^(−a·y²), and a row with its inverse norm.

use crate::fuse::group::repeats_rows;
use crate::ir::node::{Elementwise, Kind, Operand};
use crate::lower::Lowering;
use crate::lower::scaled_fp16::range::Bound;
use bilevel_graph::{BinaryOp, ReduceOp, UnaryOp};
use std::f64::consts::E;

/// The maximum number of factors that a product is expanded to.
const MAX_FACTORS: usize = 12;

/// A coefficient times operands that are not products themselves.
pub(crate) struct Factors {
    pub coefficient: f64,
    pub operands: Vec<Operand>,
}

impl Lowering {
    /// Returns the factors of an operand; the operand itself if it is not a product, or has too many factors.
    pub fn factors_of(&self, operand: &Operand) -> Factors {
        let (mut coefficient, mut operands, mut left) = (1.0, vec![], vec![operand]);
        while let Some(operand) = left.pop() {
            let node = self.whole(operand).map(|node| &self.nodes[node]);
            match (operand, node.map(|node| (&node.kind, &node.operands[..]))) {
                (Operand::Constant(value), _) => coefficient *= value,
                (_, Some((Kind::Elementwise(Elementwise::Binary(BinaryOp::Mul)), of)))
                    if operands.len() + left.len() + of.len() <= MAX_FACTORS =>
                {
                    left.extend(of);
                }
                (_, Some((Kind::Elementwise(Elementwise::Unary(UnaryOp::Neg)), of))) => {
                    coefficient = -coefficient;
                    left.extend(of);
                }
                _ => operands.push(operand.clone()),
            }
        }
        Factors { coefficient, operands }
    }

    /// Returns the node that an operand covers in full and in order.
    fn whole(&self, operand: &Operand) -> Option<usize> {
        operand.at().filter(|(node, view)| self.nodes[*node].is_whole(view)).map(|(node, _)| node)
    }

    /// Returns the argument of a unary function, if the operand is the whole result of one.
    fn argument(&self, operand: &Operand, op: UnaryOp) -> Option<&Operand> {
        let node = &self.nodes[self.whole(operand)?];
        matches!(node.kind, Kind::Elementwise(Elementwise::Unary(of)) if of == op).then(|| node.operands.first())?
    }

    /// Returns y and a > 0 if the operand is e^(−a·y²).
    pub fn bell(&self, operand: &Operand) -> Option<(usize, f64)> {
        let Factors { coefficient, operands } = self.factors_of(self.argument(operand, UnaryOp::Exp)?);
        let [first, second] = &operands[..] else { return None };
        let (y, same) = (self.whole(first)?, self.whole(second)?);
        (y == same && coefficient < 0.0).then_some((y, -coefficient))
    }

    /// Returns x and a > 0 if the operand is 1/√(a·Σ x² + b) with b ≥ 0, over rows and broadcast along them.
    fn inverse_length(&self, operand: &Operand) -> Option<(usize, f64)> {
        let (node, view) = operand.at()?;
        let inverse = self.dense(node);
        let sum = self.argument(self.argument(&inverse, UnaryOp::Recip)?, UnaryOp::Sqrt)?;
        let (sum, offset) = self.without_offset(sum);
        let Factors { coefficient, operands } = self.factors_of(sum);
        let ([sum], true) = (&operands[..], coefficient > 0.0 && offset >= 0.0) else { return None };
        let sum = &self.nodes[self.whole(sum)?];
        let (Kind::Reduce(ReduceOp::Sum, axes), [squares]) = (&sum.kind, &sum.operands[..]) else { return None };
        let rank = squares.at()?.1.shape.len();
        let squares = self.factors_of(squares);
        let [first, second] = &squares.operands[..] else { return None };
        let (x, same) = (self.whole(first)?, self.whole(second)?);
        let (rows, all) = (sum.count(), self.nodes[x].count());
        // Trailing axes, so that rows are contiguous.
        let trailing = axes.iter().copied().eq(rank - axes.len()..rank);
        let along = trailing && rows > 0 && repeats_rows(view, rows, all / rows);
        (x == same && along && squares.coefficient > 0.0).then_some((x, coefficient * squares.coefficient))
    }

    /// Returns the operand without an added constant, and the constant.
    fn without_offset<'a>(&'a self, operand: &'a Operand) -> (&'a Operand, f64) {
        let node = self.whole(operand).map(|node| &self.nodes[node]);
        match node.map(|node| (&node.kind, &node.operands[..])) {
            Some((
                Kind::Elementwise(Elementwise::Binary(BinaryOp::Add)),
                [sum, Operand::Constant(offset)] | [Operand::Constant(offset), sum],
            )) => (sum, *offset),
            _ => (operand, 0.0),
        }
    }

    /// Removes factors with a joint bound, and returns the bounds:
    ///
    ///   |y|ᵏ·e^(−a·y²) ≤ (k/(2·e·a))^(k/2),   |xᵢ|/√(a·Σ x² + b) ≤ 1/√a
    pub fn known_together(&self, operands: &mut Vec<Operand>) -> Vec<Bound> {
        let mut known = vec![];
        while let Some((bell, y, a)) = self.bell_among(operands) {
            operands.remove(bell);
            let others = operands.len();
            operands.retain(|operand| self.whole(operand) != Some(y));
            let k = (others - operands.len()) as f64;
            known.push(Bound::ceiling((k / (2.0 * E * a)).powf(k / 2.0)));
        }
        while let Some((row, length, a)) = self.row_among(operands) {
            operands.remove(row.max(length));
            operands.remove(row.min(length));
            known.push(Bound::about(1.0 / a.sqrt()));
        }
        known
    }

    /// Returns the position of e^(−a·y²), y and a.
    fn bell_among(&self, operands: &[Operand]) -> Option<(usize, usize, f64)> {
        let mut places = operands.iter().enumerate();
        places.find_map(|(place, operand)| self.bell(operand).map(|(y, a)| (place, y, a)))
    }

    /// Returns the positions of x and of 1/√(a·Σ x² + b), and a.
    fn row_among(&self, operands: &[Operand]) -> Option<(usize, usize, f64)> {
        operands.iter().enumerate().find_map(|(length, operand)| {
            let (x, a) = self.inverse_length(operand)?;
            Some((operands.iter().position(|operand| self.whole(operand) == Some(x))?, length, a))
        })
    }
}
