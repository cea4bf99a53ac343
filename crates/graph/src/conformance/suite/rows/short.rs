//! Short rows of a table, gathered by computed indices, as in sampling an image between its pixels.
//!
//! An executor may gather them in any loop that reads them, and again in a later one. Rows have one to nine elements,
//! and are read whole, column by column, reversed or in part. Loops are over elements, over rows, and over rows that
//! threads do not share evenly.

use crate::conformance::{Case, CaseBuilder, tolerance};
use crate::{DType, Result, Tensor, gradient, nn, vjp};

/// Tables in a batch, rows of each, elements of a row, and numbers.
const SHAPES: [[usize; 4]; 6] =
    [[1, 7, 1, 40], [3, 5, 2, 33], [2, 9, 3, 50], [4, 6, 4, 784], [2, 3, 8, 21], [2, 3, 9, 21]];

/// Rows of tables that are read in many ways, and images sampled at places that are derived by.
pub(crate) fn short_rows(dtype: DType) -> Result<Vec<Case>> {
    let mut cases = vec![];
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        cases.push(read_in_many_ways(shape, dtype, seed as u64)?);
    }
    for (seed, (image, places)) in [([2, 1, 5, 6], [3, 4]), ([3, 2, 8, 8], [28, 28])].into_iter().enumerate() {
        cases.push(sampled(image, places, dtype, seed as u64)?);
    }
    Ok(cases)
}

fn read_in_many_ways([batch, rows, width, count]: [usize; 4], dtype: DType, seed: u64) -> Result<Case> {
    let mut case = CaseBuilder::new(seed);
    let (table, x) = (case.input("table", [batch, rows, width], dtype)?, case.input("x", [batch, count], dtype)?);
    let names = case.indices("names", [rows, 2], 1000)?;
    // From 0 to the last row.
    let at = ((x.sin() + 1.0) * (rows as f64 * 0.49)).floor().convert(DType::I32);
    let taken = table.gather(at, 1);
    let columns: Vec<Tensor> = (0..width).map(|column| taken.index(2, column)).collect();
    let last = columns[width - 1];
    let near = tolerance(dtype);
    let share = nn::softmax(columns[0] + x, 1);
    case.outputs(
        [
            taken.sin().transpose([2, 0, 1]),
            taken.slice(1, 3, count - 2).reverse([1, 2]).sum([2]),
            columns.iter().skip(1).fold(columns[0] * x, |sum, &column| sum * 0.5 + column),
            share * last,
            taken.max([1]),
        ],
        near,
    );
    case.output(names.take(at).index(2, 1) * 3.0, 0.0);
    case.carry(x, x + share * 3.0 + last * 0.1, near);
    case.carry(table, table * 0.9, near);
    case.build(format!("{count} rows of {width} in {dtype}, from tables of {rows}"), 3)
}

/// An image seen at moved places, its slope by how they are moved, and products with its second derivative.
fn sampled(image: [usize; 4], [p, q]: [usize; 2], dtype: DType, seed: u64) -> Result<Case> {
    let mut case = CaseBuilder::new(seed);
    let (x, moves) = (case.input("x", image, dtype)?, case.input("moves", [image[0], 2, 3], dtype)?);
    let grid = nn::affine_grid(moves * 0.4, [p, q], false);
    let seen = nn::grid_sample(x, grid, false);
    let loss = (seen * 0.7).sin().sum_all();
    let slopes: Vec<Tensor> = gradient(loss, &[x, moves])?.into_iter().flatten().collect();
    let directions: Vec<Tensor> = [x, moves].iter().map(|variable| variable.cos()).collect();
    let second = vjp(&slopes, &directions, &[x, moves])?;
    let near = tolerance(dtype);
    case.carry(moves, moves - slopes[1] * 0.01, near);
    case.output(seen, near);
    case.outputs(slopes.into_iter().chain(second.into_iter().flatten()), near);
    case.build(format!("{image:?} sampled at {p} x {q} places in {dtype}"), 2)
}
