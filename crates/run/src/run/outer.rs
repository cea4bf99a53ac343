//! The outer loop's part of a configuration: optimizer, schedule, and when to stop.

use crate::Settings;
use bilevel::optimizers::{Adam, AdamW, InnerOptimizer, Momentum, RmsProp, ScheduleSettings, Shape};
use bilevel::{Error, Result};
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
            false => Err(Error::setting(name, value, must)),
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

/// The schedules by name, for a run of this many iterations.
pub fn schedules(iterations: u32) -> [(&'static str, ScheduleSettings); 3] {
    [
        ("constant", Shape::Constant.into()),
        ("step", Shape::Step { every: (iterations / 3).max(1), factor: 0.1 }.into()),
        ("cosine", Shape::Cosine { over: iterations, last: 0.0 }.into()),
    ]
}
