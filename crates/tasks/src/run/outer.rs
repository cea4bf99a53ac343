//! The outer loop's part of a configuration: optimizer, schedule, and when to stop.

use crate::Settings;
use bilevel::{Adam, AdamW, Error, InnerOptimizer, Momentum, Result, RmsProp, Schedule, Shape};
use serde::{Deserialize, Serialize};

/// The outer loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outer {
    /// Iterations, at least 1.
    pub iterations: u32,
    /// Learning rate, above 0.
    pub rate: f64,
    /// Start θ from scratch in every iteration.
    pub cold: bool,
    /// Limit the norm of a hypergradient to this; 0 means no limit.
    pub clip: f64,
    /// Stop when the hypergradient's norm is at most this; 0 means never.
    pub tolerance: f64,
    /// Stop after this many iterations without improvement; 0 means never.
    pub patience: u32,
    /// What counts as an improvement of the outer loss.
    pub improvement: f64,
    /// The optimizer that moves λ.
    pub optimizer: Settings,
    /// The learning rate over time.
    pub schedule: ScheduleSettings,
}

impl Outer {
    /// Refuses numbers outside their range; the error names the key below `outer`.
    pub fn check(&self) -> Result<()> {
        let require = |holds: bool, name: &'static str, value: f64, must: &'static str| match holds {
            true => Ok(()),
            false => Err(Error::Setting { name, value, must }),
        };
        require(self.iterations > 0, "iterations", 0.0, "at least 1")?;
        require(self.clip >= 0.0, "clip", self.clip, "at least 0")?;
        require(self.tolerance >= 0.0, "tolerance", self.tolerance, "at least 0")?;
        require(self.improvement >= 0.0, "improvement", self.improvement, "at least 0")
    }
}

/// The library's optimizers with their usual settings.
pub fn optimizers() -> [InnerOptimizer; 5] {
    [
        InnerOptimizer::Sgd,
        InnerOptimizer::Momentum(Momentum::default()),
        InnerOptimizer::RmsProp(RmsProp::default()),
        InnerOptimizer::Adam(Adam::default()),
        InnerOptimizer::AdamW(AdamW::default()),
    ]
}

/// A rate over time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleSettings {
    /// How it changes.
    #[serde(flatten)]
    pub shape: Shape,
    /// Iterations in which the rate grows to its full size.
    pub warm_up: u32,
}

/// The schedules by name, for a run of this many iterations.
pub fn schedules(iterations: u32) -> [(&'static str, ScheduleSettings); 3] {
    [
        ("constant", Shape::Constant.into()),
        ("step", Shape::Step { every: (iterations / 3).max(1), factor: 0.1 }.into()),
        ("cosine", Shape::Cosine { over: iterations, last: 0.0 }.into()),
    ]
}

impl From<Shape> for ScheduleSettings {
    fn from(shape: Shape) -> Self {
        ScheduleSettings { shape, warm_up: 0 }
    }
}

impl ScheduleSettings {
    /// The same, but ending at a tenth where it would end at 0: an inner step of 0 trains nothing.
    pub fn above_zero(self) -> Self {
        match self.shape {
            Shape::Cosine { over, .. } => ScheduleSettings { shape: Shape::Cosine { over, last: 0.1 }, ..self },
            _ => self,
        }
    }

    /// The library's schedule from this rate.
    pub fn build(&self, rate: f64) -> Schedule {
        Schedule::shaped(rate, self.shape).warm_up(self.warm_up)
    }
}
