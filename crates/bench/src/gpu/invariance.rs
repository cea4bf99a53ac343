//! Invariances that are learned: how far images may be shifted, turned, scaled and sheared without their class changing.
//!
//! The views are those of the task `invariance`; data are random.

use super::deep::Outer;
use crate::cases::case::Start::{Labels, Uniform};
use crate::cases::values::array;
use crate::error::Result;
use bilevel::graph::nn;
use bilevel::methods::HpoSgld;
use bilevel::{DType, InnerLoop, Leaf, Problem, Scope, Tensor, Variable};
use bilevel_graph::Precision;
use bilevel_models::{Mlp, MlpConfig};
use bilevel_tasks::invariance::views;

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
const METHOD: (HpoSgld, InnerLoop) =
    (HpoSgld {}, InnerLoop { burn_in: 4, noise_scale: 0.0, ..InnerLoop::new(0.05, 5) });
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
    let problem = Problem::builder(Leaf(Variable::constant([6], 0.05)), net)
        .dtype(dtype)
        .precision(precision)
        .data("x", pictures(0)?)
        .data("y", labels()?)
        .data("xv", pictures(1)?)
        .data("yv", labels()?)
        .inner(move |s, l, net| loss(s, l.0, net, "x", "y"))
        .outer(move |s, l, net| loss(s, l.0, net, "xv", "yv") - l.0.square().sum_all() * REWARD);
    Ok(Outer { problem: problem.build()?.erase(), method: METHOD.0.into(), inner: METHOD.1 })
}

/// Logits `[images, classes]`, the mean over the views with these draws `[6, images, views]`. The last layer is linear,
/// so it is applied to the mean of its inputs.
fn logits(lambda: Tensor, draws: Tensor, net: &Mlp<Tensor>, images: Tensor) -> Tensor {
    let features = net.features(views(images, lambda, draws)).mean([1]);
    net.layers.last().map_or(features, |last| last.forward(features))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::deep::tests::{assert_near, hypergradient};

    /// The same view by view: the exponential of each generator by itself, and each image sampled once for each.
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
