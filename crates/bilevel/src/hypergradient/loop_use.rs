//! The two things that tell methods apart to everything around them: how they use the inner step, and what they return.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How a method uses the inner step γ. The curvature c that γ may be used with follows from it.
///
/// ```
/// use bilevel::LoopUse;
/// assert_eq!(LoopUse::Plain.limit(0.1, 4.0), Some(0.4));
/// assert_eq!(LoopUse::Penalised { penalty: 10.0 }.limit(0.1, 4.0), Some(3.2));
/// assert_eq!(LoopUse::Adaptive.limit(0.1, 4.0), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LoopUse {
    /// θ descends the inner loss with steps of γ, by the inner optimizer. Plain steps diverge if γ·c is above 2.
    #[default]
    Plain,
    /// γ is the largest step there can be, and gradients make it smaller: no curvature is too large.
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
}

impl LoopUse {
    /// γ times the curvature that its steps meet, where the inner loss has this curvature: the loop diverges above 2.
    /// `None` if no step is too large.
    pub fn limit(self, step: f64, curvature: f64) -> Option<f64> {
        match self {
            LoopUse::Plain => Some(step * curvature),
            LoopUse::Adaptive => None,
            LoopUse::Penalised { .. } => Some(2.0 * step * curvature * curvature),
        }
    }

    /// Whether θ descends the inner loss alone, so that training without the method goes the same way.
    pub fn is_plain(&self) -> bool {
        *self == LoopUse::Plain
    }

    /// A number above 2 in the words of the method's own limit.
    pub(crate) fn beyond(self, limit: f64) -> String {
        match self {
            LoopUse::Penalised { .. } => format!(
                "inner step × curvature² is {:.2}, and descent on this method's penalty diverges above 1",
                0.5 * limit
            ),
            _ => format!("inner step × curvature is {limit:.2}, and the inner loop diverges above 2"),
        }
    }
}

/// What a method returns for the outer optimizer.
///
/// ```
/// use bilevel::{DTfbo, Method, Output, Rmd};
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
    /// A direction that λ moves along while θ moves with it; at a λ that stands still it is no estimate of df/dλ.
    Direction {
        /// The largest rate of plain steps at which λ and θ stay together, if the method has one.
        max_rate: Option<f64>,
    },
}

impl Output {
    /// The rate of plain steps to begin with, where this rate suits a hypergradient.
    ///
    /// ```
    /// use bilevel::Output;
    /// assert_eq!(Output::Step.rate(0.05), 1.0);
    /// assert_eq!(Output::Direction { max_rate: Some(0.01) }.rate(0.05), 0.01);
    /// assert_eq!(Output::Hypergradient.rate(0.05), 0.05);
    /// ```
    pub fn rate(self, usual: f64) -> f64 {
        match self {
            Output::Hypergradient | Output::Direction { max_rate: None } => usual,
            Output::Step => 1.0,
            Output::Direction { max_rate: Some(most) } => usual.min(most),
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
