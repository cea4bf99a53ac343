//! Indices and positions as vectors.

use super::call::{Call, require};
use crate::tensor::Tensor;
use crate::{DType, Graph};

/// Rows of a table `[n, inner..]` at i32 indices `[k..]`: `[k.., inner..]`. An index that is not in `0..n` makes the run
/// fail.
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let (table, indices) = (g.iota([3, 2], 0, DType::F64), g.input("indices", [2], DType::I32));
/// let y = nn::embedding(table, indices);
/// let run = |a, b| Reference::evaluate(&g, &[(indices, Array::from_i32([2], vec![a, b]).unwrap())], &[y]);
/// assert_eq!(run(2, 0).unwrap()[0].to_f64(), [2.0, 2.0, 0.0, 0.0]);
/// assert!(run(3, 0).is_err() && run(0, -1).is_err());
/// ```
#[track_caller]
pub fn embedding(table: Tensor, indices: Tensor) -> Tensor {
    let operands = [table, indices];
    let call = Call::new("embedding", &operands);
    require!(call, table.rank() > 0, "the table needs at least one axis");
    require!(call, indices.dtype() == DType::I32, "the indices must be i32");
    call.done(table.take(indices.check_index(table.dim(0))))
}

/// 1 at the index, else 0: i32 indices `[k..]` to `[k.., classes]`. An index that is not in `0..classes` makes the run fail.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::one_hot(g.iota([2], 0, DType::I32), 3, DType::F64);
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].to_f64(), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
/// ```
#[track_caller]
pub fn one_hot(indices: Tensor, classes: usize, dtype: DType) -> Tensor {
    let operands = [indices];
    let call = Call::new("one_hot", &operands);
    require!(call, indices.dtype() == DType::I32, "the indices must be i32");
    call.done(hot_mask(indices, classes, dtype))
}

/// As [`one_hot`], for indices known to be i32.
#[track_caller]
pub(super) fn hot_mask(indices: Tensor, classes: usize, dtype: DType) -> Tensor {
    let last = indices.rank();
    let mut shape = indices.shape();
    shape.push(classes);
    let spread = indices.check_index(classes).broadcast((0..last).collect::<Vec<_>>(), shape);
    spread.equal(spread.iota_like(last)).convert(dtype)
}

/// sin(2ᵏx) and cos(2ᵏx) for k in `0..bands`, one after another: x `[.., d]` to `[.., 2·bands·d]`, ordered by band, then sine
/// before cosine, then as x. For NeRF's encoding give it π·x.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::sine_encoding(g.constant(0.5, [1], DType::F64), 2);
/// let expected = [0.5f64.sin(), 0.5f64.cos(), 1f64.sin(), 1f64.cos()];
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].to_f64(), expected);
/// ```
#[track_caller]
pub fn sine_encoding(x: Tensor, bands: usize) -> Tensor {
    let operands = [x];
    let call = Call::new("sine_encoding", &operands);
    require!(call, x.rank() > 0 && x.dtype().is_float(), "needs floats [.., d]");
    require!(call, (1..64).contains(&bands), "needs between 1 and 63 bands");
    let mut shape = x.shape();
    let last = shape.len() - 1;
    let width = shape[last];
    // Along the axis that comes before the last two: [.., bands, 1, d].
    let one = vec![1; last + 3];
    let factors: Vec<Tensor> = (0..bands).map(|band| x.constant_like((1u64 << band) as f64, &one)).collect();
    let factor = factors[0].concat(&factors[1..], last);
    let angle = x.unsqueeze([last, last]) * factor;
    shape[last] = 2 * bands * width;
    call.done(angle.sin().concat(&[angle.cos()], last + 1).reshape(shape))
}

/// The transformer's table of positions `[length, width]`: sin(p/10000^(2i/width)) in column 2i of row p, the cosine in column
/// 2i + 1. The width must be even.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let table = nn::position_table(&g, 2, 4, DType::F64);
/// let found = Reference::evaluate(&g, &[], &[table]).unwrap()[0].to_f64();
/// assert_eq!(found[..4], [0.0, 1.0, 0.0, 1.0]);
/// assert!((found[6] - 0.01f64.sin()).abs() < 1e-15);
/// ```
#[track_caller]
pub fn position_table(graph: &Graph, length: usize, width: usize, dtype: DType) -> Tensor {
    let shape = [length, width / 2, 1];
    let operands = [graph.scalar(0.0, dtype)];
    let call = Call::new("position_table", &operands);
    require!(
        call,
        dtype.is_float() && width.is_multiple_of(2),
        "needs a float type and an even width, not {dtype} and {width}"
    );
    let rate = -2.0 * 10000f64.ln() / width.max(1) as f64;
    let angle = graph.iota(shape, 0, dtype) * (graph.iota(shape, 1, dtype) * rate).exp();
    call.done(angle.sin().concat(&[angle.cos()], 2).reshape([length, width]))
}
