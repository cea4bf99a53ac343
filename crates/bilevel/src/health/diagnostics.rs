//! Diagnostics of a hypergradient, and warnings for the user.

use crate::hypergradient::loop_use::Descent;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A factor of the indirect term further from 1 than this is far.
const FAR: f64 = 1.5;
/// Derivatives through training that grow by this factor are not worth following.
const CHAOS: f64 = 1e3;
/// A growth rate per inner step that no training can sustain for long.
const BURST: f64 = 0.1;
/// An adjoint or an inner loss that has grown by this factor within one hypergradient is suspect.
const GROWTH: f64 = 10.0;

/// Heat of minibatches above this share of the temperature changes the distribution of a chain.
const WARM_SHARE: f64 = 0.1;

/// Diagnostics of a hypergradient. A number that a method does not have is `None`.
///
/// ```
/// use bilevel::diagnostics::Warning;
/// use bilevel::methods::HpoSgld;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // The inner curvature is 1, so 20 steps of 0.01 go a fifth of the way, and the kept ones have the mean number 15.5.
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, l, t| (t.0 - 1.0).square() + l.0.square())
///     .build()?;
/// let inner = InnerLoop { burn_in: 10, ..InnerLoop::new(0.01, 20).at_temperature(1e-6) };
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = HpoSgld::default().prepare_in(&session, &inner)?;
/// let h = estimator.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.diagnostics.horizon.unwrap() - 0.2).abs() < 1e-12);
/// assert!((h.diagnostics.indirect_scale.unwrap() - 0.155).abs() < 1e-12);
/// assert!(matches!(h.diagnostics.warnings()[..], [Warning::IndirectTermScaled { .. }]));
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Diagnostics {
    /// ‖f_θ‖ at the last θ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outer_gradient_norm: Option<f64>,
    /// ‖f_λ‖ at the last θ; `None` if f does not depend on λ directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_norm: Option<f64>,
    /// The Rayleigh quotient of the inner Hessian along f_θ at the last θ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curvature: Option<f64>,
    /// How θ steps.
    #[serde(default, skip_serializing_if = "Descent::is_plain")]
    pub descent: Descent,
    /// γ times the curvature that the inner steps meet ([`Descent::limit`]): the inner loop diverges above 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_curvature: Option<f64>,
    /// T times that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<f64>,
    /// The inner loss at the start of the inner loop, with the draw of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_loss_start: Option<f64>,
    /// The inner loss at the end of the inner loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_loss_end: Option<f64>,
    /// κ²τ times the numbers in θ: so much noise may lift the inner loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_loss_heat: Option<f64>,
    /// ‖z‖ of the method's adjoint at the end of the inner loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjoint_norm: Option<f64>,
    /// ‖z‖ at the end over ‖z‖ at the start, for a warm adjoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjoint_growth: Option<f64>,
    /// How often z left its trust region within this hypergradient, and was reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_exits: Option<f64>,
    /// The mean of ln(‖A·x‖/‖x‖) over the steps of the inner loop, with A = ∂θᵗ⁺¹/∂θᵗ and x the sensitivity that the method carries:
    /// the largest Lyapunov exponent, per inner step. Above 0 derivatives through training grow without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_rate: Option<f64>,
    /// Inner steps that the growth rate was measured over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_steps: Option<f64>,
    /// The largest of γ, γ/2 and γ/4 at which the sensitivity would not have grown along the same trajectory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calm_step: Option<f64>,
    /// The inner step used, if it was reduced until a hypergradient existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduced_step: Option<f64>,
    /// How many independent samples the kept values of f are worth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_samples: Option<f64>,
    /// The heat that minibatches add to that of the noise, as a share of κ²τ: γ/2 times the mean variance of a gradient's numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minibatch_heat: Option<f64>,
    /// The factor c = γ·curvature·(mean number of the kept steps) by which the indirect term of HPO-SGLD is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indirect_scale: Option<f64>,
    /// ‖f_θ − A·q‖/‖f_θ‖ at the end of a linear solve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solve_residual: Option<f64>,
    /// The smallest curvature that a solve by conjugate gradients met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_curvature: Option<f64>,
}

/// A warning about a hypergradient.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// The method's indirect term is off by a factor that is far from 1, and f's direct term makes that matter: the run will
    /// settle elsewhere than at the optimum.
    IndirectTermScaled {
        /// The factor.
        scale: f64,
    },
    /// Conjugate gradients stopped at a direction in which the inner loss is not curved upwards: θ is not a minimum,
    /// and the linear system was solved only in part.
    NotConvex {
        /// The curvature there.
        curvature: f64,
    },
    /// The adjoint grew within one hypergradient.
    AdjointGrowing {
        /// The factor of the growth.
        growth: f64,
    },
    /// Derivatives through training grow with its length, so that there is no hypergradient to find at this inner step, by any
    /// method.
    NoHypergradient {
        /// The growth rate, per inner step.
        rate: f64,
        /// A step below which the rate would not be above 0, if there is one.
        calm: Option<f64>,
    },
    /// Minibatches heat the chain, so that it samples at a higher temperature than configured.
    MinibatchHeat {
        /// The heat that they add, as a share of the temperature.
        share: f64,
    },
    /// The inner step is larger than the curvature allows.
    StepTooLarge {
        /// γ times the curvature that the inner steps meet, above 2.
        step_curvature: f64,
        /// How θ steps.
        descent: Descent,
    },
    /// The inner loss was much larger at the end of the inner loop than at its start.
    InnerLossGrew {
        /// The inner loss at the start.
        from: f64,
        /// The inner loss at the end.
        to: f64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::IndirectTermScaled { scale } => write!(
                f,
                "this method's indirect term is about {scale:.2} times its correct size. The outer loss depends on λ \
                 directly, so the run settles away from the optimum; change the inner step or their number, or use \
                 langevin-adjoint (rmd if θ⁰ depends on λ)"
            ),
            Warning::NotConvex { curvature } => write!(
                f,
                "the linear solve met the curvature {curvature:.1e} and stopped: θ is not at a minimum of the \
                 inner loss, which this method assumes; train longer, use curvature = \"gauss-newton\" or more \
                 regularisation, or use \
                 rmd"
            ),
            Warning::AdjointGrowing { growth } => write!(
                f,
                "the adjoint grew by a factor of {growth:.1} within one hypergradient; take a smaller inner step or a \
                 smaller outer \
                 rate, or start the adjoint cold"
            ),
            Warning::NoHypergradient { rate, calm } => {
                write!(
                    f,
                    "derivatives through training grow (growth rate {rate:.1e} per inner step): training is chaotic, and no \
                     hypergradient exists at this inner step; "
                )?;
                match calm {
                    Some(calm) => write!(
                        f,
                        "take a step below {calm:.2e}, or set shrink = true in the inner loop to search for \
                         one"
                    ),
                    None => write!(
                        f,
                        "even a quarter of the step would not help, because the inner loss curves downwards at θ: \
                         train longer before λ moves, or give langevin-adjoint a horizon"
                    ),
                }
            }
            Warning::MinibatchHeat { share } => write!(
                f,
                "minibatches heat the chain by {:.0} % of its temperature; {:.1e} times this inner step, or a \
                    minibatch larger by the inverse factor, would reduce this to 10 %",
                100.0 * share,
                WARM_SHARE / share
            ),
            Warning::StepTooLarge { step_curvature, descent } => {
                write!(f, "{}; use a smaller step", descent.beyond(*step_curvature))
            }
            Warning::InnerLossGrew { from, to } => write!(
                f,
                "the inner loss grew from {from:.3e} to {to:.3e} within one inner loop: training diverges; take a \
                 smaller inner step, or check the sign of the inner loss"
            ),
        }
    }
}

impl Diagnostics {
    /// Warnings for the user.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut found = vec![];
        if let Some(scale) = self.indirect_scale
            && self.direct_norm.is_some()
            && !(1.0 / FAR..=FAR).contains(&scale)
        {
            found.push(Warning::IndirectTermScaled { scale });
        }
        if let Some(growth) = self.adjoint_growth.filter(|growth| *growth > GROWTH)
            && self.adjoint_norm.is_some_and(|norm| norm > self.settled_adjoint())
        {
            found.push(Warning::AdjointGrowing { growth });
        }
        if let Some((rate, calm)) = self.chaos() {
            found.push(Warning::NoHypergradient { rate, calm });
        }
        if let Some(curvature) = self.least_curvature.filter(|curvature| *curvature < 0.0) {
            found.push(Warning::NotConvex { curvature });
        }
        if let Some(share) = self.minibatch_heat.filter(|share| *share > WARM_SHARE) {
            found.push(Warning::MinibatchHeat { share });
        }
        if let Some(step_curvature) = self.step_curvature.filter(|x| *x > 2.0) {
            found.push(Warning::StepTooLarge { step_curvature, descent: self.descent });
        }
        if let Some((from, to)) = self.inner_loss_start.zip(self.inner_loss_end)
            && to - from > GROWTH * (from.abs().max(1.0) + self.inner_loss_heat.unwrap_or(0.0))
        {
            found.push(Warning::InnerLossGrew { from, to });
        }
        found
    }

    /// The growth rate and a calmer step, if derivatives through training grow so much that no hypergradient exists.
    /// They do if they grow a thousandfold within the inner loop, or out of the adjoint's trust region.
    pub(crate) fn chaos(&self) -> Option<(f64, Option<f64>)> {
        let (rate, steps) = self.growth_rate.zip(self.growth_steps)?;
        let grew = rate * steps > CHAOS.ln() || self.trust_exits.is_some_and(|exits| exits > 0.0);
        grew.then_some((rate, self.calm_step))
    }

    /// Whether derivatives through training burst within one inner loop: tenfold, and by a tenth or more per step. It is less than
    /// chaos, but θ bursts with them, and a network may not survive that.
    pub(crate) fn burst(&self) -> bool {
        let grew = |(rate, steps): (f64, f64)| rate > BURST && rate * steps > GROWTH.ln();
        self.chaos().is_some() || self.growth_rate.zip(self.growth_steps).is_some_and(grew)
    }

    /// A size of z up to which growth is harmless: ten times the ‖f_θ‖/curvature at which it settles, or 1 if that is
    /// unknown.
    fn settled_adjoint(&self) -> f64 {
        let settled = self.outer_gradient_norm.zip(self.curvature).map(|(f_theta, r)| GROWTH * f_theta / r.abs());
        settled.filter(|size| size.is_finite()).unwrap_or(1.0)
    }
}

/// ‖z‖ after an inner loop, and its growth if it was not 0 before.
pub(crate) fn adjoint(before: f64, after: f64) -> Diagnostics {
    Diagnostics {
        adjoint_norm: Some(after),
        adjoint_growth: (before > 0.0).then_some(after / before),
        ..Diagnostics::default()
    }
}
