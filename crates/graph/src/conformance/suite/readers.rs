//! Readers of a product's result: every operation reads it as stored, which may be in fewer bytes than other values.

use crate::conformance::{Case, CaseBuilder, tolerance};
use crate::{DType, Precision, Result, Tensor, WindowDims};

/// Rows and columns of the product, which are places of kernels of 3×3. Rows begin at multiples of 16 bytes or not.
const SHAPES: [[usize; 2]; 4] = [[12, 18], [37, 36], [40, 288], [6, 1152]];
/// The number of summed terms.
const TERMS: usize = 9;

/// For each shape: a product of inputs, read by everything that reads.
pub(crate) fn readers() -> Result<Vec<Case>> {
    SHAPES.iter().enumerate().map(|(seed, &shape)| read(shape, seed as u64)).collect()
}

fn read([rows, columns]: [usize; 2], seed: u64) -> Result<Case> {
    let (mut case, float) = (CaseBuilder::new(seed), DType::F32);
    let mut input = |name: &str, shape: [usize; 2]| case.input(name, shape, float);
    let (x, w, v) = (input("x", [rows, TERMS])?, input("w", [TERMS, columns])?, input("v", [columns, TERMS])?);
    let (other, carried) = (input("other", [rows, columns])?, input("carried", [rows, columns])?);
    let numbers = case.indices("numbers", [rows], rows)?;
    let p = x.matmul(w);
    let q = (x * 0.5).matmul(w);
    // Rows with their mean taken away, and sums of columns of both while they are at hand.
    let centred = p - p.sum([1]).reshape([rows, 1]) * (1.0 / columns as f64);
    let in_window = WindowDims { size: [2, 2], stride: [2, 2], padding: [(0, 0); 2] };
    let channels = columns / 9;
    let kernel_last = |x: Tensor| x.reshape([rows, channels, 9]).transpose([0, 2, 1]);
    let exact = [p, p.t(), p.reverse([0]).slice(1, 1, columns), p.concat(&[q], 0), p.concat(&[q, other], 1)];
    let moved = [
        p.pad_all(vec![1, 0], vec![0, 2], vec![1, 0]),
        p.pad(1, 0, columns) + q.pad(1, columns, 0),
        p.pad(0, 0, rows) + other.pad(0, rows, 0),
        p.take(numbers),
        p.argmax(1).convert(float),
        p.window_argmax(in_window).convert(float),
        kernel_last(p),
        kernel_last(other).reshape([rows * 9, channels]).matmul(v.slice(0, 0, channels)),
    ];
    let near = [
        p.tanh() + other,
        centred,
        centred.square().sum([0]) + p.sum([0]),
        p.sum([0]),
        p.sum([1]),
        p.max([1]),
        p.pad(0, 0, 1) + q.pad(0, 1, 0),
        p.scatter_add(numbers, 0, rows),
        p.cumsum(0),
        p.reshape([rows * columns / 2, 2]).sum([1]),
    ];
    // Read by the next product as they are.
    let multiplied = [p.matmul(v), p.concat(&[q], 0).matmul(v), (p.pad(0, 0, rows) + q.pad(0, rows, 0)).matmul(v)];
    case.outputs(exact.into_iter().chain(moved), 0.0);
    case.outputs(near, tolerance(float));
    case.outputs(multiplied, 2.0 * Precision::Bf16.unit());
    case.carry(carried, p, 0.0);
    case.build(format!("readers of a product of {rows}x{columns}"), 2)
}
