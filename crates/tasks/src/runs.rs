//! Runs of one method on one problem, from several seeds: the library's outer loop with plain descent and θ warm.

use crate::prepared::Prepared;
use bilevel::{Cpu, Driver, Method, Problem, Result, Session, StopReason, Tree, Variable};
use std::ops::Range;

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
    pub(crate) fn driver<L, T>(&self, problem: &Problem<L, T>, method: &Prepared, seed: u64) -> Driver<L, T>
    where
        L: Tree<Leaf = Variable> + Clone,
        T: Tree<Leaf = Variable> + Clone,
    {
        let driver = Driver::new(problem, method.clone()).executor(Cpu::with_threads(1));
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
pub fn ends(problem: &Problem, method: &dyn Method, outer: Outer, seeds: Range<u64>) -> Result<Ends> {
    let prepared = Prepared::new(method, &Session::new(problem, &Cpu::with_threads(1))?)?;
    let mut ends = Ends::default();
    for seed in seeds {
        let outcome = outer.driver(problem, &prepared, seed).run()?;
        if matches!(outcome.reason, StopReason::Diverged(_)) {
            ends.diverged += 1;
        } else {
            ends.lambda.extend(outcome.lambda.leaves()[0].item());
            ends.theta.extend(outcome.theta.leaves()[0].item());
        }
    }
    Ok(ends)
}
