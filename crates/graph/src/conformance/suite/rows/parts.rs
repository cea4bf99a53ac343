//! Reductions over parts of the rows of a softmax, as in losses of images that are summed by line and by column.
//!
//! An executor may fuse them while it has a row in registers. Rows have one element per thread or many, a length that
//! threads share evenly or not, few or more than are computed at once, up to the longest.

use crate::conformance::{Case, CaseBuilder, tolerance};
use crate::{DType, Result, Tensor};

/// Rows, and the axes of one.
const SHAPES: [&[usize]; 11] = [
    &[6, 4, 5],
    &[131, 2, 3],
    &[37, 3, 7],
    &[7, 2, 100],
    &[9, 3, 4, 11],
    &[2, 3, 2, 3, 2, 5],
    &[5, 28, 28],
    &[3, 2, 150, 7],
    &[2, 40, 10, 20],
    &[1, 12, 10],
    &[140, 3, 90],
];

/// For each shape: floats and whole numbers that change from step to step, reduced over every choice of axes within a row.
pub(crate) fn parts_of_rows(dtype: DType) -> Result<Vec<Case>> {
    SHAPES.iter().enumerate().map(|(seed, shape)| reduced(shape, dtype, seed as u64)).collect()
}

fn reduced(shape: &[usize], dtype: DType, seed: u64) -> Result<Case> {
    let mut case = CaseBuilder::new(seed);
    let (x, counts) = (case.input("x", shape, dtype)?, case.indices("counts", shape, 1000)?);
    let inner: Vec<usize> = (1..shape.len()).collect();
    let over_rows = |rows: Tensor| rows.broadcast([0], shape);
    let e = (x - over_rows(x.max(&inner))).exp();
    let shares = e / over_rows(e.sum(&inner));
    let missing = over_rows(counts.max(&inner)) - counts;
    let (waves, weighted) = ((shares * 9.0).sin(), shares * missing.convert(dtype));
    let near = tolerance(dtype);
    // Every choice of axes within a row but none and all.
    for choice in 1..(1usize << inner.len()) - 1 {
        let axes: Vec<usize> = inner.iter().copied().filter(|axis| choice >> (axis - 1) & 1 == 1).collect();
        case.outputs([shares.sum(&axes), waves.max(&axes)], near);
        case.output(missing.sum(&axes), 0.0);
        if choice % 3 == 1 {
            case.output(weighted.sum(&axes), near);
            case.output(missing.max(&axes), 0.0);
        }
    }
    // Values across rows are reduced separately.
    case.output(waves.sum([0]), near);
    case.carry(x, x - shares * 0.5, near);
    case.carry(counts, missing, 0.0);
    case.build(format!("parts of the rows of {shape:?} in {dtype}"), 3)
}
