//! Random draws from an explicit key and counter: the same key (`i32[2]`), counter (an i32 scalar, such as
//! [`Graph::step`](crate::Graph::step)), stream and shape give the same numbers, on every executor.

use super::call::{Call, require};
use crate::DType;
use crate::ir::op::RandomKind;
use crate::tensor::Tensor;

/// Standard normal numbers.
///
/// ```
/// use bilevel_graph::{DType, Graph, nn};
/// let g = Graph::new();
/// let key = g.input("key", [2], DType::I32);
/// let noise = nn::normal(key, g.step(), g.fresh_stream(), [3, 4], DType::F32);
/// assert_eq!(noise.check().unwrap().shape(), [3, 4]);
/// ```
#[track_caller]
pub fn normal(key: Tensor, counter: Tensor, stream: u32, shape: impl AsRef<[usize]>, dtype: DType) -> Tensor {
    Call::new("normal", &[key, counter]).done(key.random(counter, RandomKind::Normal, stream, shape, dtype))
}

/// Numbers uniform on [0, 1).
///
/// ```
/// use bilevel_graph::{DType, Graph, nn};
/// let g = Graph::new();
/// let key = g.input("key", [2], DType::I32);
/// let noise = nn::uniform(key, g.step(), g.fresh_stream(), [3, 4], DType::F32);
/// assert!(nn::uniform(key, key, 0, [3], DType::F32).check().is_err(), "the counter must be a scalar");
/// # noise.check().unwrap();
/// ```
#[track_caller]
pub fn uniform(key: Tensor, counter: Tensor, stream: u32, shape: impl AsRef<[usize]>, dtype: DType) -> Tensor {
    Call::new("uniform", &[key, counter]).done(key.random(counter, RandomKind::Uniform, stream, shape, dtype))
}

/// 1 with this probability, else 0.
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let key = g.input("key", [2], DType::I32);
/// let draws = nn::bernoulli(key, g.step(), g.fresh_stream(), 0.25, [1000], DType::F64);
/// let value = Array::from_i32([2], vec![1, 2]).unwrap();
/// let mean = Reference::evaluate(&g, &[(key, value)], &[draws.mean_all()]).unwrap()[0].item().unwrap();
/// assert!((mean - 0.25).abs() < 0.1);
/// assert!(nn::bernoulli(key, g.step(), 0, 1.5, [3], DType::F64).check().is_err(), "not a probability");
/// ```
#[track_caller]
pub fn bernoulli(
    key: Tensor,
    counter: Tensor,
    stream: u32,
    probability: f64,
    shape: impl AsRef<[usize]>,
    dtype: DType,
) -> Tensor {
    let operands = [key, counter];
    let call = Call::new("bernoulli", &operands);
    require!(call, (0.0..=1.0).contains(&probability), "{probability} is not a probability");
    call.done(key.random(counter, RandomKind::Uniform, stream, shape, dtype).less(probability))
}

/// x/(1 − rate) with probability 1 − rate, else 0: the same mean, and new zeros for every counter.
///
/// ```
/// use bilevel_graph::{DType, Graph, nn};
/// let g = Graph::new();
/// let (x, key) = (g.input("x", [8, 4], DType::F32), g.input("key", [2], DType::I32));
/// let y = nn::dropout(x, 0.5, key, g.step(), g.fresh_stream());
/// assert_eq!(y.check().unwrap().shape(), [8, 4]);
/// assert!(nn::dropout(x, 1.0, key, g.step(), 0).check().is_err());
/// ```
#[track_caller]
pub fn dropout(x: Tensor, rate: f64, key: Tensor, counter: Tensor, stream: u32) -> Tensor {
    let operands = [x, key, counter];
    let call = Call::new("dropout", &operands);
    require!(call, x.dtype().is_float(), "needs floats");
    require!(call, (0.0..1.0).contains(&rate), "the rate must be in 0..1, not {rate}");
    let kept = key.random(counter, RandomKind::Uniform, stream, x.shape(), x.dtype()).greater_equal(rate);
    call.done(x * (kept * (1.0 / (1.0 - rate))))
}
