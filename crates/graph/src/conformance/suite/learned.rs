//! Weights that change from step to step, whose casts an executor may carry.

use crate::conformance::{Case, Dice};
use crate::{DType, Graph, Program, Result};

/// Rows, and the lengths of two products: of arrays in whole pieces of 16 bytes, and of others.
const SHAPES: [[usize; 3]; 3] = [[8, 24, 16], [9, 7, 5], [64, 264, 72]];

/// For each shape: weights that become a quarter of themselves plus the sign of a product's result, for three steps.
/// Results are products of the old and of the new weights. With inputs of few digits, every intermediate number is
/// known to the bit. In the last case, the old weights are read once more when the new ones are known.
pub(crate) fn learned_weights() -> Result<Vec<Case>> {
    let made = SHAPES.iter().enumerate().map(|(number, &[rows, long, wide])| {
        let (g, mut dice) = (Graph::new(), Dice::new(60 + number as u64));
        let shapes = [("x", [rows, long]), ("w", [long, wide]), ("v", [wide, long])];
        let inputs = shapes.map(|(name, shape)| Ok((name.to_string(), dice.array(&shape, DType::F32)?)));
        let [x, w, v] = shapes.map(|(name, shape)| g.input(name, shape, DType::F32));
        let signs = x.matmul(w).sign();
        let next = w * 0.25 + x.t().matmul(signs).sign();
        let turned = v * 0.25 + next.t().sign();
        let after = if number == 2 { signs.matmul(turned).sign().matmul(w) } else { signs.matmul(v) };
        let builder = Program::builder(&g).carry(w, next).carry(v, turned).output("now", x.matmul(w));
        let program = builder.output("new", x.matmul(next)).output("after", after).build()?;
        let name = format!("learned weights of {long}x{wide}");
        Ok(Case {
            name,
            program,
            inputs: inputs.into_iter().collect::<Result<_>>()?,
            steps: 3,
            tolerances: vec![0.0; 5],
        })
    });
    made.collect()
}
