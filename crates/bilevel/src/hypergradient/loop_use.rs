//! A method's declarations: its use of the inner loop, and its output. The diagnosis, `check`, the range checks, and a
//! task's initial loop and outer rate follow from them.

use crate::inner::inner_loop::InnerLoop;
use crate::inner::optimizer::InnerOptimizer;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a method uses the inner loop.
///
/// ```
/// use bilevel::Method;
/// use bilevel::methods::{Descent, Hoag, LangevinAdjoint, LoopUse, Noise};
/// let hoag = Hoag::default().loop_use();
/// assert!(hoag.assumes_minimum && hoag.descent == Descent::Plain);
/// assert_eq!(LangevinAdjoint::default().loop_use().noise, Noise::Expected);
/// assert_eq!(LoopUse::default().fewest_samples, 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoopUse {
    /// How θ steps.
    pub descent: Descent,
    /// Whether there may be Langevin noise.
    pub noise: Noise,
    /// Whether any inner optimizer will do, or plain descent alone.
    pub any_optimizer: bool,
    /// Whether it averages over samples, of which the first steps give none.
    pub burn_in: bool,
    /// The fewest steps that are kept; 0 if the hypergradient can be taken at the θ given.
    pub fewest_samples: usize,
    /// Whether training ends at a tolerance, after T steps at the latest.
    pub stops_at_tolerance: bool,
    /// Windows of T steps that make a training.
    pub windows: usize,
    /// Whether it takes θ for a minimum of the inner loss, and so sees nothing of a θ⁰ that depends on λ.
    pub assumes_minimum: bool,
    /// Curvature that the method adds to that of the inner loss, as a proximal term does.
    pub added_curvature: f64,
    /// Whether its indirect term is γ·curvature·(mean number of the kept steps) times its right size.
    pub scales_indirect: bool,
}

impl LoopUse {
    /// Plain descent, with or without noise, by any optimizer, without a burn-in.
    pub const PLAIN: Self = LoopUse {
        descent: Descent::Plain,
        noise: Noise::Allowed,
        any_optimizer: true,
        burn_in: false,
        fewest_samples: 1,
        stops_at_tolerance: false,
        windows: 1,
        assumes_minimum: false,
        added_curvature: 0.0,
        scales_indirect: false,
    };

    /// [`PLAIN`](Self::PLAIN), for a method that takes θ for a minimum, and can take the hypergradient at the θ given.
    pub const MINIMUM: Self = LoopUse { fewest_samples: 0, assumes_minimum: true, ..Self::PLAIN };

    /// Steps of plain descent and nothing else, for a method that moves more than θ with them.
    pub const OWN_STEPS: Self =
        LoopUse { noise: Noise::Never, any_optimizer: false, fewest_samples: 1, ..Self::MINIMUM };

    /// A Langevin chain, of which the last steps are averaged.
    pub const CHAIN: Self = LoopUse { noise: Noise::Expected, any_optimizer: false, burn_in: true, ..Self::PLAIN };

    /// Adapts a task's loop by removing the parts that the method cannot use or is not made for: noise, another
    /// optimizer, a burn-in.
    ///
    /// ```
    /// use bilevel::InnerLoop;
    /// use bilevel::methods::LoopUse;
    /// let task = InnerLoop::new(0.1, 20).at_temperature(1e-6);
    /// assert_eq!(LoopUse::CHAIN.adapt(task), task);
    /// assert_eq!(LoopUse::PLAIN.adapt(task), InnerLoop::new(0.1, 20));
    /// ```
    pub fn adapt(&self, task: InnerLoop) -> InnerLoop {
        InnerLoop {
            temperature: if self.noise == Noise::Expected { task.temperature } else { 0.0 },
            optimizer: if self.any_optimizer { task.optimizer } else { InnerOptimizer::Sgd },
            burn_in: if self.burn_in { task.burn_in } else { 0 },
            ..task
        }
    }

    /// The mean number of the kept steps, if the indirect term scales with it.
    pub(crate) fn mean_kept(&self, inner: &InnerLoop) -> Option<f64> {
        self.scales_indirect.then(|| inner.burn_in as f64 + (inner.samples() as f64 + 1.0) / 2.0)
    }
}

impl Default for LoopUse {
    /// [`LoopUse::PLAIN`].
    fn default() -> Self {
        Self::PLAIN
    }
}

/// Whether a method works with Langevin noise in the inner loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// Its steps have no noise; a temperature is an error.
    Never,
    /// It works with or without.
    Allowed,
    /// It is designed for noise, and by default has the temperature of the task.
    Expected,
}

/// How θ steps. The curvature c that γ may be used with follows from it.
///
/// ```
/// use bilevel::methods::Descent;
/// assert_eq!(Descent::Plain.limit(0.1, 4.0), Some(0.4));
/// assert_eq!(Descent::Penalised { penalty: 10.0 }.limit(0.1, 4.0), Some(3.2));
/// assert_eq!(Descent::Adaptive.limit(0.1, 4.0), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Descent {
    /// θ descends the inner loss with steps of γ, by the inner optimizer. Plain steps diverge if γ·c is above 2.
    #[default]
    Plain,
    /// γ is the largest possible step, and gradients reduce it: no curvature is too large.
    ///
    ///   β² ← β² + ‖∇θL_T‖²,   θ ← θ − ∇θL_T/β,   from β = 1/γ
    Adaptive,
    /// θ descends the outer loss plus a penalty on the slope of the inner loss, whose curvature is 2·c². Its steps
    /// diverge if γ·c² is above 1.
    ///
    ///   θ ← θ − γ·(f_θ/σ + 2·H·∇θL_T)
    Penalised {
        /// The penalty σ.
        penalty: f64,
    },
    /// θ moves in a way of the method's own, of which the inner loop says nothing.
    Own,
}

impl Descent {
    /// γ times the curvature along its steps, given the curvature of the inner loss: the loop diverges above 2.
    /// `None` if no step is too large.
    pub fn limit(self, step: f64, curvature: f64) -> Option<f64> {
        match self {
            Descent::Plain => Some(step * curvature),
            Descent::Adaptive | Descent::Own => None,
            Descent::Penalised { .. } => Some(2.0 * step * curvature * curvature),
        }
    }

    /// Whether θ descends the inner loss alone, so that training without the method goes the same way.
    pub fn is_plain(&self) -> bool {
        *self == Descent::Plain
    }

    /// A number above 2 in the words of the method's own limit.
    pub(crate) fn beyond(self, limit: f64) -> String {
        match self {
            Descent::Penalised { .. } => format!(
                "inner step × curvature² is {:.2}, and descent on this method's penalty diverges above 1",
                0.5 * limit
            ),
            _ => format!("inner step × curvature is {limit:.2}, and the inner loop diverges above 2"),
        }
    }
}

/// The output of a method for the outer optimizer.
///
/// ```
/// use bilevel::Method;
/// use bilevel::methods::{DTfbo, Output, Rmd};
/// assert_eq!(Rmd::default().output(), Output::Hypergradient);
/// assert_eq!(DTfbo::default().output(), Output::Step);
/// assert_eq!(Output::Step.to_string(), "step");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Output {
    /// An estimate of df/dλ, for any optimizer and rate.
    #[default]
    Hypergradient,
    /// The step of λ itself, for plain steps at rate 1.
    Step,
    /// A direction for λ while θ moves with it; at a fixed λ it does not estimate df/dλ.
    Direction {
        /// The penalty σ, if γ/σ is the largest rate of plain steps at which λ and θ stay together.
        penalty: Option<f64>,
    },
}

impl Output {
    /// The initial rate of plain steps with this inner loop, if `usual` suits a hypergradient.
    ///
    /// ```
    /// use bilevel::InnerLoop;
    /// use bilevel::methods::Output;
    /// let inner = InnerLoop::new(0.1, 20);
    /// assert_eq!(Output::Step.rate(0.05, &inner), 1.0);
    /// assert_eq!(Output::Direction { penalty: Some(10.0) }.rate(0.05, &inner), 0.01);
    /// assert_eq!(Output::Hypergradient.rate(0.05, &inner), 0.05);
    /// ```
    pub fn rate(self, usual: f64, inner: &InnerLoop) -> f64 {
        match self {
            Output::Hypergradient | Output::Direction { penalty: None } => usual,
            Output::Step => 1.0,
            Output::Direction { penalty: Some(penalty) } => usual.min(inner.step / penalty),
        }
    }

    /// Whether only its direction can be compared with a hypergradient.
    pub(crate) fn has_own_length(self) -> bool {
        self != Output::Hypergradient
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Output::Hypergradient => "hypergradient",
            Output::Step => "step",
            Output::Direction { .. } => "direction",
        })
    }
}
