//! The truth suite: problems with known hypergradients, and the error of each method on them.
//!
//! It is for developers of methods, for the tests of `bilevel`, and for `bilevel advise`. Every [`TruthProblem`] has
//! its exact hypergradient by a closed form, by dense linear algebra, or by quadrature of dF/dλ = E\[f_λ\] − Cov(f,
//! ∂L_T/∂λ)/τ. For whole trainings of networks, it is from exact reverse mode. [`measure`] runs a method on one of them
//! and returns a [`Row`]: bias with its standard error, spread, cost and memory, and the claims of the method's
//! documentation ([`Claims`](bilevel::methods::claims::Claims)).
//!
//! ```
//! use bilevel::Cpu;
//! use bilevel::methods::AnyMethod;
//! use bilevel_truth::{Effort, Verdict};
//! let problems = bilevel_truth::problems()?;
//! let problem = problems.iter().find(|p| p.name == "quadratic").unwrap();
//! let (method, inner) = bilevel_truth::fitted(&AnyMethod::named("ift-cg")?, problem)?;
//! let row = bilevel_truth::measure((&method, &inner), problem, Effort::QUICK, &Cpu::with_threads(1))?;
//! assert!(row.claimed && row.verdict == Verdict::Right, "{row:?}");
//! # Ok::<(), bilevel::Error>(())
//! ```

#![forbid(unsafe_code)]

mod dense;
mod evidence;
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

use bilevel::methods::claims::{Facts, Target};
use bilevel::{Key, Problem, Result};

pub use fitted::{fitted, fitted_steps};
pub use measure::{Effort, MAX_STANDARD_ERROR, Row, Verdict, measure};
pub use networks::trainings;
pub use table::{Cell, HeatMap, Table};

/// The seed of the key that everything random of a whole training ([`Target::Training`]) follows from.
pub const KEY: u64 = 12;

/// A problem with its exact hypergradient.
#[derive(Clone)]
pub struct TruthProblem {
    /// Its name.
    pub name: String,
    /// The property that it tests.
    pub about: &'static str,
    /// The problem, at whose first λ the hypergradient is known.
    pub problem: Problem,
    /// The hypergradient: all numbers of λ in their order.
    pub truth: Vec<f64>,
    /// Facts about the problem.
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
        if let Target::Gibbs { .. } | Target::Evidence { .. } = self.facts.target {
            longer.facts.inner.steps *= times;
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
/// assert!(bilevel_truth::problems()?.len() >= 20);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn problems() -> Result<Vec<TruthProblem>> {
    let mut all = quadratics::problems()?;
    all.extend(regressions::problems()?);
    all.extend(wells::problems()?);
    all.extend(starts::problems()?);
    all.extend(evidence::problems()?);
    Ok(all)
}

/// Standard normal numbers that are the same everywhere.
fn normals(stream: u32, count: usize) -> Vec<f64> {
    let mut values = vec![0.0; count];
    bilevel_graph::random::fill_normal_f64([17, 29], stream, 0, 0, &mut values);
    values
}
