//! What a method promises about its hypergradients and where, as data, so that a test can hold it to its word.

use super::{Facts, Target};

/// What a method promises where it claims anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promise {
    /// The mean of its hypergradients is the truth, up to O(γ) at finite temperature.
    #[default]
    Exact,
    /// The derivative of a penalised problem, whose bias is proportional to 1/σ, with σ the setting `penalty`.
    InversePenalty,
    /// The direction of the hypergradient, with a length that makes it a step of λ.
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
    /// θ has at most [`FEW_PARAMETERS`] numbers, so that a method can look at each.
    FewParameters,
}

/// The largest condition of an inner loss that counts as well conditioned.
pub const WELL_CONDITIONED: f64 = 30.0;

/// The most numbers that a θ with few parameters has.
pub const FEW_PARAMETERS: usize = 10;

/// When a method gives what it promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Settling {
    /// From the second hypergradient on, if the inner loop converges in one.
    #[default]
    AtOnce,
    /// After as many hypergradients as training takes inner steps, with one inner step each: part of its state moves once in a
    /// hypergradient.
    StepByStep,
}

/// What a method promises, and where, given settings that fit the problem. A method that says nothing claims nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// What it promises.
    pub promise: Promise,
    /// When.
    pub settling: Settling,
    /// For the minimum that training converges to.
    pub minimum: bool,
    /// At finite temperature.
    pub gibbs: bool,
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
    /// True if the method claims anything of a problem of this kind.
    ///
    /// ```
    /// use bilevel::{LangevinAdjoint, Method, RmdFo, truth};
    /// let problems = truth::problems()?;
    /// let well = problems.iter().find(|p| p.name == "double well").unwrap();
    /// assert!(LangevinAdjoint::default().claims().cover(&well.facts));
    /// assert!(!RmdFo::default().claims().cover(&well.facts));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn cover(&self, facts: &Facts) -> bool {
        let target = match facts.target {
            Target::Minimum => self.minimum,
            Target::Gibbs { .. } => self.gibbs && (self.several_minima || !facts.several_minima),
            Target::Training { .. } => self.training,
            Target::Proximal { .. } => self.proximal,
        };
        let only = match self.only {
            None => true,
            Some(Condition::OneStep) => facts.steps == 1,
            Some(Condition::StraightInnerLoss) => facts.straight,
            Some(Condition::OneCurvature) => facts.condition() == 1.0 && facts.step * facts.largest_curvature == 1.0,
            Some(Condition::SameLosses) => facts.same_losses,
            Some(Condition::WellConditioned) => facts.condition() <= WELL_CONDITIONED,
            Some(Condition::FewParameters) => facts.parameters <= FEW_PARAMETERS,
        };
        target && only && (self.singular || !facts.singular) && (self.minibatches || !facts.minibatches)
    }
}
