//! Batched products of small matrices, as in the heads of an attention. Matrices have two batch strides, sums go along
//! contiguous or strided axes, and results are read in another order.

use crate::conformance::{Case, CaseBuilder, tolerance};
use crate::{DType, DotDims, Result, Tensor};

/// Images, heads, places and the width of a head. Rows begin at multiples of 16 bytes or not, and fill tiles of whatever size or not.
const SHAPES: [[usize; 4]; 6] =
    [[2, 8, 37, 24], [1, 16, 130, 33], [2, 9, 70, 20], [3, 6, 64, 64], [1, 17, 20, 200], [2, 8, 101, 32]];

/// For each shape: the products of an attention and of its derivative, each of inputs.
pub(crate) fn heads(dtype: DType) -> Result<Vec<Case>> {
    SHAPES.iter().enumerate().map(|(seed, &shape)| products(shape, dtype, seed as u64)).collect()
}

fn products([images, heads, places, width]: [usize; 4], dtype: DType, seed: u64) -> Result<Case> {
    let mut case = CaseBuilder::new(seed);
    let all = case.input("all", [images, places, 3 * heads * width], dtype)?;
    let weights = case.input("weights", [images, heads, places, places], dtype)?;
    let part = |number: usize| {
        let part = all.slice(2, number * heads * width, (number + 1) * heads * width);
        part.reshape([images, places, heads, width]).transpose([0, 2, 1, 3])
    };
    let [q, k, v] = [0, 1, 2].map(part);
    let dot = |a: Tensor, b: Tensor, over: [usize; 2]| {
        let [lhs, rhs] = over.map(|axis| vec![axis]);
        a.dot(b, DotDims { lhs_contract: lhs, rhs_contract: rhs, lhs_batch: vec![0, 1], rhs_batch: vec![0, 1] })
    };
    let merged = |x: Tensor| x.transpose([0, 2, 1, 3]).reshape([images, places, heads * width]);
    let results = [
        dot(q, k, [3, 3]),
        dot(k, q, [3, 3]).transpose([0, 1, 3, 2]),
        merged(dot(weights, v, [3, 2])),
        merged(dot(weights, q, [2, 2])),
        dot(v, weights, [2, 3]),
    ];
    case.outputs(results, tolerance(dtype));
    case.build(format!("{images}x{heads} heads of {places}x{width} in {dtype}"), 1)
}
