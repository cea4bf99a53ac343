//! Initial weights: random numbers of a size that preserves signals through many layers. Each function returns a
//! [`Variable`], so that the numbers are drawn on the device, from the seed of the run.
//!
//! The *fan in* of a weight is the number of products summed in one of its outputs. The *fan out* is the number of
//! outputs that one of its inputs goes to. For a `[i, o]` matrix these are i and o, for a `[o, i, h, w]` kernel i·h·w
//! and o·h·w.

use bilevel::Variable;

/// Normal with deviation √(2/fan): He et al. 2015, for layers followed by a rectifier. The fan may be the one in or the
/// one out.
///
/// ```
/// use bilevel::data::Start;
/// assert_eq!(bilevel_models::init::he_normal([8, 3], 8).start(), &Start::Normal(0.5));
/// ```
pub fn he_normal(shape: impl AsRef<[usize]>, fan: usize) -> Variable {
    Variable::normal(shape, (2.0 / fan as f64).sqrt())
}

/// Uniform in ±√(6/(fan in + fan out)): Glorot and Bengio 2010, for layers followed by a tanh.
///
/// ```
/// use bilevel::data::Start;
/// assert_eq!(bilevel_models::init::glorot_uniform([2, 4], 2, 4).start(), &Start::Uniform(-1.0, 1.0));
/// ```
pub fn glorot_uniform(shape: impl AsRef<[usize]>, fan_in: usize, fan_out: usize) -> Variable {
    symmetric(shape, (6.0 / (fan_in + fan_out) as f64).sqrt())
}

/// Uniform in ±1/√(fan in), PyTorch's default for the weights and biases of a layer.
///
/// ```
/// use bilevel::data::Start;
/// assert_eq!(bilevel_models::init::fan_in_uniform([4, 9], 4).start(), &Start::Uniform(-0.5, 0.5));
/// ```
pub fn fan_in_uniform(shape: impl AsRef<[usize]>, fan_in: usize) -> Variable {
    symmetric(shape, (1.0 / fan_in as f64).sqrt())
}

/// Zeros: biases.
///
/// ```
/// use bilevel::data::Start;
/// assert_eq!(bilevel_models::init::zeros([3]).start(), &Start::Constant(0.0));
/// ```
pub fn zeros(shape: impl AsRef<[usize]>) -> Variable {
    Variable::constant(shape, 0.0)
}

/// Uniform in ±bound.
pub(crate) fn symmetric(shape: impl AsRef<[usize]>, bound: f64) -> Variable {
    Variable::uniform(shape, -bound, bound)
}
