//! The inner loop and the settings of a method that fit a problem of the suite. They follow from the method's
//! declarations, so that a new method is fitted like any other.

use super::TruthProblem;
use bilevel::methods::claims::{Settling, Target, WELL_CONDITIONED};
use bilevel::methods::{AnyMethod, Noise, Scale};
use bilevel::optimizers::InnerOptimizer;
use bilevel::{Error, InnerLoop, Method, Result};

/// How many times longer a training may be that ends at a tolerance.
const TOLERANT: usize = 20;

/// The inner steps of one hypergradient with a loop that fits; those that training takes, for a method that stops at a tolerance.
///
/// ```
/// use bilevel::methods::AnyMethod;
/// let problems = bilevel_truth::problems()?;
/// let steps = |name: &str| bilevel_truth::fitted_steps(&AnyMethod::named(name)?, &problems[0]);
/// let all = problems[0].facts.inner.steps;
/// assert_eq!((steps("rmd")?, steps("hoag")?, steps("ma-soba")?), (all, all, 1));
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn fitted_steps(method: &AnyMethod, problem: &TruthProblem) -> Result<usize> {
    let (method, inner) = fitted(method, problem)?;
    Ok(if method.loop_use().stops_at_tolerance { problem.facts.inner.steps } else { inner.steps })
}

/// The method with settings with which it converges, and the inner loop that fits: an inner step, enough inner steps,
/// the temperature. Its other settings are unchanged. Refuses a problem that the method does not support.
pub fn fitted(method: &AnyMethod, problem: &TruthProblem) -> Result<(AnyMethod, InnerLoop)> {
    fitted_with(method, problem, None)
}

/// The same with this penalty, for a method that has one.
pub(super) fn fitted_with(
    method: &AnyMethod,
    problem: &TruthProblem,
    penalty: Option<f64>,
) -> Result<(AnyMethod, InnerLoop)> {
    let (facts, used) = (&problem.facts, method.loop_use());
    let (optimizer, proximal, temperature) = match facts.target {
        Target::Minimum => (InnerOptimizer::Sgd, None, 0.0),
        Target::Gibbs { temperature } | Target::Evidence { temperature } => (InnerOptimizer::Sgd, None, temperature),
        Target::Training { optimizer } => (optimizer, None, 0.0),
        Target::Proximal { rho } => (InnerOptimizer::Sgd, Some(rho), 0.0),
    };
    if optimizer != InnerOptimizer::Sgd && !used.any_optimizer {
        return not_applicable(method.name(), "its inner loop is plain descent, and this training is not");
    }
    if temperature > 0.0 && used.noise == Noise::Never {
        return not_applicable(method.name(), "it has no temperature");
    }
    let enough = facts.inner;
    // A chain is warm from one call to the next. Training towards a minimum converges in its first half; for a whole
    // training, only the end matters.
    let burn_in = match facts.target {
        _ if !used.burn_in => 0,
        Target::Gibbs { .. } | Target::Evidence { .. } => 0,
        Target::Minimum | Target::Proximal { .. } => enough.steps / 2,
        Target::Training { .. } => enough.steps - (enough.steps / 10).max(1),
    };
    // The method's own answer to such a curvature: a smaller inner step.
    let largest = facts.largest_curvature;
    let step = method.clone().tune(enough, largest).step.min(enough.step);
    let steps = match method.claims().settling {
        Settling::StepByStep => 1,
        // A smaller step squares the condition: it is for the curvature of a slope.
        Settling::AtOnce if step < enough.step => {
            (enough.steps as f64 * facts.condition().min(WELL_CONDITIONED)) as usize
        }
        Settling::AtOnce if used.stops_at_tolerance => TOLERANT * enough.steps,
        Settling::AtOnce => enough.steps,
    };
    let mut method = method.clone();
    method.converge(&Scale {
        largest_curvature: largest,
        smallest_curvature: facts.smallest_curvature,
        parameters: problem.problem.sizes().1,
        steps: if used.stops_at_tolerance { TOLERANT * enough.steps } else { enough.steps },
        proximal,
        penalty,
    });
    Ok((method, InnerLoop { burn_in, temperature, optimizer, ..InnerLoop::new(step, steps) }))
}

fn not_applicable<T>(method: &'static str, reason: &str) -> Result<T> {
    Err(Error::NotApplicable { method, reason: reason.into() })
}
