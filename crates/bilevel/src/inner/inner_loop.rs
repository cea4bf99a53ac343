//! The inner loop as a value: it belongs to a run, not to a method, and is the only holder of γ.
//!
//!   θᵗ⁺¹ = θᵗ − γ_k·direction(∇θL_T(λ, θᵗ)) + κ·√(2τγ_k)·ξᵗ,   t = 0 … T−1,   γ_k = step × schedule(k)
//!
//! in the k-th outer iteration. Methods that average use the last M = T − B of the T steps as samples. The fields are
//! the keys of `[inner]` in a configuration.

use crate::error::require;
use crate::hypergradient::Method;
use crate::hypergradient::loop_use::Noise;
use crate::inner::optimizer::{InnerOptimizer, Optimizer};
use crate::outer::schedule::ScheduleSettings;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The inner loop: the steps of training between two steps of λ.
///
/// In a configuration, `samples` may replace `steps`, which is then `burn_in + samples`.
///
/// ```
/// use bilevel::prelude::*;
/// let inner = InnerLoop { optimizer: Adam::default().into(), ..InnerLoop::new(0.1, 20) };
/// assert_eq!((inner.gamma(1), inner.samples()), (0.1, 20));
/// let read: InnerLoop = serde_json::from_str(r#"{ "step": 0.1, "burn_in": 10, "samples": 40 }"#).unwrap();
/// assert_eq!(read, InnerLoop { burn_in: 10, ..InnerLoop::new(0.1, 50) });
/// assert!(InnerLoop::new(-1.0, 20).check().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Table")]
pub struct InnerLoop {
    /// The step size γ before the schedule, above 0.
    pub step: f64,
    /// The number T of inner steps of one hypergradient.
    pub steps: usize,
    /// The number B of burn-in steps, which methods that average over samples discard; below T.
    pub burn_in: usize,
    /// The temperature τ of Langevin noise, at least 0; 0 is no noise.
    pub temperature: f64,
    /// The noise scale κ, at least 0.
    pub noise_scale: f64,
    /// Reduce γ if no hypergradient exists at it because derivatives through training grow; it stays reduced.
    pub shrink: bool,
    /// The optimizer of the inner loop.
    pub optimizer: InnerOptimizer,
    /// The factor on the step over the outer iterations.
    pub schedule: ScheduleSettings,
}

impl Default for InnerLoop {
    /// 100 steps of 0.01, plain descent without noise.
    fn default() -> Self {
        Self::new(0.01, 100)
    }
}

impl InnerLoop {
    /// This many steps of this size: plain descent without noise.
    pub const fn new(step: f64, steps: usize) -> Self {
        InnerLoop {
            step,
            steps,
            burn_in: 0,
            temperature: 0.0,
            noise_scale: 1.0,
            shrink: false,
            optimizer: InnerOptimizer::Sgd,
            schedule: ScheduleSettings::CONSTANT,
        }
    }

    /// The same with Langevin noise of this temperature.
    pub const fn at_temperature(mut self, temperature: f64) -> Self {
        self.temperature = temperature;
        self
    }

    /// The number M of steps that are samples.
    pub fn samples(&self) -> usize {
        self.steps.saturating_sub(self.burn_in)
    }

    /// γ in an outer iteration, counted from 1.
    ///
    /// ```
    /// use bilevel::InnerLoop;
    /// use bilevel::optimizers::Shape;
    /// let halved = Shape::Step { every: 10, factor: 0.5 };
    /// assert_eq!(InnerLoop { schedule: halved.into(), ..InnerLoop::new(0.1, 20) }.gamma(11), 0.05);
    /// ```
    pub fn gamma(&self, iteration: u32) -> f64 {
        self.step * self.schedule.build(1.0).at(iteration)
    }

    /// κ²τ, the effective temperature of the chain.
    pub fn heat(&self) -> f64 {
        self.noise_scale * self.noise_scale * self.temperature
    }

    pub(crate) fn is_noisy(&self) -> bool {
        self.noise_scale * self.temperature != 0.0
    }

    /// Whether the optimizer remembers anything from one step to the next.
    pub fn has_slots(&self) -> bool {
        !self.optimizer.slots().is_empty()
    }

    /// Refuses numbers outside their range.
    pub fn check(&self) -> Result<()> {
        self.check_from(0)
    }

    fn check_from(&self, least: usize) -> Result<()> {
        let must = if least == 0 { "below 2³¹ − 1" } else { "at least 1 and below 2³¹ − 1" };
        require((least.min(1)..i32::MAX as usize).contains(&self.steps), "steps", self.steps, must)?;
        let below = self.burn_in == 0 || self.burn_in < self.steps;
        require(below, "burn_in", self.burn_in, "below the number of steps, so that there are samples")?;
        require(self.samples() >= least, "samples", self.samples(), "at least 2, for a covariance")?;
        positive("step", self.step)?;
        at_least_0("temperature", self.temperature)?;
        at_least_0("noise_scale", self.noise_scale)?;
        self.schedule.build(1.0).check()?;
        self.optimizer.check()?;
        let must = "0 with this optimizer, since Langevin noise works with plain descent only";
        require(self.optimizer == InnerOptimizer::Sgd || !self.is_noisy(), "temperature", self.temperature, must)
    }

    /// Refuses numbers outside their range, and settings that the method declares unusable
    /// ([`LoopUse`](crate::methods::LoopUse)).
    ///
    /// ```
    /// use bilevel::InnerLoop;
    /// use bilevel::methods::{Rmd, Soba};
    /// let noisy = InnerLoop::default().at_temperature(0.1);
    /// assert!(noisy.check_for(&Rmd::default()).is_ok());
    /// let error = noisy.check_for(&Soba::default()).unwrap_err().to_string();
    /// assert!(error.starts_with("soba cannot use the temperature of the inner loop"), "{error}");
    /// ```
    pub fn check_for(&self, method: &(impl Method + ?Sized)) -> Result<()> {
        let used = method.loop_use();
        let refuse = |setting, reason| Err(Error::InnerLoop { method: method.name(), setting, reason });
        if self.is_noisy() && used.noise == Noise::Never {
            return refuse("temperature", "its steps have no Langevin noise; set it to 0");
        }
        if self.burn_in > 0 && !used.burn_in {
            return refuse("burn_in", "it does not average over samples; set it to 0");
        }
        if self.optimizer != InnerOptimizer::Sgd && !used.any_optimizer {
            return refuse("optimizer", "its steps are those of plain descent; use sgd");
        }
        self.check_from(used.fewest_samples)
    }
}

pub(crate) fn positive(name: &'static str, value: f64) -> Result<()> {
    require(value > 0.0 && value.is_finite(), name, value, "above 0")
}

pub(crate) fn at_least_0(name: &'static str, value: f64) -> Result<()> {
    require(value >= 0.0 && value.is_finite(), name, value, "at least 0")
}

/// The loop as it is in a configuration.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Table {
    step: f64,
    steps: Option<usize>,
    samples: Option<usize>,
    burn_in: usize,
    temperature: f64,
    noise_scale: f64,
    shrink: bool,
    optimizer: InnerOptimizer,
    schedule: ScheduleSettings,
}

impl Default for Table {
    fn default() -> Self {
        let InnerLoop { step, burn_in, temperature, noise_scale, shrink, optimizer, schedule, .. } =
            InnerLoop::default();
        Table { step, steps: None, samples: None, burn_in, temperature, noise_scale, shrink, optimizer, schedule }
    }
}

impl TryFrom<Table> for InnerLoop {
    type Error = String;

    fn try_from(table: Table) -> std::result::Result<Self, String> {
        let Table { step, steps, samples, burn_in, temperature, noise_scale, shrink, optimizer, schedule } = table;
        let steps = match (steps, samples) {
            (Some(steps), None) => steps,
            (None, Some(samples)) => burn_in.saturating_add(samples),
            (None, None) => InnerLoop::default().steps,
            (Some(_), Some(_)) => return Err("set either steps or samples: steps are burn_in + samples".into()),
        };
        Ok(InnerLoop { step, steps, burn_in, temperature, noise_scale, shrink, optimizer, schedule })
    }
}
