//! Sampling an image at places that are themselves differentiable.

use super::call::{Call, require};
use crate::DType;
use crate::tensor::Tensor;

/// The grid \[x, y\] = theta·\[x₀, y₀, 1\] for every place of an image: theta `[n, 2, 3]` to `[n, h, w, 2]`, for
/// [`grid_sample`].
///
/// Coordinates run from −1 to 1: at the centres of the outermost pixels with `align_corners`, else at their outer borders.
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let theta = g.input("theta", [1, 2, 3], DType::F64);
/// let identity = Array::from_f64([1, 2, 3], vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0]).unwrap();
/// let grid = nn::affine_grid(theta, [1, 2], false);
/// let found = Reference::evaluate(&g, &[(theta, identity)], &[grid]).unwrap()[0].to_f64();
/// assert_eq!(found, [-0.5, 0.0, 0.5, 0.0]);
/// ```
#[track_caller]
pub fn affine_grid(theta: Tensor, size: [usize; 2], align_corners: bool) -> Tensor {
    let operands = [theta];
    let call = Call::new("affine_grid", &operands);
    let shape = theta.shape();
    let fits = theta.dtype().is_float() && shape.len() == 3 && shape[1..] == [2, 3];
    require!(call, fits, "needs float matrices [n, 2, 3]");
    let y = places(theta, size[0], align_corners).reshape([1, size[0], 1, 1]);
    let x = places(theta, size[1], align_corners).reshape([1, 1, size[1], 1]);
    let n = shape[0];
    let column = [n, 1, 1, 2];
    let moved = theta.index(2, 1).reshape(column) * y + theta.index(2, 2).reshape(column);
    call.done(theta.index(2, 0).reshape(column) * x + moved)
}

/// The coordinates of `length` pixels along one axis.
#[track_caller]
fn places(like: Tensor, length: usize, align_corners: bool) -> Tensor {
    let index = like.constant_like(0.0, [length]).iota_like(0);
    match length {
        1 => like.constant_like(0.0, [1]),
        _ if align_corners => index * (2.0 / (length.max(2) - 1) as f64) - 1.0,
        _ => (index * 2.0 + 1.0) * (1.0 / length.max(1) as f64) - 1.0,
    }
}

/// The image x `[n, c, h, w]` at the places of a grid `[n, p, q, 2]`, whose last axis holds the column's and the row's
/// coordinate: `[n, c, p, q]`. Between pixels it is interpolated bilinearly; beyond the image it is zero.
///
/// Coordinate −1 is the centre of the first pixel with `align_corners`, else its outer border, as in PyTorch. Where a
/// coordinate meets a pixel's centre exactly, the derivative is the one from the right.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let x = g.iota([1, 1, 3, 3], 3, DType::F64);
/// let y = nn::grid_sample(x, g.constant(0.5, [1, 1, 1, 2], DType::F64), true);
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].item(), Some(1.5));
/// ```
#[track_caller]
pub fn grid_sample(x: Tensor, grid: Tensor, align_corners: bool) -> Tensor {
    let operands = [x, grid];
    let call = Call::new("grid_sample", &operands);
    require!(call, call.floats_of_one_type(), "both operands must be floats of one type");
    let fits = x.rank() == 4 && grid.rank() == 4 && x.dim(0) == grid.dim(0) && grid.dim(3) == 2;
    require!(call, fits, "needs an image [n, c, h, w] and a grid [n, p, q, 2]");
    let (n, c, height, width) = (x.dim(0), x.dim(1), x.dim(2), x.dim(3));
    require!(call, height * width > 0, "the image has no pixels");
    let (p, q) = (grid.dim(1), grid.dim(2));
    // Everything about the four pixels around a place has the shape [n, 2, 2, p·q]: upper and lower, left and right.
    let corners = [n, 2, 2, p * q];
    let points = grid.reshape([n, 1, 1, p * q, 2]);
    let column = corner(points.index(4, 0), width, align_corners, 2, &corners);
    let row = corner(points.index(4, 1), height, align_corners, 1, &corners);
    let weight = (column.inside * row.inside).select(column.weight * row.weight, 0.0);
    let index = row.index * (width as f64) + column.index;
    // Pixels as rows of channels, so that one index fetches all of them.
    let pixels = x.transpose([0, 2, 3, 1]).reshape([n, height * width, c]);
    let sum = (pixels.gather(index, 1) * weight.unsqueeze([4])).sum([1, 2]);
    call.done(sum.reshape([n, p, q, c]).transpose([0, 3, 1, 2]))
}

/// Along one axis: the index (i32) of the pixel before or after each place, its weight, and 1 where it exists.
struct Corner {
    index: Tensor,
    weight: Tensor,
    inside: Tensor,
}

#[track_caller]
fn corner(coordinate: Tensor, length: usize, align_corners: bool, axis: usize, corners: &[usize]) -> Corner {
    let half = 0.5 * if align_corners { length as f64 - 1.0 } else { length as f64 };
    // In pixels: −1 is 0 or −½, 1 is length − 1 or length − ½.
    let place = coordinate * half + (length as f64 - 1.0) * 0.5;
    let before = place.floor();
    let fraction = place - before;
    let which = place.constant_like(0.0, corners).iota_like(axis);
    let number = before + which;
    let nearest = number.clamp(0.0, length as f64 - 1.0);
    Corner {
        index: nearest.convert(DType::I32),
        // 1 − fraction before, fraction after.
        weight: (1.0 - which) + (which * 2.0 - 1.0) * fraction,
        inside: number.equal(nearest),
    }
}
