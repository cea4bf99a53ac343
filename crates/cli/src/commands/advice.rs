//! Sentences on the inner loop and the curvature of its loss, shared by `check` and `advise`.

use crate::errors::Result;
use bilevel::diagnostics::{Cause, Curvature};
use bilevel::methods::Descent;
use bilevel::methods::claims::Target;
use bilevel::splits::Part;
use bilevel::{AnyProblem, InnerLoop, Method};
use bilevel_run::advise::{Question, Standing, standings};
use bilevel_run::{Config, Registry};

/// A temperature from which on noise is part of the question, and not a way to answer it.
const WARM: f64 = 1e-3;
/// A loop has converged once the error of its start has fallen by this many powers of e, to 5 %.
const ARRIVED: f64 = 3.0;

/// A run's inner loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InnerSteps {
    /// The loop itself.
    pub inner: InnerLoop,
    /// How the method uses them.
    pub used: Descent,
    /// It starts from scratch in every outer iteration.
    pub cold: bool,
}

impl InnerSteps {
    /// Reads the loop of a configuration's method.
    pub fn of(config: &Config, registry: &Registry) -> Result<Option<Self>> {
        let used = config.method(registry)?.loop_use().descent;
        Ok((used != Descent::Own).then_some(InnerSteps { inner: config.inner, used, cold: config.outer.cold }))
    }
}

/// The question of a configuration, and the inner loop that answers it: the task's loop if the method does not
/// train by plain descent, otherwise the method's.
pub fn question(config: &Config, registry: &Registry, starts_from_lambda: bool) -> Result<Question> {
    let usual = registry.read_task(&config.task)?.defaults().inner;
    let plain = config.method(registry)?.loop_use().descent.is_plain();
    let inner = if plain { config.inner } else { usual };
    let temperature = config.inner.temperature;
    let target = if config.method(registry)?.claims().evidence {
        Target::Evidence { temperature }
    } else if starts_from_lambda || config.outer.cold {
        Target::Training { optimizer: bilevel::optimizers::InnerOptimizer::Sgd }
    } else if temperature >= WARM {
        Target::Gibbs { temperature }
    } else {
        Target::Minimum
    };
    Ok(Question { target, inner })
}

/// Sentences on the inner step, the number of steps and the shape of the inner loss. `diverged` is why a run with these
/// settings does, if it does.
pub fn advice(curvature: Curvature, inner: Option<InnerSteps>, diverged: Option<Cause>) -> Vec<String> {
    let Curvature { largest, smallest, .. } = curvature;
    let mut said = vec![];
    let Some(InnerSteps { inner, used, cold }) = inner else { return said };
    let (step, steps) = (inner.step, inner.steps as f64);
    if largest <= 0.0 {
        said.push(
            "The inner loss does not curve upwards in any direction here: there is no minimum nearby to train \
        towards."
                .into(),
        );
        return said;
    }
    if used.is_plain() {
        said.push(on_the_step(step, largest, diverged));
    } else if let Descent::Penalised { .. } = used {
        let (product, most) = (step * largest * largest, 1.0 / (largest * largest));
        let stable = if product < 1.0 { "stable" } else { "too large" };
        said.push(format!(
            "The inner step {step} times the square of the largest curvature is {product:.3}: {stable} (this method needs it \
             below 1, a step below {most:.2e})."
        ));
    }
    if curvature.is_negative() {
        said.push(
            "The inner loss is not convex here, so a solve with its Hessian may fail; 'bilevel advise' ranks the methods \
             for it."
                .into(),
        );
        return said;
    }
    // The end of training is of no interest if training diverges or stops by a tolerance.
    if diverged.is_some() || !used.is_plain() || step * largest >= 2.0 {
        return said;
    }
    let left = 100.0 * (-step * steps * smallest.max(0.0)).exp();
    let end = if step * steps * smallest >= ARRIVED { "come close to the minimum" } else { "do not reach the minimum" };
    let then = match cold {
        _ if step * steps * smallest >= ARRIVED => "",
        true => ", and the next iteration starts from scratch: use more steps if the method needs the minimum",
        false => ", but the next iteration continues from there",
    };
    said.push(format!(
        "{steps} inner steps {end}: {left:.0} % of the distance along the flattest direction is left{then}."
    ));
    said
}

/// A sentence on plain steps of this size.
fn on_the_step(step: f64, largest: f64, diverged: Option<Cause>) -> String {
    let product = step * largest;
    match product {
        p if p >= 2.0 => format!(
            "The inner step {step} times the largest curvature is {p:.3}, and training diverges above 2: take a step \
             of at most {:.2e}.",
            1.0 / largest
        ),
        p if diverged == Some(Cause::InnerStepTooLarge) => format!(
            "The inner step {step} times the largest curvature is {p:.3} here, but training moves to a place with \
             larger curvature and diverges: take a smaller step."
        ),
        p if diverged.is_some() => format!(
            "The inner step {step} times the largest curvature is {p:.3}: stable (below 2), so look for another cause."
        ),
        p if p > 1.0 => format!(
            "The inner step {step} times the largest curvature is {p:.3}: stable (below 2), but it oscillates; {:.2e} \
             would not.",
            1.0 / largest
        ),
        p if p < 0.1 => format!(
            "The inner step {step} times the largest curvature is {p:.3}: stable, and it could be larger, up to {:.2e}.",
            1.0 / largest
        ),
        p => format!("The inner step {step} times the largest curvature is {p:.3}: stable (below 2) and well chosen."),
    }
}

/// Warns about many hyperparameters chosen by few rows. No warning if there are fewer hyperparameters than a tenth of
/// the rows.
pub fn overfits(problem: &AnyProblem) -> Option<String> {
    let (hyperparameters, rows) = (problem.sizes().0, problem.rows_of(Part::Validation));
    (rows > 0 && 10 * hyperparameters > rows).then(|| {
        format!(
            "{hyperparameters} hyperparameters are chosen by {rows} rows, which they can overfit with any method. \
            Compare with the held-out loss and with one tuned value, which a run shows at its end. The guide's \
            chapter 'Hyperparameters that generalise' covers folds, shrinkage and the evidence.{}",
            on_test_rows()
        )
    })
}

/// A sentence that ranks the ways to choose λ by their loss on test rows.
fn on_test_rows() -> String {
    let all = standings();
    let usual = all.iter().find(|standing| standing.way.starts_with("learned on the split, half"));
    let (Some(first), Some(usual)) = (all.first(), usual) else { return String::new() };
    let counts = |Standing { better, worse, cases, .. }: &Standing| {
        format!("better on {better} and worse on {worse} of {cases} cases")
    };
    format!(
        " By test loss, 'bilevel reproduce generalisation' recommends '{}': against one value tuned by folds it is {}, while a λ learned \
         on a split is {}.",
        first.way,
        counts(first),
        counts(usual)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(largest: f64, smallest: f64, step: f64) -> String {
        said_of(largest, smallest, step, None)
    }

    fn said_of(largest: f64, smallest: f64, step: f64, diverged: Option<Cause>) -> String {
        said_by(Descent::Plain, Curvature { largest, smallest, products: 9, converged: true }, step, diverged)
    }

    fn said_by(used: Descent, curvature: Curvature, step: f64, diverged: Option<Cause>) -> String {
        let inner = InnerSteps { inner: InnerLoop::new(step, 100), used, cold: false };
        advice(curvature, Some(inner), diverged).join(" ")
    }

    #[test]
    fn each_use_of_the_inner_step_has_its_own_limit() {
        let curvature = Curvature { largest: 10.0, smallest: 1.0, products: 9, converged: true };
        assert_eq!(said_by(Descent::Adaptive, curvature, 1.0, None), "");
        let penalised = said_by(Descent::Penalised { penalty: 10.0 }, curvature, 0.05, None);
        assert!(
            penalised.contains("is 5.000: too large (this method needs it below 1, a step below 1.00e-2)"),
            "{penalised}"
        );
    }

    #[test]
    fn a_step_with_which_a_run_diverges_is_not_called_well_chosen() {
        let inner = said_of(0.2, 0.2, 3.0, Some(Cause::InnerStepTooLarge));
        assert_eq!(
            inner,
            "The inner step 3 times the largest curvature is 0.600 here, but training moves to a place with larger \
             curvature and diverges: take a smaller step."
        );
        let outer = said_of(0.2, 0.2, 3.0, Some(Cause::OuterStepTooLarge));
        assert!(outer.ends_with("is 0.600: stable (below 2), so look for another cause."), "{outer}");
    }

    #[test]
    fn a_step_beyond_stability_is_named_with_one_that_works() {
        assert!(
            said(10.0, 1.0, 0.3).contains("is 3.000, and training diverges above 2: take a step of at most 1.00e-1")
        );
        assert!(said(10.0, 1.0, 0.05).contains("well chosen"));
        assert!(said(10.0, 1.0, 0.15).contains("oscillates"));
        assert!(said(10.0, 1.0, 0.001).contains("could be larger"));
    }

    #[test]
    fn flat_and_downward_directions_are_told_apart() {
        assert!(said(10.0, 1e-3, 0.05).contains("do not reach the minimum: 100 % of the distance"));
        assert!(said(10.0, 1.0, 0.05).contains("come close to the minimum: 1 % of the distance"));
        assert!(said(10.0, -1.0, 0.05).contains("not convex"));
        assert!(said(-1.0, -2.0, 0.05).contains("does not curve upwards"));
        assert!(said(10.0, 0.0, 0.05).contains("100 % of the distance"));
    }
}
