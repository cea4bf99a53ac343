//! A leaf of λ or θ: its shape, how it starts, and the values it may take.

use crate::outer_step::project;
use crate::{Error, Result};
use bilevel_graph::random::{fill_normal_f64, fill_uniform_f64};
use bilevel_graph::{Array, DType};

/// How a variable gets its first value.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// These numbers.
    Fixed(Array),
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
        Variable { start: Start::Fixed(value.clone()), ..Self::constant(value.shape(), 0.0) }
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

    /// The first value, from a key and a number that no other variable of the run has.
    pub(crate) fn initial(&self, name: &str, dtype: DType, key: [i32; 2], number: u32) -> Result<Array> {
        let mut values = Array::try_full(&self.shape, 0.0, DType::F64)?.into_f64();
        let words = key.map(|k| k as u32);
        match &self.start {
            Start::Fixed(array) => values = array.to_f64(),
            Start::Constant(value) => values.fill(*value),
            Start::Normal(deviation) => {
                fill_normal_f64(words, number, 0, 0, &mut values);
                values.iter_mut().for_each(|v| *v *= deviation);
            }
            Start::Uniform(low, high) => {
                fill_uniform_f64(words, number, 0, 0, &mut values);
                values.iter_mut().for_each(|v| *v = low + (high - low) * *v);
            }
        }
        if let Some(bad) = values.iter().find(|v| !v.is_finite() || **v < self.low || **v > self.high) {
            let name = if name.is_empty() { "the variable" } else { name };
            let reason = match bad.is_finite() {
                true => format!("{name} starts at {bad}, outside its bounds {} to {}", self.low, self.high),
                false => format!("{name} starts at {bad}; give it a start that is a number"),
            };
            return Err(Error::Problem { reason });
        }
        values.iter_mut().for_each(|v| *v = project(*v, self.bounds(), dtype));
        Ok(Array::from_values(&self.shape, &values, dtype)?)
    }
}
