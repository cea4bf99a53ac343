//! Values for the inputs of a case, from a seed.

use crate::cases::case::Start;
use crate::error::Result;
use bilevel_graph::random::fill_uniform_f64;
use bilevel_graph::{Array, DType, Tensor};

/// Uniform values are multiples of its inverse, so that f32 and f64 hold the same numbers.
const GRID: f64 = (1 << 20) as f64;

/// The values of `start`; `number` keeps inputs of one case apart, `seed` one set of inputs from another.
pub fn values(tensor: Tensor, start: Start, number: u32, seed: u32) -> Result<Array> {
    array(&tensor.shape(), tensor.dtype(), start, (number, seed))
}

/// The same for an array of this shape and type.
pub fn array(shape: &[usize], dtype: DType, start: Start, (number, seed): (u32, u32)) -> Result<Array> {
    let mut numbers = vec![0.0; shape.iter().product()];
    let mut uniform = |centre: f64, k: f64| {
        fill_uniform_f64([2026, seed], number, 0, 0, &mut numbers);
        numbers.iter_mut().for_each(|v| *v = ((centre + (*v * 2.0 - 1.0) * k) * GRID).round() / GRID);
    };
    match start {
        Start::Uniform(k) => uniform(0.0, k),
        Start::Around(centre, k) => uniform(centre, k),
        Start::Constant(c) => numbers.fill(c),
        Start::Labels(n) => numbers.iter_mut().enumerate().for_each(|(i, v)| *v = (i % n) as f64),
    }
    Ok(Array::from_values(shape, &numbers, dtype)?)
}
