//! Elementwise nonlinearities.

use super::call::Call;
use super::loss::convex_in;
use crate::ir::op::Op;
use crate::tensor::Tensor;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Larger of x and 0. The derivative at 0 is 0.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, gradient, nn};
/// let g = Graph::new();
/// let x = g.input("x", [], DType::F64);
/// let dx = gradient(nn::relu(x), &[x]).unwrap()[0].unwrap();
/// let at_zero = Reference::evaluate(&g, &[(x, bilevel_graph::Array::scalar(0.0, DType::F64))], &[dx]).unwrap();
/// assert_eq!(at_zero[0].item(), Some(0.0));
/// ```
#[track_caller]
pub fn relu(x: Tensor) -> Tensor {
    // Asking "is it at most 0" lets a NaN through instead of hiding it.
    Call::new("relu", &[x]).done(x.less_equal(0.0).select(0.0, x))
}

/// The tensor y if x is `relu(y)`.
pub(super) fn before_relu(x: Tensor) -> Option<Tensor> {
    let node = x.node()?;
    let [mask, zero, y] = node.inputs[..] else { return None };
    let [mask, zero, y] = [mask, zero, y].map(|id| Tensor::new(x.graph_id(), id));
    let is_relu = node.op == Op::Select && zero.constant_value() == Some(0.0) && mask.is_same_node(y.less_equal(0.0));
    is_relu.then_some(y)
}

/// Between 0 and 6. The derivative at both ends is 0.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::relu6(g.constant(8.0, [], DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].item(), Some(6.0));
/// ```
#[track_caller]
pub fn relu6(x: Tensor) -> Tensor {
    let below_six = x.greater_equal(6.0).select(6.0, x);
    Call::new("relu6", &[x]).done(x.less_equal(0.0).select(0.0, below_six))
}

/// x where positive, else slope·x (also its derivative at 0).
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::leaky_relu(g.constant(-8.0, [], DType::F64), 0.25);
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].item(), Some(-2.0));
/// ```
#[track_caller]
pub fn leaky_relu(x: Tensor, slope: f64) -> Tensor {
    Call::new("leaky_relu", &[x]).done(x.greater(0.0).select(x, x * slope))
}

/// x where positive, else alpha·(eˣ − 1).
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::elu(g.constant(-1000.0, [], DType::F64), 1.0);
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].item(), Some(-1.0));
/// ```
#[track_caller]
pub fn elu(x: Tensor, alpha: f64) -> Tensor {
    let positive = x.greater(0.0);
    // The branch that is not taken sees 0, so that it cannot overflow.
    let negative_part = positive.select(0.0, x);
    Call::new("elu", &[x]).done(positive.select(x, negative_part.expm1() * alpha))
}

/// x·Φ(x) with the normal distribution Φ: ½x·(1 + erf(x/√2)).
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::gelu(g.constant(1.0, [], DType::F64));
/// let found = Reference::evaluate(&g, &[], &[y]).unwrap()[0].item().unwrap();
/// assert!((found - 0.841344746068543).abs() < 1e-14);
/// ```
#[track_caller]
pub fn gelu(x: Tensor) -> Tensor {
    Call::new("gelu", &[x]).done(x * 0.5 * ((x * FRAC_1_SQRT_2).erf() + 1.0))
}

/// The approximation of [`gelu`] by ½x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::gelu_tanh(g.constant(1.0, [], DType::F64));
/// let found = Reference::evaluate(&g, &[], &[y]).unwrap()[0].item().unwrap();
/// assert!((found - 0.8411919906082768).abs() < 1e-14);
/// ```
#[track_caller]
pub fn gelu_tanh(x: Tensor) -> Tensor {
    let inner = x * (x * x * 0.044715 + 1.0) * (2.0 / PI).sqrt();
    Call::new("gelu_tanh", &[x]).done(x * 0.5 * (inner.tanh() + 1.0))
}

/// x/(1 + e⁻ˣ).
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::silu(g.constant(-1000.0, [], DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].item(), Some(0.0));
/// ```
#[track_caller]
pub fn silu(x: Tensor) -> Tensor {
    Call::new("silu", &[x]).done(x * x.sigmoid())
}

/// 1/(1 + e⁻ˣ).
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::sigmoid(g.constant(0.0, [], DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].item(), Some(0.5));
/// ```
#[track_caller]
pub fn sigmoid(x: Tensor) -> Tensor {
    Call::new("sigmoid", &[x]).done(x.sigmoid())
}

/// tanh x.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::tanh(g.constant(1000.0, [], DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].item(), Some(1.0));
/// ```
#[track_caller]
pub fn tanh(x: Tensor) -> Tensor {
    Call::new("tanh", &[x]).done(x.tanh())
}

/// ln(1 + eˣ), without overflow for large |x|.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::softplus(g.constant(1000.0, [], DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].item(), Some(1000.0));
/// ```
#[track_caller]
pub fn softplus(x: Tensor) -> Tensor {
    // m + ln(e⁻ᵐ + eˣ⁻ᵐ) for any m. With m = max(x, 0) held constant nothing overflows, and unlike a form with |x| the
    // derivatives are exact at 0 too.
    let m = x.maximum(0.0).stop_gradient();
    let sum_less_one = (-m).expm1() + (x - m).exp();
    Call::new("softplus", &[x]).done(convex_in(sum_less_one.log1p() + m, &[x]))
}
