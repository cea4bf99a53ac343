//! Losses as means over fixed minibatches, by their numbers, for variance reduction.
//!
//! A loss that draws its rows from [epochs](crate::Scope::epochs) has, with one key for all hypergradients, the same minibatch at the
//! same step. The steps 0 … n−1 of such a key number n minibatches, whose mean is the loss on all rows. Methods draw
//! these numbers from the key of the hypergradient.

use crate::compiled::purpose::Purpose;
use crate::hypergradient::paths::{Path, must_see};
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::not_applicable;
use crate::problem::feeding::finite_sum::FiniteSum;
use crate::problem::variable::Role;
use bilevel_graph::random::fill_uniform_f64;

/// The numbers of minibatches of the inner and the outer loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Minibatches {
    pub inner: usize,
    pub outer: usize,
}

impl Minibatches {
    /// The minibatches of a problem; an error with the reason if it has none, or if λ acts on a path that the method
    /// ignores.
    pub fn of(method: &'static str, problem: &AnyProblem) -> Result<Self> {
        must_see(method, problem, |path| path != Path::Start)?;
        if problem.theta.iter().any(|(_, variable)| variable.role == Role::Statistic) {
            let reason = "θ has statistics that every minibatch updates, so the losses are not means over \
                minibatches; use soba";
            return not_applicable(method, reason);
        }
        let graph = Graph::new();
        let sums = Trace::new(&graph, problem)?.finite_sums()?;
        let count = |name: &str, sum: FiniteSum| match sum {
            FiniteSum::Of(count) => Ok(count),
            FiniteSum::Not(why) => not_applicable(
                method,
                &format!(
                    "it needs losses that are means over finitely many minibatches, but the {name} loss {why}; draw rows \
                     with epochs, or use soba"
                ),
            ),
        };
        Ok(Minibatches { inner: count("inner", sums[0])?, outer: count("outer", sums[1])? })
    }

    /// The key that makes the steps of a loss the numbers of its minibatches.
    pub fn key() -> Key {
        Key::from_seed(0)
    }

    /// The numbers of the minibatches of a step, all equally likely.
    pub fn draw(&self, key: Key, step: u32) -> [usize; 2] {
        let mut uniform = [0.0; 2];
        fill_uniform_f64(key.words(), step, Purpose::Minibatches.stream(), 0, &mut uniform);
        [uniform[0] * self.inner as f64, uniform[1] * self.outer as f64].map(|place| place as usize)
    }
}
