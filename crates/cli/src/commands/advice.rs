//! What the curvature of the inner loss says about the inner step and the method.

use bilevel::{Cause, Curvature};
use bilevel_tasks::Config;

/// A run's inner loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InnerSteps {
    /// Its step.
    pub step: f64,
    /// Its number of steps.
    pub steps: f64,
    /// It starts from scratch in every outer iteration.
    pub cold: bool,
}

impl InnerSteps {
    /// Of a configuration's method.
    pub fn of(config: &Config) -> Option<Self> {
        let number = |name: &str| config.method.get(name)?.as_f64();
        let steps = number("steps").or_else(|| Some(number("burn_in")? + number("samples")?))?;
        Some(InnerSteps { step: number("step")?, steps, cold: config.outer.cold })
    }
}

/// Sentences on the inner step, the number of steps and the method. `diverged` is why a run with these settings does, if it
/// does; `following` are methods that follow the inner loop and can work on this problem.
pub fn advice(
    curvature: Curvature,
    inner: Option<InnerSteps>,
    diverged: Option<Cause>,
    following: &[&str],
) -> Vec<String> {
    let Curvature { largest, smallest, .. } = curvature;
    let mut said = vec![];
    let Some(InnerSteps { step, steps, cold }) = inner else { return said };
    if largest <= 0.0 {
        said.push(
            "The inner loss does not curve upwards in any direction here: there is no minimum nearby to train \
        towards."
                .into(),
        );
        return said;
    }
    let product = step * largest;
    said.push(match product {
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
    });
    // What is negative by rounding alone is zero.
    if smallest < -1e-8 * largest {
        let prefer = match following {
            [] => String::new(),
            names => format!(
                ": prefer methods that differentiate through the inner loop ({}) to those that solve with the Hessian",
                names.join(", ")
            ),
        };
        said.push(format!("The inner loss is not convex here{prefer}."));
        return said;
    }
    // Where training ends is of no interest if it does not get there.
    if diverged.is_some() || product >= 2.0 {
        return said;
    }
    let condition = largest / smallest.max(f64::MIN_POSITIVE);
    let covered = step * steps * smallest;
    let condition = if condition < 1e8 { format!("{condition:.3e}") } else { "above 1e8".into() };
    said.push(if covered < 1.0 {
        let then = match cold {
            true => "and the next iteration starts from scratch: take more steps if the method needs the minimum",
            false => "but the next iteration continues from there",
        };
        let left = 100.0 * (-covered).exp();
        format!(
            "The condition number is {condition}: {steps} inner steps leave {left:.0} % of the distance along the flattest \
             direction, {then}."
        )
    } else {
        format!("The condition number is {condition}: {steps} inner steps come close to the minimum in all directions.")
    });
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(largest: f64, smallest: f64, step: f64) -> String {
        said_of(largest, smallest, step, None, &["rmd"])
    }

    fn said_of(largest: f64, smallest: f64, step: f64, diverged: Option<Cause>, following: &[&str]) -> String {
        let inner = InnerSteps { step, steps: 100.0, cold: false };
        advice(Curvature { largest, smallest, products: 9 }, Some(inner), diverged, following).join(" ")
    }

    #[test]
    fn a_step_with_which_a_run_diverges_is_not_called_well_chosen() {
        let inner = said_of(0.2, 0.2, 3.0, Some(Cause::InnerStepTooLarge), &[]);
        assert_eq!(
            inner,
            "The inner step 3 times the largest curvature is 0.600 here, but training moves to a place with larger \
             curvature and diverges: take a smaller step."
        );
        let outer = said_of(0.2, 0.2, 3.0, Some(Cause::OuterStepTooLarge), &[]);
        assert!(outer.ends_with("is 0.600: stable (below 2), so look for another cause."), "{outer}");
    }

    #[test]
    fn only_methods_that_can_work_on_the_problem_are_advised() {
        assert!(
            said_of(10.0, -1.0, 0.05, None, &["rmd", "fmd"])
                .contains("differentiate through the inner loop (rmd, fmd) to those")
        );
        assert!(said_of(10.0, -1.0, 0.05, None, &[]).ends_with("The inner loss is not convex here."));
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
        assert!(said(10.0, 1e-3, 0.05).contains("leave 100 % of the distance"));
        assert!(said(10.0, 1.0, 0.05).contains("come close to the minimum"));
        assert!(said(10.0, -1.0, 0.05).contains("not convex"));
        assert!(said(-1.0, -2.0, 0.05).contains("does not curve upwards"));
        assert!(said(10.0, 0.0, 0.05).contains("above 1e8"));
    }
}
