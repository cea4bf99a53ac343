//! The outer learning rate, or a factor on the inner step, as a function of the iteration alone, so that any iteration
//! can be replayed.

use crate::Result;
use crate::error::require;
use serde::{Deserialize, Serialize};

/// The shape of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "shape", rename_all = "lowercase")]
pub enum Shape {
    /// Always the same.
    Constant,
    /// Multiplied by a factor at regular intervals.
    Step {
        /// Iterations between two changes.
        every: u32,
        /// The factor of the multiplication.
        factor: f64,
    },
    /// Half a cosine.
    Cosine {
        /// Iterations it takes.
        over: u32,
        /// The rate at its end.
        last: f64,
    },
}

/// A schedule but for the rate that it begins with: a factor over the iterations.
///
/// ```
/// use bilevel::optimizers::{Schedule, ScheduleSettings, Shape};
/// let halved: ScheduleSettings = Shape::Step { every: 10, factor: 0.5 }.into();
/// assert_eq!(halved.build(0.1), Schedule::step_decay(0.1, 10, 0.5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleSettings {
    /// How it changes.
    #[serde(flatten)]
    pub shape: Shape,
    /// Iterations in which the rate grows to its full size.
    pub warm_up: u32,
}

impl From<Shape> for ScheduleSettings {
    fn from(shape: Shape) -> Self {
        ScheduleSettings { shape, warm_up: 0 }
    }
}

impl ScheduleSettings {
    /// Always the same rate.
    pub const CONSTANT: Self = ScheduleSettings { shape: Shape::Constant, warm_up: 0 };

    /// The same schedule, but ending at a tenth if it would end at 0: an inner step of 0 trains nothing.
    pub fn above_zero(self) -> Self {
        match self.shape {
            Shape::Cosine { over, .. } => ScheduleSettings { shape: Shape::Cosine { over, last: 0.1 }, ..self },
            _ => self,
        }
    }

    /// The schedule from this rate.
    pub fn build(&self, rate: f64) -> Schedule {
        Schedule::shaped(rate, self.shape).warm_up(self.warm_up)
    }
}

/// An outer learning rate for each iteration, counted from 1.
///
/// ```
/// use bilevel::optimizers::Schedule;
/// let schedule = Schedule::step_decay(0.1, 100, 0.5).warm_up(4);
/// assert_eq!(schedule.at(1), 0.025); // a quarter of the way up
/// assert_eq!(schedule.at(4), 0.1);
/// assert_eq!(schedule.at(104), 0.1); // the decay counts from the end of the warm-up
/// assert_eq!(schedule.at(105), 0.05);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    rate: f64,
    shape: Shape,
    warm_up: u32,
}

impl Schedule {
    /// The same rate always.
    ///
    /// ```
    /// assert_eq!(bilevel::optimizers::Schedule::constant(0.1).at(1000), 0.1);
    /// ```
    pub fn constant(rate: f64) -> Self {
        Schedule { rate, shape: Shape::Constant, warm_up: 0 }
    }

    /// A schedule that starts at this rate, in this shape.
    ///
    /// ```
    /// use bilevel::optimizers::{Schedule, Shape};
    /// assert_eq!(Schedule::shaped(0.1, Shape::Step { every: 10, factor: 0.5 }), Schedule::step_decay(0.1, 10, 0.5));
    /// ```
    pub fn shaped(rate: f64, shape: Shape) -> Self {
        Schedule { shape, ..Self::constant(rate) }
    }

    /// Multiplied by `factor` after every n iterations.
    ///
    /// ```
    /// let schedule = bilevel::optimizers::Schedule::step_decay(1.0, 10, 0.5);
    /// assert_eq!([10, 11, 20, 21].map(|k| schedule.at(k)), [1.0, 0.5, 0.5, 0.25]);
    /// ```
    pub fn step_decay(rate: f64, every: u32, factor: f64) -> Self {
        Schedule { shape: Shape::Step { every, factor }, ..Self::constant(rate) }
    }

    /// Half a cosine from `rate` down to `last` over this many iterations, then `last`.
    ///
    /// ```
    /// let schedule = bilevel::optimizers::Schedule::cosine(1.0, 10, 0.0);
    /// assert_eq!(schedule.at(1), 1.0);
    /// assert!((schedule.at(6) - 0.5).abs() < 1e-12);
    /// assert_eq!(schedule.at(11), 0.0);
    /// ```
    pub fn cosine(rate: f64, over: u32, last: f64) -> Self {
        Schedule { shape: Shape::Cosine { over, last }, ..Self::constant(rate) }
    }

    /// Grows linearly to the full rate over the first iterations; the rest of the schedule counts from there.
    ///
    /// ```
    /// let schedule = bilevel::optimizers::Schedule::constant(1.0).warm_up(2);
    /// assert_eq!([1, 2, 3].map(|k| schedule.at(k)), [0.5, 1.0, 1.0]);
    /// ```
    pub fn warm_up(mut self, iterations: u32) -> Self {
        self.warm_up = iterations;
        self
    }

    /// The rate of an iteration, counted from 1.
    ///
    /// ```
    /// assert_eq!(bilevel::optimizers::Schedule::constant(0.1).warm_up(10).at(1), 0.01);
    /// ```
    pub fn at(&self, iteration: u32) -> f64 {
        if iteration <= self.warm_up {
            return self.rate * iteration as f64 / self.warm_up as f64;
        }
        let done = (iteration - self.warm_up).saturating_sub(1);
        match self.shape {
            Shape::Constant => self.rate,
            Shape::Step { every, factor } => self.rate * factor.powf((done / every.max(1)) as f64),
            Shape::Cosine { over, last } if done >= over => last,
            Shape::Cosine { over, last } => {
                let turn = std::f64::consts::PI * done as f64 / over as f64;
                last + (self.rate - last) * 0.5 * (1.0 + turn.cos())
            }
        }
    }

    /// Refuses rates and factors outside their range.
    ///
    /// ```
    /// use bilevel::optimizers::Schedule;
    /// assert!(Schedule::constant(0.1).check().is_ok());
    /// let error = Schedule::constant(-0.1).check().unwrap_err();
    /// assert_eq!(error.to_string(), "rate is -0.1 but must be above 0");
    /// ```
    pub fn check(&self) -> Result<()> {
        require(self.rate > 0.0 && self.rate.is_finite(), "rate", self.rate, "above 0")?;
        match self.shape {
            Shape::Constant => Ok(()),
            Shape::Step { every, factor } => {
                require(every > 0, "every", every, "at least 1")?;
                require(factor > 0.0 && factor <= 1.0, "factor", factor, "above 0 and at most 1")
            }
            Shape::Cosine { over, last } => {
                require(over > 0, "over", over, "at least 1")?;
                require(last >= 0.0 && last <= self.rate, "last", last, "at least 0 and at most the rate")
            }
        }
    }
}
