//! Values for the inputs of a case, from a seed.

use crate::losses::Start;
use bilevel_graph::random::fill_uniform_f64;
use bilevel_graph::{Array, DType, Tensor};

/// The values `start` asks for; `number` keeps inputs of one case apart.
pub fn values(tensor: Tensor, start: Start, number: u32) -> Array {
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    let count = shape.iter().product();
    let mut numbers = vec![0.0; count];
    match start {
        Start::Uniform(k) => {
            fill_uniform_f64([2026, 11], number, 0, 0, &mut numbers);
            // Multiples of 2⁻²⁰ are the same in f32 and f64.
            numbers.iter_mut().for_each(|v| *v = ((*v * 2.0 - 1.0) * k * 1048576.0).round() / 1048576.0);
        }
        Start::Constant(c) => numbers.fill(c),
        Start::Labels(n) => numbers.iter_mut().enumerate().for_each(|(i, v)| *v = (i % n) as f64),
    }
    Array::from_values(&shape, &numbers, dtype).unwrap_or_else(|_| Array::zeros(&shape, DType::F32))
}
