//! Softmax and its logarithm along any axis.
//!
//! All are unchanged by a shift of x, so the largest element is subtracted as a constant (its derivative is stopped):
//! no overflow, and the derivatives of every order stay exact.

use super::call::{Call, require};
use crate::tensor::Tensor;

/// x less its largest element along `axis`, and that element, without `axis`.
#[track_caller]
pub(super) fn shifted(x: Tensor, axis: usize) -> (Tensor, Tensor) {
    let largest = x.max([axis]).stop_gradient();
    (x - largest.unsqueeze([axis]), largest)
}

/// eˣ/Σeˣ along `axis`.
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let x = g.input("x", [2, 2], DType::F64);
/// let value = Array::from_f64([2, 2], vec![1000.0, 1000.0, 0.0, 3f64.ln()]).unwrap();
/// let y = Reference::evaluate(&g, &[(x, value)], &[nn::softmax(x, 1)]).unwrap()[0].to_f64();
/// assert_eq!(y[..2], [0.5, 0.5]);
/// assert!((y[3] - 0.75).abs() < 1e-15);
/// ```
#[track_caller]
pub fn softmax(x: Tensor, axis: usize) -> Tensor {
    let operands = [x];
    let call = Call::new("softmax", &operands);
    require!(call, x.dtype().is_float(), "needs floats");
    require!(call, axis < x.rank(), "there is no axis {axis}");
    let e = shifted(x, axis).0.exp();
    call.done(e * e.sum([axis]).recip().unsqueeze([axis]))
}

/// x − ln Σeˣ along `axis`.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::log_softmax(g.constant(1000.0, [4], DType::F64), 0);
/// let found = Reference::evaluate(&g, &[], &[y]).unwrap()[0].to_f64();
/// assert!((found[0] + 4f64.ln()).abs() < 1e-15);
/// ```
#[track_caller]
pub fn log_softmax(x: Tensor, axis: usize) -> Tensor {
    let operands = [x];
    let call = Call::new("log_softmax", &operands);
    require!(call, x.dtype().is_float(), "needs floats");
    require!(call, axis < x.rank(), "there is no axis {axis}");
    let z = shifted(x, axis).0;
    call.done(z - z.exp().sum([axis]).log().unsqueeze([axis]))
}

/// ln Σeˣ along `axis`, which disappears.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::logsumexp(g.constant(-1000.0, [4], DType::F64), 0);
/// let found = Reference::evaluate(&g, &[], &[y]).unwrap()[0].item().unwrap();
/// assert!((found - (4f64.ln() - 1000.0)).abs() < 1e-12);
/// ```
#[track_caller]
pub fn logsumexp(x: Tensor, axis: usize) -> Tensor {
    let operands = [x];
    let call = Call::new("logsumexp", &operands);
    require!(call, x.dtype().is_float(), "needs floats");
    require!(call, axis < x.rank(), "there is no axis {axis}");
    let (z, largest) = shifted(x, axis);
    call.done(z.exp().sum([axis]).log() + largest)
}
