//! Settings of a method that fit a problem of the suite, by what the settings are called: a method that was not there when this
//! was written is fitted like any other.

use super::{FEW_PARAMETERS, Settling, Target, TruthProblem, WELL_CONDITIONED};
use crate::hypergradient::registry::AnyMethod;
use crate::hypergradient::{Method, Suited};
use crate::inner::optimizer::InnerOptimizer;
use crate::inner::walk::not_applicable;
use crate::{Error, Result};
use serde_json::{Value, json};

/// Directions that a search looks along.
const DIRECTIONS: usize = 50;
/// To what residual a method trains and solves that is given a tolerance.
const TOLERANCE: f64 = 1e-10;
/// How many times longer a training may be that ends at a tolerance.
const TOLERANT: usize = 20;
/// What is added to the curvature where a method needs something, as a share of the smallest curvature.
const SMALL: f64 = 1e-7;

/// The inner steps of one hypergradient with settings that fit; those that training takes, for a method that stops at a tolerance.
///
/// ```
/// use bilevel::{AnyMethod, truth};
/// let problems = truth::problems()?;
/// let steps = |name: &str| truth::fitted_steps(&AnyMethod::named(name)?, &problems[0]);
/// assert_eq!((steps("rmd")?, steps("hoag")?, steps("ma-soba")?), (problems[0].facts.steps, problems[0].facts.steps, 1));
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn fitted_steps(method: &AnyMethod, problem: &TruthProblem) -> Result<usize> {
    let training = problem.facts.steps;
    let stops = serde_json::to_value(method).is_ok_and(|settings| settings.get("tolerance").is_some());
    let fitted = fitted(method, problem)?;
    Ok(fitted.inner_time().filter(|_| !stops).map_or(training, |time| time.steps))
}

/// The method with settings that fit: an inner step and enough inner steps, the temperature, a linear solve that arrives. What
/// it has beyond these stays as it is. Refuses a problem that asks for what the method does not have.
pub fn fitted(method: &AnyMethod, problem: &TruthProblem) -> Result<AnyMethod> {
    let failed =
        |error: serde_json::Error| Error::Problem { reason: format!("settings of {}: {error}", method.name()) };
    let facts = &problem.facts;
    let claims = method.claims();
    let mut settings = serde_json::to_value(method).map_err(failed)?;
    // What the method itself does about such a problem: the number of iterations of its solve, or an inner step that it needs smaller.
    let mut suited = method.clone();
    let curvature = facts.largest_curvature;
    suited.suit(&Suited { step: facts.step, steps: facts.steps, temperature: 0.0, curvature });
    let suited = serde_json::to_value(&suited).map_err(failed)?;
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
    let iterations = match () {
        _ if has("beta") => facts.steps,
        _ if suited["iterations"] != settings["iterations"] => TOLERANT * facts.steps,
        _ => (2 * numbers).min(400),
    };
    let smaller = suited["step"].as_f64().unwrap_or(facts.step).min(facts.step);
    let steps = match claims.settling {
        Settling::StepByStep => 1,
        // A smaller step squares the condition: it is for the curvature of a slope.
        Settling::AtOnce if smaller < facts.step => {
            (facts.steps as f64 * facts.condition().min(WELL_CONDITIONED)) as usize
        }
        Settling::AtOnce if has("tolerance") => TOLERANT * facts.steps,
        Settling::AtOnce => facts.steps,
    };
    // A proximal term that is part of the problem, or one that bends less than the inner loss does anywhere.
    let rho = rho.unwrap_or(if has("penalty") { 0.1 * facts.smallest_curvature } else { 1.0 });
    let few = has("columns") && numbers <= FEW_PARAMETERS;
    let wanted: [(&str, Value); 14] = [
        ("step", json!(smaller)),
        ("steps", json!(steps)),
        ("burn_in", json!(burn_in)),
        ("samples", json!(samples)),
        ("temperature", json!(temperature)),
        ("alpha", json!(solver_step)),
        ("beta", json!(solver_step)),
        ("terms", json!(facts.steps)),
        ("iterations", json!(iterations)),
        ("rho", json!(rho)),
        ("tolerance", json!(TOLERANCE)),
        ("columns", if few { json!(numbers) } else { settings["columns"].clone() }),
        (
            "regularisation",
            if few { json!(SMALL * facts.smallest_curvature) } else { settings["regularisation"].clone() },
        ),
        ("optimizer", serde_json::to_value(optimizer).map_err(failed)?),
    ];
    if let Some(all) = settings.as_object_mut() {
        for (key, value) in wanted {
            all.entry(key).and_modify(|old| *old = value);
        }
    }
    serde_json::from_value(settings).map_err(failed)
}
