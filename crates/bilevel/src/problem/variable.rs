//! A leaf of λ or θ: its shape, its initial value, and its bounds.

use crate::{Error, Result};
use bilevel_graph::{Array, DType, Data};
use std::sync::Arc;

/// The initial value of a variable.
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

/// The role of a leaf of θ in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Moves it along its gradient.
    Trained,
    /// Does not change it.
    Frozen,
    /// Sets it to a value computed by the inner loss: see [`Scope::update`](crate::Scope::update).
    Statistic,
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
    /// Multiplies the rate of the loop that moves it.
    pub(crate) rate: f64,
    pub(crate) weight_decay: f64,
    pub(crate) role: Role,
    /// It is the logarithm of a penalty that is added to a mean over rows.
    pub(crate) penalty: bool,
}

impl Variable {
    fn new(shape: impl AsRef<[usize]>, start: Start) -> Self {
        let (shape, (low, high)) = (shape.as_ref().to_vec(), (f64::NEG_INFINITY, f64::INFINITY));
        Variable { shape, start, low, high, rate: 1.0, weight_decay: 0.0, role: Role::Trained, penalty: false }
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

    /// Sets a lower bound; the outer step projects onto it.
    pub fn at_least(mut self, low: f64) -> Self {
        self.low = low;
        self
    }

    /// Declares this leaf of λ as the logarithm of the weight of a penalty in an inner loss that is a mean over rows.
    /// Its lower bound then means no penalty, and a training with another number of rows shifts it: see
    /// [`Baselines`](crate::splits::Baselines). This does not change a run.
    ///
    /// See [`Baselines`](crate::splits::Baselines) for an example.
    pub fn log_penalty(mut self) -> Self {
        self.penalty = true;
        self
    }

    /// Sets an upper bound.
    pub fn at_most(mut self, high: f64) -> Self {
        self.high = high;
        self
    }

    /// Multiplies the rate of its loop by this: γ for a leaf of θ, the outer rate for one of λ. For a group of leaves,
    /// map their tree.
    ///
    /// ```
    /// use bilevel::prelude::*;
    /// #[derive(Clone, Tree)]
    /// struct Two<T> { slow: T, fast: T }
    /// let one = || Variable::constant([], 1.0);
    /// let problem = Problem::builder(Two { slow: one().rate(0.1), fast: one() }, Leaf(Variable::constant([], 0.0)))
    ///     .inner(|_, l, t| (t.0 - l.slow - l.fast).square())
    ///     .outer(|_, _, t| t.0.square())
    ///     .build()?;
    /// let outcome = Driver::new(&problem, Rmd::default()).rate(0.01).iterations(1).run()?;
    /// let moved = outcome.lambda.map(|l| 1.0 - l.item().unwrap());
    /// assert!((moved.fast / moved.slow - 10.0).abs() < 1e-9);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn rate(mut self, factor: f64) -> Self {
        self.rate = factor;
        self
    }

    /// Adds a weight decay: ½·decay·‖θ‖² to the inner loss for a leaf of θ, decay·λ to the hypergradient for one of λ.
    pub fn weight_decay(mut self, decay: f64) -> Self {
        self.weight_decay = decay;
        self
    }

    /// A leaf of θ that training does not change, such as the pretrained part of a network. It is in memory once, with
    /// the data, and costs no gradient. Its initial value must be the same in every run.
    pub fn frozen(mut self) -> Self {
        self.role = Role::Frozen;
        self
    }

    /// A leaf of θ that is updated but not trained, such as the running mean of a batch normalisation. Training sets it
    /// to the value that the inner loss passes to [`Scope::update`](crate::Scope::update), and it has no derivative.
    pub fn statistic(mut self) -> Self {
        self.role = Role::Statistic;
        self
    }

    /// The same leaf with these initial numbers, such as pretrained weights; bounds, rate and role do not change.
    /// Numbers of another shape are an error.
    ///
    /// ```
    /// use bilevel::{Array, Variable};
    /// let mean = Variable::constant([2], 0.0).statistic();
    /// let known = mean.clone().starting_at(Array::from_f64([2], vec![0.1, 0.2])?)?;
    /// assert!(known.is_statistic());
    /// assert!(mean.starting_at(Array::from_f64([3], vec![0.0; 3])?).is_err());
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn starting_at(mut self, value: Array) -> Result<Self> {
        if value.shape() != self.shape {
            let (found, expected) = (value.shape().to_vec(), self.shape);
            return Err(Error::Shape { what: "the start of a variable".into(), found, expected });
        }
        self.start = Start::Fixed(Arc::new(value));
        Ok(self)
    }

    /// Its shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its initial value.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// Returns true for a leaf that training moves along its gradient: neither [frozen](Self::frozen) nor a
    /// [statistic](Self::statistic).
    pub fn is_trained(&self) -> bool {
        self.role == Role::Trained
    }

    /// Returns true for a [statistic](Self::statistic).
    pub fn is_statistic(&self) -> bool {
        self.role == Role::Statistic
    }

    /// The smallest and the largest value it may take.
    pub fn bounds(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Returns true for a number it may be.
    pub(crate) fn allows(&self, value: f64) -> bool {
        value.is_finite() && self.low <= value && value <= self.high
    }

    /// Refuses a start that no draw can bring within the bounds, and one that is no number. `leaf` is its name for people.
    pub(crate) fn check_start(&self, leaf: &str) -> Result<()> {
        match &self.start {
            Start::Constant(value) => self.check_first(leaf, *value),
            Start::Uniform(low, high) => [low, high].into_iter().try_for_each(|end| self.check_first(leaf, *end)),
            Start::Normal(deviation) if !deviation.is_finite() => self.check_first(leaf, *deviation),
            // Whether a draw is within the bounds is known when it is made.
            Start::Normal(_) => Ok(()),
            Start::Fixed(array) => match array.data() {
                Data::F32(values) => values.iter().try_for_each(|value| self.check_first(leaf, f64::from(*value))),
                Data::F64(values) => values.iter().try_for_each(|value| self.check_first(leaf, *value)),
                Data::I32(values) => values.iter().try_for_each(|value| self.check_first(leaf, f64::from(*value))),
            },
        }
    }

    /// Refuses a first value that it may not be.
    pub(crate) fn check_first(&self, leaf: &str, value: f64) -> Result<()> {
        if self.allows(value) {
            return Ok(());
        }
        let reason = match (value.is_finite(), value < self.low) {
            (false, _) => format!("starts at {value}; its initial value must be a number"),
            (true, true) => format!("starts at {value}, below its lower bound {}", self.low),
            (true, false) => format!("starts at {value}, above its upper bound {}", self.high),
        };
        Err(Error::Variable { leaf: leaf.into(), reason })
    }

    /// The numbers of a frozen leaf.
    pub(crate) fn frozen_numbers(&self, name: &str, dtype: DType) -> Result<Array> {
        match &self.start {
            Start::Fixed(array) => Ok(Array::from_values(&self.shape, &array.to_f64(), dtype)?),
            Start::Constant(value) => Ok(Array::try_full(&self.shape, *value, dtype)?),
            Start::Normal(_) | Start::Uniform(..) => {
                let reason = "is frozen, so its numbers must be the same in every run; use Variable::fixed".into();
                Err(Error::Variable { leaf: format!("θ.{name}"), reason })
            }
        }
    }
}
