//! Settings of a method that fit a problem of the suite, by what the settings are called: a method that was not there when this
//! was written is fitted like any other.

use super::{Target, TruthProblem};
use crate::estimator::Method;
use crate::estimators::inner_loop::not_applicable;
use crate::methods::AnyMethod;
use crate::optimizer::InnerOptimizer;
use crate::{Error, Result};
use serde_json::{Value, json};

/// Directions that a search looks along.
const DIRECTIONS: usize = 50;

/// The method with settings that fit: an inner step and enough inner steps, the temperature, a linear solve that arrives. What
/// it has beyond these stays as it is. Refuses a problem that asks for what the method does not have.
pub fn fitted(method: &AnyMethod, problem: &TruthProblem) -> Result<AnyMethod> {
    let failed =
        |error: serde_json::Error| Error::Problem { reason: format!("settings of {}: {error}", method.name()) };
    let facts = &problem.facts;
    let mut settings = serde_json::to_value(method).map_err(failed)?;
    let has = |key: &str| settings.get(key).is_some();
    let (optimizer, rho, temperature) = match facts.target {
        Target::Minimum => (InnerOptimizer::Sgd, None, 0.0),
        Target::Gibbs { temperature } => (InnerOptimizer::Sgd, None, temperature),
        Target::Training { optimizer } => (optimizer, None, 0.0),
        Target::Proximal { rho } => (InnerOptimizer::Sgd, Some(rho), 0.0),
    };
    if optimizer != InnerOptimizer::Sgd && !has("optimizer") {
        return not_applicable(method.name(), "its inner loop is plain descent, and this training is not");
    }
    if temperature > 0.0 && !has("temperature") {
        return not_applicable(method.name(), "it has no temperature");
    }
    let chain = has("burn_in");
    // A chain is warm from one call to the next; training towards a minimum arrives in its first half, and of a whole training
    // the end is asked for.
    let burn_in = match facts.target {
        Target::Gibbs { .. } => 0,
        Target::Minimum | Target::Proximal { .. } => facts.steps / 2,
        Target::Training { .. } => facts.steps - (facts.steps / 10).max(1),
    };
    let samples = if chain { facts.steps - burn_in } else { DIRECTIONS };
    let solver_step = 1.0 / facts.largest_curvature;
    let numbers = problem.problem.sizes().1;
    let iterations = if has("beta") { facts.steps } else { (2 * numbers).min(400) };
    let wanted: [(&str, Value); 11] = [
        ("step", json!(facts.step)),
        ("steps", json!(facts.steps)),
        ("burn_in", json!(burn_in)),
        ("samples", json!(samples)),
        ("temperature", json!(temperature)),
        ("alpha", json!(solver_step)),
        ("beta", json!(solver_step)),
        ("terms", json!(facts.steps)),
        ("iterations", json!(iterations)),
        ("rho", json!(rho.unwrap_or(1.0))),
        ("optimizer", serde_json::to_value(optimizer).map_err(failed)?),
    ];
    if let Some(all) = settings.as_object_mut() {
        for (key, value) in wanted {
            all.entry(key).and_modify(|old| *old = value);
        }
    }
    serde_json::from_value(settings).map_err(failed)
}
