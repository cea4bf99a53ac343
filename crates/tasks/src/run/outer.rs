//! The outer loop's part of a configuration: optimizer, schedule, and when to stop.

use crate::Settings;
use bilevel::{Adam, AdamW, Error, InnerOptimizer, Momentum, Result, RmsProp, Schedule};
use serde::{Deserialize, Serialize};

/// The outer loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outer {
    /// Iterations, at least 1.
    pub iterations: u32,
    /// Learning rate, above 0.
    pub rate: f64,
    /// Start θ anew in every iteration.
    pub cold: bool,
    /// Scale a hypergradient whose norm is above this down to it; 0 is never.
    pub clip: f64,
    /// Stop when the hypergradient's norm is at most this; 0 is never.
    pub tolerance: f64,
    /// Stop after so many iterations without improvement; 0 is never.
    pub patience: u32,
    /// What counts as an improvement of the outer loss.
    pub improvement: f64,
    /// What moves λ.
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
#[serde(tag = "shape", rename_all = "lowercase", deny_unknown_fields)]
pub enum ScheduleSettings {
    /// Always the same.
    Constant {
        /// Iterations in which the rate grows to its full size.
        warm_up: u32,
    },
    /// Smaller by a factor from time to time.
    Step {
        /// Iterations in which the rate grows to its full size.
        warm_up: u32,
        /// Iterations between two changes.
        every: u32,
        /// What it is multiplied by.
        factor: f64,
    },
    /// Half a cosine.
    Cosine {
        /// Iterations in which the rate grows to its full size.
        warm_up: u32,
        /// Iterations it takes.
        over: u32,
        /// The rate at its end.
        last: f64,
    },
}

/// The schedules by name, for a run of so many iterations.
pub fn schedules(iterations: u32) -> [(&'static str, ScheduleSettings); 3] {
    [
        ("constant", ScheduleSettings::Constant { warm_up: 0 }),
        ("step", ScheduleSettings::Step { warm_up: 0, every: (iterations / 3).max(1), factor: 0.1 }),
        ("cosine", ScheduleSettings::cosine(iterations)),
    ]
}

impl ScheduleSettings {
    /// Half a cosine down to 0.
    pub fn cosine(over: u32) -> Self {
        ScheduleSettings::Cosine { warm_up: 0, over, last: 0.0 }
    }

    /// The same, but ending at a tenth where it would end at 0: an inner step of 0 trains nothing.
    pub fn above_zero(self) -> Self {
        match self {
            ScheduleSettings::Cosine { warm_up, over, .. } => ScheduleSettings::Cosine { warm_up, over, last: 0.1 },
            other => other,
        }
    }

    /// The library's schedule from this rate.
    pub fn build(&self, rate: f64) -> Schedule {
        match *self {
            ScheduleSettings::Constant { warm_up } => Schedule::constant(rate).warm_up(warm_up),
            ScheduleSettings::Step { warm_up, every, factor } => {
                Schedule::step_decay(rate, every, factor).warm_up(warm_up)
            }
            ScheduleSettings::Cosine { warm_up, over, last } => Schedule::cosine(rate, over, last).warm_up(warm_up),
        }
    }
}
