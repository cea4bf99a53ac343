//! Rows between two products of many small matrices, as a softmax stands in an attention: an executor may keep them at hand from the first
//! product to the last.

use crate::conformance::{Case, CaseBuilder, tolerance};
use crate::{DType, DotDims, Result, Tensor, gradient_or_zeros, nn};

/// Images, heads, places and the width of a head. Strips of rows are whole or not, and so are their columns.
const SHAPES: [[usize; 4]; 7] = [
    [2, 8, 37, 24],
    [2, 8, 40, 24],
    [1, 16, 136, 32],
    [2, 9, 72, 64],
    [1, 17, 200, 64],
    [1, 16, 256, 16],
    [4, 4, 16, 128],
];

/// The numbers of all heads, and their queries, keys and values, which lie side by side.
fn parts(case: &mut CaseBuilder, [images, heads, places, width]: [usize; 4]) -> Result<(Tensor, [Tensor; 3])> {
    let all = case.input("all", [images, places, 3 * heads * width], DType::F32)?;
    let part = |number: usize| {
        let part = all.slice(2, number * heads * width, (number + 1) * heads * width);
        part.reshape([images, places, heads, width]).transpose([0, 2, 1, 3])
    };
    Ok((all, [0, 1, 2].map(part)))
}

/// For each shape: −1, 0 or 1 for every score, by the largest of its row, times the values. Every intermediate number
/// is known to the bit if the inputs have few digits. In some cases the scores or the rows are also results.
pub(crate) fn exact_strips() -> Result<Vec<Case>> {
    let made = SHAPES.iter().enumerate().map(|(seed, &shape)| {
        let [images, heads, places, width] = shape;
        let (mut case, square) = (CaseBuilder::new(90 + seed as u64), [images, heads, places, places]);
        let (_, [q, k, v]) = parts(&mut case, shape)?;
        let dims =
            DotDims { lhs_contract: vec![3], rhs_contract: vec![3], lhs_batch: vec![0, 1], rhs_batch: vec![0, 1] };
        let (scores, others) = (q.dot(k, dims.clone()), v.dot(q, dims.clone()));
        let most = scores.max([3]);
        let signs = (scores - most.broadcast([0, 1, 2], square) * 0.25).sign();
        // In some cases the rows of another product also contribute.
        let signs = if seed % 3 == 0 { signs } else { signs * others.sign() };
        let found = signs.matmul(v);
        // Values with other readers: the rows across a sum, and the scores once the result is known.
        let turned = signs.transpose([0, 1, 3, 2]).matmul(q);
        let later = (found.sign().dot(k, dims).sign() * scores.sign()).sum([3]);
        let merged = found.transpose([0, 2, 1, 3]).reshape([images, places, heads * width]);
        let outputs = [merged, turned, most, later, scores, signs];
        case.outputs(outputs.into_iter().take([1, 2, 4, 4, 3, 6, 1][seed]), tolerance(DType::F32));
        case.build(format!("strips of {images}x{heads} heads of {places}x{width}"), 1)
    });
    made.collect()
}

/// For each shape: an attention and its derivative.
pub(crate) fn attentions() -> Result<Vec<Case>> {
    let made = SHAPES.iter().enumerate().map(|(seed, &shape)| {
        let [images, heads, places, width] = shape;
        let mut case = CaseBuilder::new(70 + seed as u64);
        let (all, [q, k, v]) = parts(&mut case, shape)?;
        let found = nn::scaled_dot_product_attention(q, k, v, None);
        let slope = gradient_or_zeros(found.sin().sum_all(), &[all])?;
        case.outputs([found, slope[0]], tolerance(DType::F32));
        case.build(format!("attention of {images}x{heads} heads of {places}x{width}"), 1)
    });
    made.collect()
}
