//! Runs of one method on one problem, from several seeds: the library's outer loop with plain descent and θ warm.

use crate::prepared::Prepared;
use bilevel::{AnyProblem, Cpu, Driver, HpoSgld, Method, Problem, Result, Session, State, StopReason};
use std::ops::Range;

/// Plain training, for one outer iteration of which θ is all that is wanted: its last step gives a hypergradient, because a
/// driver asks for one.
pub(crate) fn training(step: f64, steps: usize) -> HpoSgld {
    HpoSgld { burn_in: steps.saturating_sub(1), samples: 1, step, temperature: 0.0, ..HpoSgld::default() }
}

/// Settings of the outer loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outer {
    /// Outer step β.
    pub rate: f64,
    /// Outer iterations.
    pub iterations: u32,
}

impl Outer {
    /// The loop for one seed, on one thread.
    pub(crate) fn driver(&self, problem: &AnyProblem, method: &Prepared, seed: u64) -> Driver {
        let driver = Driver::new(&Problem::from(problem.clone()), method.clone()).executor(Cpu::with_threads(1));
        driver.rate(self.rate).iterations(self.iterations).seed(seed).diagnose_every(0)
    }
}

/// Where runs from several seeds ended; λ and θ are single numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ends {
    /// The last λ of each run that arrived.
    pub lambda: Vec<f64>,
    /// The θ from before the last update of λ.
    pub theta: Vec<f64>,
    /// Runs that were given up because something was no longer finite or grew beyond reason.
    pub diverged: u32,
}

/// Runs seeds one after another, preparing the method once; a run that diverges is counted, any error is passed on.
///
/// ```
/// use bilevel_tasks::{runs, synthetic};
/// let problem = synthetic::problem(0.1, 0.0)?;
/// let ends = runs::ends(&problem, &synthetic::cg(100), synthetic::OUTER, 1..2)?;
/// assert!((ends.lambda[0] - 0.7488).abs() < 1e-4);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn ends(problem: &AnyProblem, method: &dyn Method, outer: Outer, seeds: Range<u64>) -> Result<Ends> {
    let prepared = Prepared::new(method, &Session::new(problem, &Cpu::with_threads(1))?)?;
    let mut ends = Ends::default();
    for seed in seeds {
        let outcome = outer.driver(problem, &prepared, seed).run()?;
        let State { lambda, theta, .. } = &outcome.state;
        if matches!(outcome.reason, StopReason::Diverged(_)) {
            ends.diverged += 1;
        } else {
            ends.lambda.push(lambda[0].item()?);
            ends.theta.push(theta[0].item()?);
        }
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel::Rmd;

    #[test]
    fn training_takes_as_many_gradient_steps_as_it_is_asked_for() {
        let problem = crate::synthetic::problem(0.1, 0.0).unwrap();
        let theta = |driver: Driver| {
            let outcome = driver.iterations(1).executor(Cpu::with_threads(1)).run().unwrap();
            outcome.state.theta.arrays().unwrap()
        };
        for steps in [1, 2, 50] {
            let followed = Rmd { step: 0.01, steps, ..Rmd::default() };
            assert_eq!(
                theta(Driver::new(&problem, training(0.01, steps))),
                theta(Driver::new(&problem, followed)),
                "{steps}"
            );
        }
    }
}
