//! A leaf of λ or θ: its shape, how it starts, and the values it may take.

use bilevel_graph::Array;
use std::sync::Arc;

/// How a variable gets its first value.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// These numbers.
    Fixed(Arc<Array>),
    /// One number everywhere.
    Constant(f64),
    /// Normal with this standard deviation, from the run's seed.
    Normal(f64),
    /// Uniform between two numbers, from the run's seed.
    Uniform(f64, f64),
}

/// A leaf of λ or θ.
///
/// ```
/// use bilevel::Variable;
/// let weight = Variable::constant([640], -5.0).at_least(-12.0).at_most(3.0);
/// assert_eq!(weight.bounds(), (-12.0, 3.0));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    pub(crate) shape: Vec<usize>,
    pub(crate) start: Start,
    low: f64,
    high: f64,
}

impl Variable {
    fn new(shape: impl AsRef<[usize]>, start: Start) -> Self {
        Variable { shape: shape.as_ref().to_vec(), start, low: f64::NEG_INFINITY, high: f64::INFINITY }
    }

    /// Starts with one number everywhere.
    pub fn constant(shape: impl AsRef<[usize]>, value: f64) -> Self {
        Self::new(shape, Start::Constant(value))
    }

    /// Starts with these numbers.
    pub fn fixed(value: Array) -> Self {
        let shape = value.shape().to_vec();
        Self::new(shape, Start::Fixed(Arc::new(value)))
    }

    /// Starts with normal numbers of this standard deviation.
    pub fn normal(shape: impl AsRef<[usize]>, deviation: f64) -> Self {
        Self::new(shape, Start::Normal(deviation))
    }

    /// Starts with numbers uniform between two bounds.
    pub fn uniform(shape: impl AsRef<[usize]>, low: f64, high: f64) -> Self {
        Self::new(shape, Start::Uniform(low, high))
    }

    /// Never below this: the outer step projects onto it.
    pub fn at_least(mut self, low: f64) -> Self {
        self.low = low;
        self
    }

    /// Never above this.
    pub fn at_most(mut self, high: f64) -> Self {
        self.high = high;
        self
    }

    /// The least and the largest value it may take.
    pub fn bounds(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// True for a number it may be.
    pub(crate) fn allows(&self, value: f64) -> bool {
        value.is_finite() && self.low <= value && value <= self.high
    }
}
