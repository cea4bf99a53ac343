//! Reductions over parts of the rows of a softmax, as in losses of images that are summed by line and by column.
//!
//! An executor may fuse them while it has a row in registers. Rows have one element per thread or many, a length that
//! threads share evenly or not, few or more than are computed at once, up to the longest.

use crate::conformance::{Case, Dice, tolerance};
use crate::{DType, Graph, Program, Result, Tensor};

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
    let g = Graph::new();
    let (x, counts) = (g.input("x", shape, dtype), g.input("counts", shape, DType::I32));
    let inner: Vec<usize> = (1..shape.len()).collect();
    let over_rows = |rows: Tensor| rows.broadcast([0], shape);
    let e = (x - over_rows(x.max(&inner))).exp();
    let shares = e / over_rows(e.sum(&inner));
    let missing = over_rows(counts.max(&inner)) - counts;
    let (waves, weighted) = ((shares * 9.0).sin(), shares * missing.convert(dtype));
    let near = tolerance(dtype);
    let mut results = vec![];
    // Every choice of axes within a row but none and all.
    for choice in 1..(1usize << inner.len()) - 1 {
        let axes: Vec<usize> = inner.iter().copied().filter(|axis| choice >> (axis - 1) & 1 == 1).collect();
        results.extend([(shares.sum(&axes), near), (waves.max(&axes), near), (missing.sum(&axes), 0.0)]);
        if choice % 3 == 1 {
            results.extend([(weighted.sum(&axes), near), (missing.max(&axes), 0.0)]);
        }
    }
    // Values across rows are reduced separately.
    results.push((waves.sum([0]), near));
    let mut builder = Program::builder(&g);
    for (number, (result, _)) in results.iter().enumerate() {
        builder = builder.output(number.to_string(), *result);
    }
    let program = builder.carry(x, x - shares * 0.5).carry(counts, missing).build()?;
    let mut dice = Dice::new(seed);
    let inputs = vec![("x".to_string(), dice.array(shape, dtype)?), ("counts".to_string(), dice.indices(shape, 1000)?)];
    let tolerances = results.iter().map(|(_, tolerance)| *tolerance).chain([near, 0.0]).collect();
    Ok(Case { name: format!("parts of the rows of {shape:?} in {dtype}"), program, inputs, steps: 3, tolerances })
}
