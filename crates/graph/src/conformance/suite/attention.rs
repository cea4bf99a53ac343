//! Rows between two products of many small matrices, as a softmax stands in an attention: an executor may keep them at hand from the first
//! product to the last.

use crate::conformance::{Case, Dice, tolerance};
use crate::{DType, DotDims, Graph, Program, Result, Tensor, gradient_or_zeros, nn};

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

/// Queries, keys and values of all heads, which lie side by side.
fn parts(all: Tensor, [images, heads, places, width]: [usize; 4]) -> [Tensor; 3] {
    [0, 1, 2].map(|number| {
        let part = all.slice(2, number * heads * width, (number + 1) * heads * width);
        part.reshape([images, places, heads, width]).transpose([0, 2, 1, 3])
    })
}

fn case(name: String, g: &Graph, all: Tensor, outputs: &[Tensor], seed: u64) -> Result<Case> {
    let mut builder = Program::builder(g);
    for (number, output) in outputs.iter().enumerate() {
        builder = builder.output(number.to_string(), *output);
    }
    let inputs = vec![("all".to_string(), Dice::new(seed).array(&all.shape(), DType::F32)?)];
    let tolerances = vec![tolerance(DType::F32); outputs.len()];
    Ok(Case { name, program: builder.build()?, inputs, steps: 1, tolerances })
}

/// For each shape: −1, 0 or 1 for every score, by the largest of its row, times the values. Every intermediate number
/// is known to the bit if the inputs have few digits. In some cases the scores or the rows are also results.
pub(crate) fn exact_strips() -> Result<Vec<Case>> {
    let made = SHAPES.iter().enumerate().map(|(seed, &shape)| {
        let [images, heads, places, width] = shape;
        let (g, square) = (Graph::new(), [images, heads, places, places]);
        let all = g.input("all", [images, places, 3 * heads * width], DType::F32);
        let [q, k, v] = parts(all, shape);
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
        let name = format!("strips of {images}x{heads} heads of {places}x{width}");
        case(name, &g, all, &outputs[..[1, 2, 4, 4, 3, 6, 1][seed]], 90 + seed as u64)
    });
    made.collect()
}

/// For each shape: an attention and its derivative.
pub(crate) fn attentions() -> Result<Vec<Case>> {
    let made = SHAPES.iter().enumerate().map(|(seed, &shape)| {
        let [images, heads, places, width] = shape;
        let g = Graph::new();
        let all = g.input("all", [images, places, 3 * heads * width], DType::F32);
        let [q, k, v] = parts(all, shape);
        let found = nn::scaled_dot_product_attention(q, k, v, None);
        let slope = gradient_or_zeros(found.sin().sum_all(), &[all])?;
        let name = format!("attention of {images}x{heads} heads of {places}x{width}");
        case(name, &g, all, &[found, slope[0]], 70 + seed as u64)
    });
    made.collect()
}
