//! Priors as losses: −log density, with the constant that depends on their scale.

use super::call::{Call, require};
use crate::tensor::Tensor;

/// −log N(x; 0, 1/precision), summed over all elements: Σ ½·(a·x² − ln a + ln 2π). The precision a is a scalar, or broadcasts to x.
///
/// The term −½·ln a per element prevents a learned precision from growing without bound or falling to 0: a penalty
/// a·x²/2 alone is not a prior.
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let (x, a) = (g.constant(0.5, [3], DType::F64), g.constant(4.0, [], DType::F64));
/// let found = Reference::evaluate(&g, &[], &[nn::gaussian_prior(x, a)]).unwrap()[0].item().unwrap();
/// let one = 0.5 * (4.0 * 0.25 - 4f64.ln() + std::f64::consts::TAU.ln());
/// assert!((found - 3.0 * one).abs() < 1e-14);
/// ```
#[track_caller]
pub fn gaussian_prior(x: Tensor, precision: Tensor) -> Tensor {
    let operands = [x, precision];
    let call = Call::new("gaussian_prior", &operands);
    require!(call, call.floats_of_one_type(), "both operands must be floats of one type");
    let a = precision.broadcast_to(x.shape());
    call.done(((a * x.square() - a.log() + std::f64::consts::TAU.ln()) * 0.5).sum_all())
}

/// −log of the Laplace density b/2·exp(−b·|x|), summed over all elements: Σ b·|x| − ln(b/2). The rate b is a scalar, or broadcasts to
/// x; this is the prior of an L1 penalty.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let (x, b) = (g.constant(-0.5, [3], DType::F64), g.constant(4.0, [], DType::F64));
/// let found = Reference::evaluate(&g, &[], &[nn::laplace_prior(x, b)]).unwrap()[0].item().unwrap();
/// assert!((found - 3.0 * (2.0 - 2f64.ln())).abs() < 1e-14);
/// ```
#[track_caller]
pub fn laplace_prior(x: Tensor, rate: Tensor) -> Tensor {
    let operands = [x, rate];
    let call = Call::new("laplace_prior", &operands);
    require!(call, call.floats_of_one_type(), "both operands must be floats of one type");
    let b = rate.broadcast_to(x.shape());
    call.done((b * x.abs() - (b * 0.5).log()).sum_all())
}
