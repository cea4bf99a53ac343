//! Weights that change from step to step, whose casts an executor may carry.

use crate::conformance::{Case, CaseBuilder};
use crate::{DType, Result};

/// Rows, and the lengths of two products: of arrays in whole pieces of 16 bytes, and of others.
const SHAPES: [[usize; 3]; 3] = [[8, 24, 16], [9, 7, 5], [64, 264, 72]];

/// For each shape: weights that become a quarter of themselves plus the sign of a product's result, for three steps.
/// Results are products of the old and of the new weights. With inputs of few digits, every intermediate number is
/// known to the bit. In the last case, the old weights are read once more when the new ones are known.
pub(crate) fn learned_weights() -> Result<Vec<Case>> {
    let made = SHAPES.iter().enumerate().map(|(number, &[rows, long, wide])| {
        let mut case = CaseBuilder::new(60 + number as u64);
        let mut input = |name, shape: [usize; 2]| case.input(name, shape, DType::F32);
        let (x, w, v) = (input("x", [rows, long])?, input("w", [long, wide])?, input("v", [wide, long])?);
        let signs = x.matmul(w).sign();
        let next = w * 0.25 + x.t().matmul(signs).sign();
        let turned = v * 0.25 + next.t().sign();
        let after = if number == 2 { signs.matmul(turned).sign().matmul(w) } else { signs.matmul(v) };
        case.outputs([x.matmul(w), x.matmul(next), after], 0.0);
        case.carry(w, next, 0.0);
        case.carry(v, turned, 0.0);
        case.build(format!("learned weights of {long}x{wide}"), 3)
    });
    made.collect()
}
