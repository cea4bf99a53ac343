//! The truth suite: problems whose hypergradients are known, and how far each method is from them.
//!
//! Every [`TruthProblem`] has its exact hypergradient, by closed form, by dense linear algebra, by quadrature of
//! dF/dλ = E\[f_λ\] − Cov(f, ∂L_T/∂λ)/τ, or, for whole trainings of networks, by exact reverse mode. [`measure`] runs a method on one
//! of them and answers with a [`Row`]: bias with its standard error, spread, cost and memory, beside what the method's own
//! documentation claims ([`Claims`]).
//!
//! ```
//! use bilevel::truth::{self, Effort, Verdict};
//! use bilevel::{AnyMethod, Cpu};
//! let problems = truth::problems()?;
//! let problem = problems.iter().find(|p| p.name == "quadratic").unwrap();
//! let method = truth::fitted(&AnyMethod::named("ift-cg")?, problem)?;
//! let row = truth::measure(&method, problem, Effort::QUICK, &Cpu::with_threads(1))?;
//! assert!(row.claimed && row.verdict == Verdict::Right, "{row:?}");
//! # Ok::<(), bilevel::Error>(())
//! ```

mod claims;
mod dense;
mod fitted;
mod measure;
mod networks;
mod promise;
mod quadratics;
mod quadrature;
mod regressions;
mod starts;
mod table;
mod wells;

use crate::inner::optimizer::InnerOptimizer;
use crate::problem::typed::Problem;
use crate::{Key, Result};

pub use claims::{Claims, Condition, FEW_PARAMETERS, Promise, Settling, WELL_CONDITIONED};
pub use fitted::{fitted, fitted_steps};
pub use measure::{Effort, MAX_STANDARD_ERROR, Row, Verdict, measure};
pub use networks::trainings;
pub use table::{Cell, HeatMap, Table};

/// What a hypergradient is the derivative of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// f at the minimum of the inner loss that training arrives at.
    Minimum,
    /// E\[f\] under exp(−L_T/τ).
    Gibbs {
        /// τ, above 0.
        temperature: f64,
    },
    /// f after this many steps of training from θ⁰, with the draws of [`KEY`].
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

/// What is known of a problem: what claims are about, and what settings are chosen by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// What the truth is the derivative of.
    pub target: Target,
    /// The inner loss has several minima, or curves downwards somewhere that a chain comes to.
    pub several_minima: bool,
    /// H is singular at the minimum.
    pub singular: bool,
    /// The inner loss is a draw of rows.
    pub minibatches: bool,
    /// Inner step γ that is small enough.
    pub step: f64,
    /// Inner steps of one hypergradient that are enough: to arrive, for a minimum, and all there are, for a training.
    pub steps: usize,
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

/// The key that everything random of a whole training follows from.
pub const KEY: u64 = 12;

impl Facts {
    /// A minimum with curvatures between these two, and a training that arrives there.
    fn minimum(smallest: f64, largest: f64) -> Self {
        // (1 − γ·smallest)^T is 1e-13.
        let (step, steps) = (1.0 / largest, (30.0 * largest / smallest).ceil() as usize);
        Facts {
            target: Target::Minimum,
            several_minima: false,
            singular: false,
            minibatches: false,
            step,
            steps,
            smallest_curvature: smallest,
            largest_curvature: largest,
            parameters: 0,
            straight: false,
            same_losses: false,
        }
    }

    /// The largest curvature over the smallest.
    pub fn condition(&self) -> f64 {
        self.largest_curvature / self.smallest_curvature
    }

    /// A chain at this temperature with this step.
    fn gibbs(temperature: f64, step: f64, largest: f64) -> Self {
        Facts { target: Target::Gibbs { temperature }, step, steps: 4000, ..Facts::minimum(largest, largest) }
    }
}

/// A problem with its exact hypergradient.
#[derive(Clone)]
pub struct TruthProblem {
    /// Its name.
    pub name: String,
    /// What is special about it.
    pub about: &'static str,
    /// The problem, at whose first λ the hypergradient is known.
    pub problem: Problem,
    /// The hypergradient: all numbers of λ in their order.
    pub truth: Vec<f64>,
    /// What is known of it.
    pub facts: Facts,
    /// The growth rate of sensitivities per inner step, for a training.
    pub growth_rate: Option<f64>,
}

impl TruthProblem {
    fn new(name: &str, about: &'static str, problem: Problem, truth: Vec<f64>, facts: Facts) -> Self {
        let facts = Facts { parameters: problem.sizes().1, ..facts };
        TruthProblem { name: name.into(), about, problem, truth, facts, growth_rate: None }
    }

    /// With chains this many times as long, at finite temperature.
    fn lengthened(&self, times: usize) -> Self {
        let mut longer = self.clone();
        if let Target::Gibbs { .. } = self.facts.target {
            longer.facts.steps *= times;
        }
        longer
    }

    /// The key of everything random in a replica.
    fn key(&self, replica: u32) -> Key {
        match self.facts.target {
            Target::Training { .. } => Key::from_seed(KEY),
            _ => Key::from_seed(KEY).fold_in(replica),
        }
    }
}

/// All problems whose hypergradient is known by closed form, dense linear algebra or quadrature.
///
/// ```
/// assert!(bilevel::truth::problems()?.len() >= 20);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn problems() -> Result<Vec<TruthProblem>> {
    let mut all = quadratics::problems()?;
    all.extend(regressions::problems()?);
    all.extend(wells::problems()?);
    all.extend(starts::problems()?);
    Ok(all)
}

/// Standard normal numbers that are the same everywhere.
fn normals(stream: u32, count: usize) -> Vec<f64> {
    let mut values = vec![0.0; count];
    bilevel_graph::random::fill_normal_f64([17, 29], stream, 0, 0, &mut values);
    values
}
