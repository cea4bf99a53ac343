//! The outer loop's part of a configuration: optimizer, schedule, and when to stop.

use crate::config_errors::{ConfigError, Wrong};
use bilevel::{Adam, AdamW, InnerOptimizer, Momentum, Optimizer, RmsProp, Schedule};
use bilevel_tasks::OptimizerKind;
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
    pub optimizer: InnerOptimizer,
    /// The learning rate over time.
    pub schedule: ScheduleSettings,
}

impl Outer {
    /// Refuses numbers outside their range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let at_least_0 = |key: &str, value: f64| match value >= 0.0 {
            true => Ok(()),
            false => Err(ConfigError::range(key, value, "at least 0")),
        };
        if self.iterations == 0 {
            return Err(ConfigError::range("outer.iterations", 0, "at least 1"));
        }
        at_least_0("outer.clip", self.clip)?;
        at_least_0("outer.tolerance", self.tolerance)?;
        at_least_0("outer.improvement", self.improvement)?;
        self.schedule.check("outer", self.rate)?;
        self.optimizer.check().map_err(|error| in_table("outer.optimizer", error))
    }
}

/// The library's complaint about a setting, with the key it stands under.
pub fn in_table(table: &str, error: bilevel::Error) -> ConfigError {
    match error {
        bilevel::Error::Setting { name, value, must } => ConfigError::range(&format!("{table}.{name}"), value, must),
        other => ConfigError { place: None, wrong: Wrong::Other(other.to_string()) },
    }
}

/// Names of the optimizers.
pub const OPTIMIZERS: [&str; 5] = ["sgd", "momentum", "rmsprop", "adam", "adamw"];
/// Names of the schedules.
pub const SCHEDULES: [&str; 3] = ["constant", "step", "cosine"];

fn unknown(key: &'static str, given: &str, known: &[&'static str]) -> ConfigError {
    let near = bilevel::nearest(given, known.iter().copied()).map(String::from);
    let known = known.iter().map(|word| word.to_string()).collect();
    ConfigError { place: None, wrong: Wrong::UnknownWord { key, given: given.into(), near, known } }
}

/// The usual settings of a task's optimizer.
pub fn usual_optimizer(kind: OptimizerKind) -> InnerOptimizer {
    match kind {
        OptimizerKind::Sgd => InnerOptimizer::Sgd,
        OptimizerKind::Momentum => InnerOptimizer::Momentum(Momentum::default()),
        OptimizerKind::Adam => InnerOptimizer::Adam(Adam::default()),
    }
}

/// An optimizer by name, with its usual settings; the key is that which the name was given for.
pub fn named_optimizer(key: &'static str, name: &str) -> Result<InnerOptimizer, ConfigError> {
    Ok(match name {
        "sgd" => InnerOptimizer::Sgd,
        "momentum" => InnerOptimizer::Momentum(Momentum::default()),
        "rmsprop" => InnerOptimizer::RmsProp(RmsProp::default()),
        "adam" => InnerOptimizer::Adam(Adam::default()),
        "adamw" => InnerOptimizer::AdamW(AdamW::default()),
        _ => return Err(unknown(key, name, &OPTIMIZERS)),
    })
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

impl ScheduleSettings {
    /// Half a cosine down to 0.
    pub fn cosine(over: u32) -> Self {
        ScheduleSettings::Cosine { warm_up: 0, over, last: 0.0 }
    }

    /// By name, for a run of so many iterations; the key is that which the name was given for.
    pub fn named(key: &'static str, shape: &str, iterations: u32) -> Result<Self, ConfigError> {
        match shape {
            "constant" => Ok(ScheduleSettings::Constant { warm_up: 0 }),
            "step" => Ok(ScheduleSettings::Step { warm_up: 0, every: (iterations / 3).max(1), factor: 0.1 }),
            "cosine" => Ok(Self::cosine(iterations)),
            _ => Err(unknown(key, shape, &SCHEDULES)),
        }
    }

    /// The same, but ending at a tenth where it would end at 0: an inner step of 0 trains nothing.
    pub fn above_zero(self) -> Self {
        match self {
            ScheduleSettings::Cosine { warm_up, over, .. } => ScheduleSettings::Cosine { warm_up, over, last: 0.1 },
            other => other,
        }
    }

    /// Refuses numbers outside their range; `table` is the one the schedule stands in.
    pub fn check(&self, table: &str, rate: f64) -> Result<(), ConfigError> {
        self.build(rate).check().map_err(|error| match error {
            // The rate is the schedule's to check, but stands outside its table.
            bilevel::Error::Setting { name: "rate", value, must } => {
                ConfigError::range(&format!("{table}.rate"), value, must)
            }
            error => in_table(&format!("{table}.schedule"), error),
        })
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
