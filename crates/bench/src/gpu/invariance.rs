//! Invariances that are learned: how far images may be shifted, turned, scaled and sheared without their class changing.
//!
//!   A = Σ εᵢ·λᵢ·Gᵢ with ε uniform in ±1 for every view,   logits = mean over views of net(image seen through exp A)
//!
//! G are the generators of the affine maps of the plane. Their third row is zero, and so is that of A: what is computed are the other
//! two, as six numbers per view, each of them one tensor over all views. Then all of the exponential is sums and products of
//! tensors of one shape, which run in one go; as products of matrices it would be tens of thousands of tiny ones at a time.

use super::deep::Outer;
use crate::case::Start::{Labels, Uniform};
use crate::error::Result;
use crate::values::array;
use bilevel::graph::nn;
use bilevel::{DType, HpoSgld, Leaf, Problem, Scope, Tensor, Variable};
use bilevel_graph::Precision;
use bilevel_models::{Mlp, MlpConfig};

/// Sizes of the case.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// Images of a step, to train on and to judge by.
    pub images: usize,
    /// Height and width of an image.
    pub side: usize,
    /// Ways in which each image is seen.
    pub views: usize,
    /// Units of the hidden layer.
    pub hidden: usize,
    /// Classes.
    pub classes: usize,
}

/// The sizes of the peer.
pub const FULL: Sizes = Sizes { images: 1000, side: 28, views: 31, hidden: 1000, classes: 10 };
/// Four steps, then one that is kept, without noise.
const METHOD: HpoSgld = HpoSgld { burn_in: 4, samples: 1, step: 0.05, temperature: 0.0, noise_scale: 0.0 };
/// How much a wider range of views is worth.
const REWARD: f64 = 0.01;

/// One λ per generator.
pub fn invariance(sizes: Sizes, dtype: DType, precision: Precision) -> Result<Outer> {
    build(sizes, dtype, precision, logits)
}

fn build(
    sizes: Sizes,
    dtype: DType,
    precision: Precision,
    logits: impl Fn(Tensor, Tensor, &Mlp<Tensor>, Tensor) -> Tensor + Copy + Send + Sync + 'static,
) -> Result<Outer> {
    let Sizes { images, side, views, hidden, classes } = sizes;
    let pictures = |number| array(&[images, 1, side, side], dtype, Uniform(1.0), (number, 0));
    let labels = || array(&[images], DType::I32, Labels(classes), (0, 0));
    let loss = move |s: &Scope, l: Tensor, net: &Mlp<Tensor>, x: &str, y: &str| {
        let draws = s.uniform([6, images, views], -1.0, 1.0);
        nn::cross_entropy(logits(l, draws, net, s.data(x)), s.data(y))
    };
    let net = MlpConfig::tanh([side * side, hidden, classes]).build()?;
    let problem = Problem::new(Leaf(Variable::constant([6], 0.05)), net)
        .dtype(dtype)
        .precision(precision)
        .data("x", pictures(0)?)
        .data("y", labels()?)
        .data("xv", pictures(1)?)
        .data("yv", labels()?)
        .inner(move |s, l, net| loss(s, l.0, net, "x", "y"))
        .outer(move |s, l, net| loss(s, l.0, net, "xv", "yv") - l.0.square().sum_all() * REWARD);
    Ok(Outer { problem: problem.build()?.erase(), method: METHOD.into() })
}

/// Logits `[images, classes]`, the mean over the views with these draws `[6, images, views]`.
fn logits(lambda: Tensor, draws: Tensor, net: &Mlp<Tensor>, images: Tensor) -> Tensor {
    let (count, views, side) = (images.dim(0), draws.dim(2), images.dim(2));
    let scaled = [0, 1, 2, 3, 4, 5].map(|i| lambda.index(0, i) * draws.index(0, i));
    let rows = generator(scaled).exponential().rows(count * views);
    // All views of an image stand below each other, so that one grid has them all.
    let grid = nn::affine_grid(rows, [side, side], false).reshape([count, views * side, side, 2]);
    let seen = nn::grid_sample(images, grid, false).reshape([count, views, side * side]);
    net.forward(seen).mean([1])
}

/// Two rows of a 3×3 matrix: `linear` and, as the third column, `shift`.
#[derive(Clone, Copy)]
struct Rows {
    linear: [[Tensor; 2]; 2],
    shift: [Tensor; 2],
}

/// Along x and y, rotation, scales of x and y, shear.
fn generator([x, y, turn, wide, high, shear]: [Tensor; 6]) -> Rows {
    Rows { linear: [[wide, shear - turn], [shear + turn, high]], shift: [x, y] }
}

impl Rows {
    fn scaled(&self, factor: f64) -> Rows {
        Rows { linear: self.linear.map(|row| row.map(|x| x * factor)), shift: self.shift.map(|x| x * factor) }
    }

    fn plus(&self, other: &Rows) -> Rows {
        let sum = |a: [Tensor; 2], b: [Tensor; 2]| [a[0] + b[0], a[1] + b[1]];
        let linear = [sum(self.linear[0], other.linear[0]), sum(self.linear[1], other.linear[1])];
        Rows { linear, shift: sum(self.shift, other.shift) }
    }

    /// The product with a matrix whose third row is zero.
    fn times(&self, other: &Rows) -> Rows {
        let [[a, b], [c, d]] = self.linear;
        let column = |top: Tensor, bottom: Tensor| [a * top + b * bottom, c * top + d * bottom];
        let [left, right] = [0, 1].map(|j| column(other.linear[0][j], other.linear[1][j]));
        Rows { linear: [[left[0], right[0]], [left[1], right[1]]], shift: column(other.shift[0], other.shift[1]) }
    }

    /// exp A as (exp A/8)⁸, the sum to the sixth power, as in the peer: for λ below 1 that is all digits of f32.
    fn exponential(&self) -> Rows {
        let part = self.scaled(0.125);
        let (mut term, mut sum) = (part, part);
        for k in 2..=6 {
            term = term.times(&part).scaled(1.0 / f64::from(k));
            sum = sum.plus(&term);
        }
        sum.linear[0][0] = sum.linear[0][0] + 1.0;
        sum.linear[1][1] = sum.linear[1][1] + 1.0;
        for _ in 0..3 {
            // The third row is 0, 0, 1 here.
            let square = sum.times(&sum);
            sum = Rows { shift: [0, 1].map(|i| square.shift[i] + sum.shift[i]), ..square };
        }
        sum
    }

    /// As matrices `[count, 2, 3]`.
    fn rows(&self, count: usize) -> Tensor {
        let [[a, b], [c, d]] = self.linear;
        let [first, others @ ..] = [a, b, self.shift[0], c, d, self.shift[1]].map(|part| part.reshape([count, 1]));
        first.concat(&others, 1).reshape([count, 2, 3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::deep::tests::{assert_near, hypergradient};

    /// The same view by view: the exponential of each generator by itself, and each image looked at once for each.
    fn one_by_one(lambda: Tensor, draws: Tensor, net: &Mlp<Tensor>, images: Tensor) -> Tensor {
        let (count, views, side) = (images.dim(0), draws.dim(2), images.dim(2));
        let mut all = vec![];
        for image in 0..count {
            let see = |view: usize| {
                let [x, y, turn, wide, high, shear] = [0, 1, 2, 3, 4, 5]
                    .map(|i| lambda.index(0, i) * draws.index(0, i).index(0, image).index(0, view))
                    .map(|number| number.reshape([1]));
                let entries = [wide, shear - turn, x, shear + turn, high, y];
                let matrix = entries[0].concat(&entries[1..], 0).reshape([2, 3]).pad(0, 0, 1);
                let affine = nn::matrix_exponential(matrix).slice(0, 0, 2).reshape([1, 2, 3]);
                let grid = nn::affine_grid(affine, [side, side], false);
                let seen = nn::grid_sample(images.slice(0, image, image + 1), grid, false);
                net.forward(seen.reshape([1, side * side]))
            };
            let sum = (1..views).map(see).fold(see(0), |sum, logits| sum + logits);
            all.push(sum * (1.0 / views as f64));
        }
        all[0].concat(&all[1..], 0)
    }

    #[test]
    fn all_views_at_once_have_the_hypergradient_of_one_after_the_other() {
        let sizes = Sizes { images: 3, side: 6, views: 4, hidden: 5, classes: 3 };
        let found = hypergradient(&invariance(sizes, DType::F64, Precision::Full).unwrap());
        let expected = hypergradient(&build(sizes, DType::F64, Precision::Full, one_by_one).unwrap());
        assert_near(&found.0, &expected.0, 1e-8);
        assert_near(&[found.1], &[expected.1], 1e-8);
        assert!(expected.0.iter().all(|h| h.abs() > 1e-6), "{expected:?}");
    }
}
