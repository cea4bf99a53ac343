//! Attention. Every product contracts axes in place, so nothing is transposed.

use super::linear::last_with_first;
use crate::ir::op::DotDims;
use crate::nn::call::{Call, require};
use crate::nn::softmax::softmax;
use crate::tensor::Tensor;

/// softmax(q·kᵀ/√d + mask)·v for q `[b.., l, d]`, k `[b.., s, d]` and v `[b.., s, e]`: `[b.., l, e]`.
///
/// The mask is added to the scores `[b.., l, s]`, broadcasting; a large negative number hides a place.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let (q, k) = (g.constant(0.0, [2, 3], DType::F64), g.constant(1.0, [5, 3], DType::F64));
/// let v = g.iota([5, 1], 0, DType::F64);
/// let y = nn::scaled_dot_product_attention(q, k, v, None);
/// let found = Reference::evaluate(&g, &[], &[y]).unwrap()[0].to_f64();
/// assert!((found[0] - 2.0).abs() < 1e-14, "equal scores average the values");
/// ```
#[track_caller]
pub fn scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask: impl Into<Option<Tensor>>) -> Tensor {
    let mask = mask.into();
    let operands: Vec<Tensor> = [q, k, v].into_iter().chain(mask).collect();
    let call = Call::new("scaled_dot_product_attention", &operands);
    require!(call, call.floats_of_one_type(), "all operands must be floats of one type");
    let rank = q.rank();
    let ranks_fit = rank >= 2 && k.rank() == rank && v.rank() == rank;
    require!(call, ranks_fit, "needs q [b.., l, d], k [b.., s, d] and v [b.., s, e]");
    let (batch, last) = (rank - 2, rank - 1);
    let (qs, ks, vs) = (q.shape(), k.shape(), v.shape());
    let fits = qs[..batch] == ks[..batch] && qs[..batch] == vs[..batch] && qs[last] == ks[last];
    require!(
        call,
        fits && ks[batch] == vs[batch] && qs[last] > 0,
        "needs q [b.., l, d], k [b.., s, d] and v [b.., s, e]"
    );
    let lead: Vec<usize> = (0..batch).collect();
    let scores = q.dot(k, dims(&lead, &[last], &lead, &[last])) * scale(q);
    let weights = attention_weights(&call, scores, mask);
    call.done(weights.dot(v, dims(&lead, &[last], &lead, &[batch])))
}

fn dims(lhs_batch: &[usize], lhs_contract: &[usize], rhs_batch: &[usize], rhs_contract: &[usize]) -> DotDims {
    DotDims {
        lhs_contract: lhs_contract.to_vec(),
        rhs_contract: rhs_contract.to_vec(),
        lhs_batch: lhs_batch.to_vec(),
        rhs_batch: rhs_batch.to_vec(),
    }
}

/// 1/√d, for the scores: there it is fused into the softmax, while a scaled query would be one more tensor to keep.
fn scale(q: Tensor) -> f64 {
    1.0 / (q.dim(q.rank().saturating_sub(1)) as f64).sqrt()
}

/// softmax(scores + mask) along the last axis.
#[track_caller]
fn attention_weights(call: &Call, mut scores: Tensor, mask: Option<Tensor>) -> Tensor {
    require!(call, !scores.is_empty(), "there is nothing to attend to");
    if let Some(mask) = mask {
        let stretched = crate::shape::broadcast_shapes(&mask.shape(), &scores.shape());
        require!(call, stretched == Some(scores.shape()), "the mask must broadcast to the scores {:?}", scores.shape());
        scores = scores + mask;
    }
    softmax(scores, scores.rank().saturating_sub(1))
}

/// A weight `[i, o]` and a bias `[o]`, as for [`linear`](crate::nn::linear()).
///
/// ```
/// use bilevel_graph::{DType, Graph, nn::Projection};
/// let g = Graph::new();
/// let weight = g.input("w", [4, 4], DType::F32);
/// assert!(Projection::from(weight).bias.is_none());
/// assert!(Projection::from((weight, g.input("b", [4], DType::F32))).bias.is_some());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Projection {
    /// `[i, o]`.
    pub weight: Tensor,
    /// `[o]`, or none.
    pub bias: Option<Tensor>,
}

impl From<Tensor> for Projection {
    fn from(weight: Tensor) -> Self {
        Projection { weight, bias: None }
    }
}

impl From<(Tensor, Tensor)> for Projection {
    fn from((weight, bias): (Tensor, Tensor)) -> Self {
        Projection { weight, bias: Some(bias) }
    }
}

/// The projections of [`multi_head_attention`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionParameters {
    /// The projection of the query: `[e, heads·d]`.
    pub query: Projection,
    /// The projection of the key: `[e, heads·d]`.
    pub key: Projection,
    /// The projection of the value: `[e, heads·m]`.
    pub value: Projection,
    /// The projection of the heads' concatenated results: `[heads·m, o]`.
    pub output: Projection,
}

/// Attention in `heads` subspaces: query `[b, l, e]`, key and value `[b, s, e]` are projected, each head attends in its
/// own part of the projected axis, and the heads' results are projected to `[b, l, o]`. The mask is added to the scores
/// `[b, heads, l, s]`, broadcasting.
///
/// ```
/// use bilevel_graph::{DType, Graph, nn};
/// let g = Graph::new();
/// let x = g.input("x", [2, 7, 6], DType::F32);
/// let [q, k, v, o] = ["q", "k", "v", "o"].map(|name| g.input(name, [6, 6], DType::F32).into());
/// let parameters = nn::AttentionParameters { query: q, key: k, value: v, output: o };
/// let y = nn::multi_head_attention(x, x, x, &parameters, 3, None);
/// assert_eq!(y.check().unwrap().shape(), [2, 7, 6]);
/// ```
#[track_caller]
pub fn multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    parameters: &AttentionParameters,
    heads: usize,
    mask: impl Into<Option<Tensor>>,
) -> Tensor {
    let mask = mask.into();
    let AttentionParameters { query: to_query, key: to_key, value: to_value, output } = parameters;
    let projections = [to_query, to_key, to_value, output];
    let mut operands = vec![query, key, value];
    for projection in projections {
        operands.push(projection.weight);
        operands.extend(projection.bias);
    }
    operands.extend(mask);
    let call = Call::new("multi_head_attention", &operands);
    require!(call, call.floats_of_one_type(), "all operands must be floats of one type");
    let ranks_fit = [query, key, value].iter().all(|t| t.rank() == 3);
    require!(call, ranks_fit, "needs query [b, l, e], key and value [b, s, e]");
    let batches_fit = query.dim(0) == key.dim(0) && query.dim(0) == value.dim(0) && key.dim(1) == value.dim(1);
    require!(call, batches_fit, "needs query [b, l, e], key and value [b, s, e]");
    let q = call.done(project(&call, query, to_query, heads));
    let k = call.done(project(&call, key, to_key, heads));
    let v = call.done(project(&call, value, to_value, heads));
    require!(call, q.dim(3) == k.dim(3), "query and key must be projected to one width");
    let scores = q.dot(k, dims(&[0, 2], &[3], &[0, 2], &[3])) * scale(q);
    let weights = attention_weights(&call, scores, mask);
    let found = weights.dot(v, dims(&[0, 1], &[3], &[0, 2], &[1]));
    // [b, heads, l, m] with [heads, m, o].
    let (w, width) = (output.weight, v.dim(3));
    require!(call, w.rank() == 2 && w.dim(0) == heads * width, "the output weight must be [{}, o]", heads * width);
    let back = w.reshape([heads, width, w.dim(1)]);
    let y = found.dot(back, dims(&[], &[1, 3], &[], &[0, 1]));
    let Some(bias) = output.bias else { return call.done(y) };
    require!(call, bias.shape() == [w.dim(1)], "the output bias must be {:?}", [w.dim(1)]);
    call.done(y + bias)
}

/// x `[b, l, e]` projected to `[b, l, heads, d]`.
#[track_caller]
fn project(call: &Call, x: Tensor, projection: &Projection, heads: usize) -> Tensor {
    let w = projection.weight;
    let fits = w.rank() == 2 && w.dim(0) == x.dim(2) && heads > 0 && w.dim(1).is_multiple_of(heads);
    require!(call, fits && w.dim(1) > 0, "a weight for {heads} heads must be [{}, {heads}·d]", x.dim(2));
    let width = w.dim(1) / heads;
    let y = x.dot(w.reshape([w.dim(0), heads, width]), last_with_first(x));
    let Some(bias) = projection.bias else { return y };
    require!(call, bias.shape() == [w.dim(1)], "a bias must be {:?}", [w.dim(1)]);
    y + bias.reshape([heads, width])
}
