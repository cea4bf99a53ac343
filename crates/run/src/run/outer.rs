//! The outer loop's part of a configuration: optimizer, schedule, and when to stop.

use crate::Settings;
use crate::duration;
use bilevel::observers::Aim;
use bilevel::optimizers::{Adam, AdamW, InnerOptimizer, Momentum, RmsProp, ScheduleSettings, Shape};
use bilevel::{Error, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;

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
    /// The least improvement of the outer loss, or of the measure that patience follows.
    pub improvement: f64,
    /// The measure that patience follows, such as `highest accuracy`, counted in measurements; empty for the outer loss of every iteration.
    pub patience_on: String,
    /// The measure whose best λ and θ are returned, such as `highest accuracy`; empty for those of the last iteration.
    pub keep_best: String,
    /// Stop after this time, such as `9m`; empty for never.
    pub time_limit: String,
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
        require(self.improvement >= 0.0, "improvement", self.improvement, "at least 0")?;
        let follows = self.followed()?.is_some();
        require(!follows || self.patience > 0, "patience", 0.0, "at least 1 if outer.patience_on is given")?;
        self.kept()?;
        self.limit().map(drop)
    }

    /// Returns true if a metric ends the run or chooses its result.
    pub(super) fn follows_measures(&self) -> bool {
        !self.patience_on.is_empty() || !self.keep_best.is_empty()
    }

    /// The measure that patience follows, if it follows one.
    pub fn followed(&self) -> Result<Option<Aim>> {
        aim("patience_on", &self.patience_on)
    }

    /// The measure whose best λ and θ are returned, if there is one.
    pub fn kept(&self) -> Result<Option<Aim>> {
        aim("keep_best", &self.keep_best)
    }

    /// The time limit, if there is one.
    pub fn limit(&self) -> Result<Option<Duration>> {
        let must = "a time such as 90s, 9m or 1h30m, or empty";
        let wrong = |_| Error::setting("time_limit", &*format!("{:?}", self.time_limit), must);
        (!self.time_limit.is_empty()).then(|| duration(&self.time_limit).map_err(wrong)).transpose()
    }
}

/// Reads a measure and its better side: `lowest NAME` or `highest NAME`, with `outer loss` and `inner loss` for the
/// losses.
fn aim(key: &'static str, text: &str) -> Result<Option<Aim>> {
    if text.is_empty() {
        return Ok(None);
    }
    let name = |name: &str| match name.trim() {
        "outer loss" => "outer".to_string(),
        "inner loss" => "inner".to_string(),
        name => name.to_string(),
    };
    let found = match text.trim().split_once(' ') {
        Some(("lowest", measure)) => Some(Aim::lowest(name(measure))),
        Some(("highest", measure)) => Some(Aim::highest(name(measure))),
        _ => None,
    };
    let must = "'lowest' or 'highest' and a measure, such as 'highest accuracy' or 'lowest outer loss', or empty";
    found.map(Some).ok_or_else(|| Error::setting(key, &*format!("{text:?}"), must))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_is_named_with_its_better_side() {
        assert_eq!(aim("keep_best", "").unwrap(), None);
        assert_eq!(aim("keep_best", "lowest outer loss").unwrap(), Some(Aim::lowest("outer")));
        assert_eq!(aim("keep_best", "lowest inner").unwrap(), Some(Aim::lowest("inner")));
        assert_eq!(aim("keep_best", "highest test accuracy").unwrap(), Some(Aim::highest("test accuracy")));
        for wrong in ["accuracy", "highest", "best accuracy", "Lowest outer loss"] {
            let said = aim("keep_best", wrong).unwrap_err().to_string();
            assert!(said.contains("'highest accuracy' or 'lowest outer loss'"), "{wrong}: {said}");
        }
    }
}
