//! Augmentation as tensors, so that it runs on the device of the program. Draws are new in every step, and the same in
//! all derivatives of a step. Images are `[n, c, h, w]`.

use bilevel::graph::DType;
use bilevel::{Scope, Tensor};

/// Pads every image with `padding` zeros on each side and crops it to its size again at a separate random place; all
/// (2·padding + 1)² places are equally likely.
///
/// ```
/// use bilevel::prelude::*;
/// use bilevel_data::augment;
/// // One bright pixel in nine: a crop may lose it, and never makes a second one.
/// let image = (0..9).map(|place| f64::from(u8::from(place == 0))).collect();
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
///     .data("image", Array::from_f64([1, 1, 3, 3], image)?)
///     .inner(|s, l, t| (t.0 - l.0 - augment::random_crop(s, s.data("image"), 1).sum_all()).square())
///     .outer(|_, _, t| t.0.square())
///     .build()?;
/// let outcome = Driver::new(&problem, Rmd::default()).inner(InnerLoop::new(0.5, 1)).iterations(1).run()?;
/// assert!([0.0, 1.0].contains(&outcome.theta.0.item().unwrap()));
/// # Ok::<(), bilevel::Error>(())
/// ```
#[track_caller]
pub fn random_crop(scope: &Scope, images: Tensor, padding: usize) -> Tensor {
    let count = images.dim(0);
    let places = (2 * padding + 1) as f64;
    // Rounding a 32-bit number up to the bound would be a place too many.
    let draw = || scope.uniform([count], 0.0, places).floor().clamp(0.0, places - 1.0).convert(DType::I32);
    let (top, left) = (draw(), draw());
    crop_at(images, padding, top, left)
}

/// Pads every image with `padding` zeros on each side and crops it to its size again, beginning at these rows and
/// columns of the padded image (`i32[n]`, in 0 … 2·padding).
///
/// ```
/// use bilevel::graph::{Array, DType, Graph, Reference};
/// use bilevel_data::augment;
/// let g = Graph::new();
/// let (x, moved) = (g.input("x", [1, 1, 2, 2], DType::F64), g.constant(2.0, [1], DType::I32));
/// let value = Array::from_f64([1, 1, 2, 2], vec![1.0, 2.0, 3.0, 4.0])?;
/// let y = augment::crop_at(x, 1, moved, moved);
/// assert_eq!(Reference::evaluate(&g, &[(x, value)], &[y])?[0].to_f64(), [4.0, 0.0, 0.0, 0.0]);
/// # Ok::<(), bilevel::graph::Error>(())
/// ```
#[track_caller]
pub fn crop_at(images: Tensor, padding: usize, top: Tensor, left: Tensor) -> Tensor {
    let (height, width) = (images.dim(2), images.dim(3));
    let padded = images.pad(2, padding, padding).pad(3, padding, padding);
    // y[i, c, r, k] = padded[i, c, top[i] + r, left[i] + k], an axis at a time: the axis to choose from comes second.
    let places = |from: Tensor, length: usize| {
        let count = from.dim(0);
        from.unsqueeze([1]) + from.constant_like(0.0, [count, length]).iota_like(1)
    };
    let rows = padded.transpose([0, 2, 1, 3]).gather(places(top, height), 1);
    rows.transpose([0, 3, 2, 1]).gather(places(left, width), 1).transpose([0, 2, 3, 1])
}

/// Mirrors every image left to right with probability ½.
///
/// ```
/// use bilevel::prelude::*;
/// use bilevel_data::augment;
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
///     .data("image", Array::from_f64([1, 1, 1, 2], vec![5.0, 7.0])?)
///     .inner(|s, l, t| (t.0 - l.0 - augment::random_flip(s, s.data("image")).index(3, 0).sum_all()).square())
///     .outer(|_, _, t| t.0.square())
///     .build()?;
/// let outcome = Driver::new(&problem, Rmd::default()).inner(InnerLoop::new(0.5, 1)).iterations(1).run()?;
/// assert!([5.0, 7.0].contains(&outcome.theta.0.item().unwrap()));
/// # Ok::<(), bilevel::Error>(())
/// ```
#[track_caller]
pub fn random_flip(scope: &Scope, images: Tensor) -> Tensor {
    let draw = scope.uniform([images.dim(0)], 0.0, 1.0);
    flip_where(images, draw.less(0.5))
}

/// Mirrors the images for which `which` (`[n]`) is not 0 left to right.
///
/// ```
/// use bilevel::graph::{DType, Graph, Reference};
/// use bilevel_data::augment;
/// let g = Graph::new();
/// let x = g.iota([2, 1, 1, 2], 3, DType::F64);
/// let y = augment::flip_where(x, g.iota([2], 0, DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[y])?[0].to_f64(), [0.0, 1.0, 1.0, 0.0]);
/// # Ok::<(), bilevel::graph::Error>(())
/// ```
#[track_caller]
pub fn flip_where(images: Tensor, which: Tensor) -> Tensor {
    let shape = images.shape();
    let which = which.convert(images.dtype()).unsqueeze([1, 2, 3]).broadcast_to(&shape);
    which.select(images.reverse([3]), images)
}
