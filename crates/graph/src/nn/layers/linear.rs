//! The affine map.

use crate::ir::op::DotDims;
use crate::nn::call::{Call, require};
use crate::tensor::Tensor;

/// Contracts the last axis of the left operand with the first of the right.
pub(super) fn last_with_first(x: Tensor) -> DotDims {
    DotDims { lhs_contract: vec![x.rank().saturating_sub(1)], rhs_contract: vec![0], ..DotDims::default() }
}

/// x·w + b for x `[.., i]`, w `[i, o]` and b `[o]`: `[.., o]`. The bias may be `None`.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let (x, w) = (g.constant(2.0, [1, 3], DType::F64), g.constant(0.5, [3, 2], DType::F64));
/// let y = nn::linear(x, w, g.constant(1.0, [2], DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].to_f64(), [4.0, 4.0]);
/// assert_eq!(nn::linear(x, w, None).shape(), [1, 2]);
/// ```
#[track_caller]
pub fn linear(x: Tensor, w: Tensor, b: impl Into<Option<Tensor>>) -> Tensor {
    let b = b.into();
    let operands: Vec<Tensor> = [x, w].into_iter().chain(b).collect();
    let call = Call::new("linear", &operands);
    require!(call, call.floats_of_one_type(), "all operands must be floats of one type");
    require!(call, x.rank() > 0 && w.rank() == 2, "needs x [.., i] and a weight [i, o]");
    require!(call, x.dim(x.rank() - 1) == w.dim(0), "the last axis of x must equal the first of the weight");
    let product = x.dot(w, last_with_first(x));
    let Some(b) = b else { return call.done(product) };
    require!(call, b.shape() == [w.dim(1)], "the bias must have shape {:?}", [w.dim(1)]);
    call.done(product + b)
}
