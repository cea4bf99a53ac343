//! Images seen through affine maps of the plane that are drawn from ranges.
//!
//!   A = Σ εᵢ·λᵢ·Gᵢ with ε uniform in ±1 for each view,   a view = the image at the places (exp A)·(x, y, 1)
//!
//! G are the generators of the affine maps. Their third row is zero, and so is that of A, so only the other two are
//! computed, as six numbers per view. Each number is one tensor over all views. The exponential is then sums and
//! products of tensors of one shape, which are fused; matrix products would be tens of thousands of tiny ones.

use bilevel::Tensor;
use bilevel::graph::nn;

/// Views `[n, views, height·width]` of images `[n, 1, height, width]`, with ranges λ `[6]` and draws ε `[6, n, views]`.
///
/// ```
/// use bilevel::graph::{Array, DType, Graph, Reference};
/// use bilevel_tasks::invariance::views;
/// let g = Graph::new();
/// let images = g.iota([1, 1, 2, 2], 3, DType::F64);
/// // Without a range every view is the image itself.
/// let seen = views(images, g.constant(0.0, [6], DType::F64), g.constant(1.0, [6, 1, 3], DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[seen]).unwrap()[0].to_f64(), [0.0, 1.0].repeat(6));
/// ```
#[track_caller]
pub fn views(images: Tensor, ranges: Tensor, draws: Tensor) -> Tensor {
    let (count, height, width) = (images.dim(0), images.dim(2), images.dim(3));
    let views = draws.dim(2);
    let numbers = [0, 1, 2, 3, 4, 5].map(|i| ranges.index(0, i) * draws.index(0, i));
    let Affine { linear: [across, down], shift } = Affine::generated(numbers).exponential();
    // Pixels are at the centres of equal parts of −1 … 1.
    let centres = |length: usize, shape: [usize; 4]| {
        let number = images.constant_like(0.0, [length]).iota_like(0);
        ((number * 2.0 + 1.0) * (1.0 / length as f64) - 1.0).reshape(shape)
    };
    let (x, y) = (centres(width, [1, 1, 1, width]), centres(height, [1, 1, height, 1]));
    let place = |[a, b]: [Tensor; 2], shift: Tensor| {
        let [a, b, shift] = [a, b, shift].map(|part| part.reshape([count, views, 1, 1]));
        (a * x + b * y + shift).reshape([count, views * height, width])
    };
    nn::sample_at(images, [place(across, shift[0]), place(down, shift[1])], false).reshape([
        count,
        views,
        height * width,
    ])
}

/// Two rows of a 3×3 matrix: `linear` and, as the third column, `shift`.
#[derive(Clone, Copy)]
struct Affine {
    linear: [[Tensor; 2]; 2],
    shift: [Tensor; 2],
}

impl Affine {
    /// Along x and y, rotation, scales of x and y, shear.
    fn generated([x, y, turn, wide, high, shear]: [Tensor; 6]) -> Affine {
        Affine { linear: [[wide, shear - turn], [shear + turn, high]], shift: [x, y] }
    }

    fn scaled(&self, factor: f64) -> Affine {
        Affine { linear: self.linear.map(|row| row.map(|x| x * factor)), shift: self.shift.map(|x| x * factor) }
    }

    fn plus(&self, other: &Affine) -> Affine {
        let sum = |a: [Tensor; 2], b: [Tensor; 2]| [a[0] + b[0], a[1] + b[1]];
        let linear = [sum(self.linear[0], other.linear[0]), sum(self.linear[1], other.linear[1])];
        Affine { linear, shift: sum(self.shift, other.shift) }
    }

    /// The product with a matrix whose third row is zero.
    fn times(&self, other: &Affine) -> Affine {
        let [[a, b], [c, d]] = self.linear;
        let column = |top: Tensor, bottom: Tensor| [a * top + b * bottom, c * top + d * bottom];
        let [left, right] = [0, 1].map(|j| column(other.linear[0][j], other.linear[1][j]));
        Affine { linear: [[left[0], right[0]], [left[1], right[1]]], shift: column(other.shift[0], other.shift[1]) }
    }

    /// exp A as (exp A/64)⁶⁴, the series to the sixth power: with ranges up to 10, which turn an image around more than once, that
    /// is all digits of f32.
    fn exponential(&self) -> Affine {
        let part = self.scaled(1.0 / 64.0);
        let (mut term, mut sum) = (part, part);
        for k in 2..=6 {
            term = term.times(&part).scaled(1.0 / f64::from(k));
            sum = sum.plus(&term);
        }
        sum.linear[0][0] = sum.linear[0][0] + 1.0;
        sum.linear[1][1] = sum.linear[1][1] + 1.0;
        for _ in 0..6 {
            // The third row is 0, 0, 1 here.
            let square = sum.times(&sum);
            sum = Affine { shift: [0, 1].map(|i| square.shift[i] + sum.shift[i]), ..square };
        }
        sum
    }
}
