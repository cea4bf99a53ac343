//! The claims of a method about its hypergradients, as data that a test can check.

use crate::inner::inner_loop::InnerLoop;
use crate::inner::optimizer::InnerOptimizer;

/// The quantity that a method promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promise {
    /// The mean of its hypergradients is the truth, up to O(γ) at finite temperature.
    #[default]
    Exact,
    /// The derivative of a penalised problem, whose bias is proportional to 1/σ, with σ the setting `penalty`.
    InversePenalty,
    /// The direction of the hypergradient, scaled to a step of λ.
    Direction,
    /// A direction in which the outer loss decreases: at less than a right angle to the hypergradient.
    Descent,
}

/// A kind of problem that a claim is limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Training is a single step.
    OneStep,
    /// The inner loss has no second derivatives.
    StraightInnerLoss,
    /// All curvatures of the inner loss are the same, and the inner step is 1 over them.
    OneCurvature,
    /// The outer loss is the inner loss.
    SameLosses,
    /// The condition of the inner loss is at most [`WELL_CONDITIONED`].
    WellConditioned,
    /// θ has at most [`FEW_PARAMETERS`] numbers, so that a method can enumerate them.
    FewParameters,
}

/// The largest condition of an inner loss that counts as well conditioned.
pub const WELL_CONDITIONED: f64 = 30.0;

/// The most numbers that a θ with few parameters has.
pub const FEW_PARAMETERS: usize = 10;

/// The time at which a promise holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Settling {
    /// From the second hypergradient on, if the inner loop converges in one.
    #[default]
    AtOnce,
    /// After as many hypergradients as training takes inner steps, with one inner step each: part of its state moves once in a
    /// hypergradient.
    StepByStep,
}

/// The promise of a method and its conditions, given suitable settings. By default a method claims nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The promised quantity.
    pub promise: Promise,
    /// When.
    pub settling: Settling,
    /// For the minimum that training converges to.
    pub minimum: bool,
    /// At finite temperature.
    pub gibbs: bool,
    /// For the evidence of the training rows.
    pub evidence: bool,
    /// For the steps of training that were made, converged or not.
    pub training: bool,
    /// For the minimum of the inner loss with a proximal term.
    pub proximal: bool,
    /// Also at finite temperature between several minima.
    pub several_minima: bool,
    /// Also if H is singular.
    pub singular: bool,
    /// Also if the inner loss is a draw of rows.
    pub minibatches: bool,
    /// Only on problems of this kind.
    pub only: Option<Condition>,
}

impl Claims {
    /// Returns true if the method claims anything of a problem of this kind.
    ///
    /// ```
    /// use bilevel::Method;
    /// use bilevel::methods::claims::Facts;
    /// use bilevel::methods::{LangevinAdjoint, RmdFo};
    /// let double_well = Facts { several_minima: true, ..Facts::gibbs(0.5, 0.005, 5.0) };
    /// assert!(LangevinAdjoint::default().claims().cover(&double_well));
    /// assert!(!RmdFo::default().claims().cover(&double_well));
    /// ```
    pub fn cover(&self, facts: &Facts) -> bool {
        let target = match facts.target {
            Target::Minimum => self.minimum,
            Target::Gibbs { .. } => self.gibbs && (self.several_minima || !facts.several_minima),
            Target::Evidence { .. } => self.evidence && (self.several_minima || !facts.several_minima),
            Target::Training { .. } => self.training,
            Target::Proximal { .. } => self.proximal,
        };
        let only = match self.only {
            None => true,
            Some(Condition::OneStep) => facts.inner.steps == 1,
            Some(Condition::StraightInnerLoss) => facts.straight,
            Some(Condition::OneCurvature) => {
                facts.condition() == 1.0 && facts.inner.step * facts.largest_curvature == 1.0
            }
            Some(Condition::SameLosses) => facts.same_losses,
            Some(Condition::WellConditioned) => facts.condition() <= WELL_CONDITIONED,
            Some(Condition::FewParameters) => facts.parameters <= FEW_PARAMETERS,
        };
        target && only && (self.singular || !facts.singular) && (self.minibatches || !facts.minibatches)
    }
}

/// The point at which a hypergradient differentiates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// f at the minimum of the inner loss that training arrives at.
    Minimum,
    /// E\[f\] under exp(−L_T/τ).
    Gibbs {
        /// τ, above 0.
        temperature: f64,
    },
    /// −τ·log ∫ exp(−L_T/τ) dθ.
    Evidence {
        /// τ, above 0.
        temperature: f64,
    },
    /// f after this many steps of training from θ⁰, with the draws of one key.
    Training {
        /// The inner optimizer.
        optimizer: InnerOptimizer,
    },
    /// f at the minimum of L_T + (ρ/2)·‖θ − λ‖².
    Proximal {
        /// ρ, above 0.
        rho: f64,
    },
}

/// Facts about a problem, by which claims are checked and settings are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// The point at which the truth differentiates.
    pub target: Target,
    /// The inner loss has several minima, or negative curvature within reach of a chain.
    pub several_minima: bool,
    /// H is singular at the minimum.
    pub singular: bool,
    /// The inner loss is a draw of rows.
    pub minibatches: bool,
    /// A loop whose step is small enough and whose steps are enough: to converge, for a minimum, and all of them, for a training.
    pub inner: InnerLoop,
    /// The smallest curvature of the inner loss, apart from those that are 0 everywhere.
    pub smallest_curvature: f64,
    /// The largest curvature of the inner loss.
    pub largest_curvature: f64,
    /// Numbers of θ.
    pub parameters: usize,
    /// The inner loss has no second derivatives.
    pub straight: bool,
    /// The outer loss is the inner loss.
    pub same_losses: bool,
}

impl Facts {
    /// A minimum with curvatures between these two, and a training that arrives there.
    pub fn minimum(smallest: f64, largest: f64) -> Self {
        // (1 − γ·smallest)^T is 1e-13.
        let (step, steps) = (1.0 / largest, (30.0 * largest / smallest).ceil() as usize);
        Facts {
            target: Target::Minimum,
            several_minima: false,
            singular: false,
            minibatches: false,
            inner: InnerLoop::new(step, steps),
            smallest_curvature: smallest,
            largest_curvature: largest,
            parameters: 0,
            straight: false,
            same_losses: false,
        }
    }

    /// A chain at this temperature with this step.
    pub fn gibbs(temperature: f64, step: f64, largest: f64) -> Self {
        let inner = InnerLoop::new(step, 4000);
        Facts { target: Target::Gibbs { temperature }, inner, ..Facts::minimum(largest, largest) }
    }

    /// The same with this many steps.
    pub fn with_steps(mut self, steps: usize) -> Self {
        self.inner.steps = steps;
        self
    }

    /// The largest curvature over the smallest.
    pub fn condition(&self) -> f64 {
        self.largest_curvature / self.smallest_curvature
    }
}
