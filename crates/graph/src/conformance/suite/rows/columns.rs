//! Reductions over the rows of a layer norm, as in the gradients of its gains and offsets.
//!
//! An executor may fuse several of them, and reduce while it has a row in registers. Rows are short or long, of a
//! length that threads share evenly or not, few or more than are computed at once. The operand is computed row by row,
//! is in memory, has several reductions, or is overwritten by the loop that reads it.

use crate::conformance::{Case, CaseBuilder, tolerance};
use crate::{DType, Result, Tensor};

/// Rows, and their length. For each there are that many reductions, or a few more.
const SHAPES: [(usize, usize, usize); 8] = [
    (3000, 40, 6),
    (700, 2, 3),
    (264, 768, 4),
    (130, 197, 12),
    (129, 600, 6),
    (2051, 33, 12),
    (128, 4100, 3),
    (5, 300, 7),
];

/// For each shape: sums and maxima of columns, of floats and of whole numbers that change from step to step.
pub(crate) fn columns_of_rows(dtype: DType) -> Result<Vec<Case>> {
    SHAPES.iter().enumerate().map(|(seed, &shape)| reduced(shape, dtype, seed as u64)).collect()
}

fn reduced((rows, length, number): (usize, usize, usize), dtype: DType, seed: u64) -> Result<Case> {
    let (mut case, shape) = (CaseBuilder::new(seed), [rows, length]);
    let (x, y) = (case.input("x", shape, dtype)?, case.input("y", shape, dtype)?);
    let counts = case.indices("counts", shape, 1000)?;
    let along = |row: Tensor| row.broadcast([0], shape);
    let centred = x - along(x.sum([1])) * (1.0 / length as f64);
    let normed = centred / along((centred.square().sum([1]) * (1.0 / length as f64) + 1e-5).sqrt());
    let missing = along(counts.max([1])) - counts;
    // Sums of many rows that cancel out are less exact than their terms.
    let (near, added) = (tolerance(dtype), tolerance(dtype) * 10.0);
    let slope = y - along((y * normed).sum([1])) * normed * (1.0 / length as f64);
    let mut results = vec![
        (y.abs().sum([0]), added),
        ((y * normed).abs().sum([0]), added),
        (normed.max([0]), near),
        (missing.sum([0]), 0.0),
        // An operand in memory, alone and twice.
        (counts.sum([0]), 0.0),
        (y.max([0]), near),
        (y.sum([0]), added),
    ];
    for wave in results.len()..number {
        results.push(((normed * wave as f64).cos().square().sum([0]), added));
    }
    results.truncate(number.max(3));
    // Others go another way: all elements, one number of each row, and rows that are not all added up.
    results.extend([(slope.square().sum_all(), added), (along(x.sum([1])).max([0]), near)]);
    if rows.is_multiple_of(8) {
        let parts = normed.reshape([8, rows / 8, length]);
        results.extend([(parts.square().sum([0]), added), (parts.max([1]), near)]);
    }
    results.into_iter().for_each(|(result, tolerance)| case.output(result, tolerance));
    // Overwrites the operand of some reductions.
    case.carry(x, x - slope * 0.1, added);
    case.carry(y, slope + 0.25, added);
    case.carry(counts, missing, 0.0);
    case.build(format!("columns of {rows} rows of {length} in {dtype}"), 3)
}
