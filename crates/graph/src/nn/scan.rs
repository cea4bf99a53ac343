//! Running sums and products.

use super::call::{Call, require};
use crate::tensor::Tensor;

/// y\[i\] = Σ x\[j\] over j ≤ i along `axis`.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::cumsum(g.iota([4], 0, DType::F64), 0);
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].to_f64(), [0.0, 1.0, 3.0, 6.0]);
/// ```
#[track_caller]
pub fn cumsum(x: Tensor, axis: usize) -> Tensor {
    let operands = [x];
    let call = Call::new("cumsum", &operands);
    require!(call, axis < x.rank(), "there is no axis {axis}");
    call.done(x.cumsum(axis))
}

/// y\[i\] = Π x\[j\] over j ≤ i along `axis`. Only products are formed, in ⌈log₂ n⌉ passes over x, so zeros are fine at every
/// order of derivative.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::cumprod(g.iota([4], 0, DType::F64) + 1.0, 0);
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].to_f64(), [1.0, 2.0, 6.0, 24.0]);
/// ```
#[track_caller]
pub fn cumprod(x: Tensor, axis: usize) -> Tensor {
    let operands = [x];
    let call = Call::new("cumprod", &operands);
    require!(call, axis < x.rank(), "there is no axis {axis}");
    let length = x.dim(axis);
    let (mut y, mut shift) = (x, 1);
    // y[i] is the product of the last `shift` elements up to i; joined with y[i − shift], of the last 2·shift.
    while shift < length {
        let mut front = x.shape();
        front[axis] = shift;
        let ones = x.constant_like(1.0, front);
        y = y * ones.concat(&[y.slice(axis, 0, length - shift)], axis);
        shift *= 2;
    }
    call.done(y)
}
