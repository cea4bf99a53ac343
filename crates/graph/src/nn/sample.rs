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
/// Coordinate −1 is the centre of the first pixel with `align_corners`, else its outer border, as in PyTorch. If a
/// coordinate is exactly a pixel's centre, the derivative is the one from the right.
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
    call.done(sample_at(x, [grid.index(3, 0), grid.index(3, 1)], align_corners))
}

/// [`grid_sample`] with the coordinates of columns and of rows in separate tensors, `[n, p, q]` each, which need not be
/// concatenated.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let x = g.iota([1, 1, 3, 3], 3, DType::F64);
/// let [column, row] = [0.5, 0.0].map(|place| g.constant(place, [1, 1, 1], DType::F64));
/// let y = nn::sample_at(x, [column, row], true);
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].item(), Some(1.5));
/// ```
///
/// The four pixels around a place are those of its cell. With u and v the place's fractions from the cell's upper left corner,
///
///   a + u·b + v·(c + u·d),   a = upper left, b = upper right − a, c = lower left − a, d = lower right − a − b − c,
///
/// and all four numbers of all cells are in one table, so that each point fetches them with a single index. With two
/// rows of zeros all around, every point is in a cell: those further out are moved into the zeros.
#[track_caller]
pub fn sample_at(x: Tensor, [column, row]: [Tensor; 2], align_corners: bool) -> Tensor {
    let operands = [x, column, row];
    let call = Call::new("sample_at", &operands);
    require!(call, call.floats_of_one_type(), "all operands must be floats of one type");
    let fits = x.rank() == 4 && column.rank() == 3 && x.dim(0) == column.dim(0) && column.shape() == row.shape();
    require!(call, fits, "needs an image [n, c, h, w] and coordinates [n, p, q]");
    let (n, c, height, width) = (x.dim(0), x.dim(1), x.dim(2), x.dim(3));
    require!(call, height * width > 0, "the image has no pixels");
    let (p, q) = (column.dim(1), column.dim(2));
    let across = Fall::new(column, width, align_corners);
    let down = Fall::new(row, height, align_corners);
    let cells = [height + 3, width + 3];
    let index = down.cell * (cells[1] as f64) + across.cell;
    let around = x.pad(2, 2, 2).pad(3, 2, 2);
    let corner = |i: usize, j: usize| around.slice(2, i, i + cells[0]).slice(3, j, j + cells[1]);
    let a = corner(0, 0);
    let (b, below) = (corner(0, 1) - a, corner(1, 0) - a);
    let d = corner(1, 1) - a - b - below;
    let parts = [a, b, below, d].map(|part| part.reshape([n, c, cells[0] * cells[1], 1]));
    let table = parts[0].concat(&parts[1..], 3).transpose([0, 2, 1, 3]);
    let found = table.gather(index.reshape([n, p * q]), 1);
    let [a, b, below, d] = [0, 1, 2, 3].map(|part| found.index(3, part));
    let [u, v] = [across, down].map(|fall| fall.fraction.reshape([n, p * q, 1]));
    call.done((a + u * b + v * (below + u * d)).transpose([0, 2, 1]).reshape([n, c, p, q]))
}

/// The position of a point along one axis: the number (i32) of its cell, and its offset there.
#[derive(Clone, Copy)]
struct Fall {
    cell: Tensor,
    fraction: Tensor,
}

impl Fall {
    #[track_caller]
    fn new(coordinate: Tensor, length: usize, align_corners: bool) -> Self {
        let half = 0.5 * if align_corners { length as f64 - 1.0 } else { length as f64 };
        // In pixels: −1 is 0 or −½, 1 is length − 1 or length − ½. From −2 down and from `length` up all is zero.
        let place = (coordinate * half + (length as f64 - 1.0) * 0.5).clamp(-2.0, length as f64);
        let before = place.floor();
        Fall { cell: (before + 2.0).convert(DType::I32), fraction: place - before }
    }
}
