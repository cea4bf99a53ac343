//! The plain outer loop of the synthetic experiments: λ ← λ − β·h, θ warm.
//!
//! Nothing else in this crate moves λ, so another driver can take its place here.

use bilevel::graph::random::{fold_in, seed_key};
use bilevel::{Array, Error, Estimator, Problem, Result, State};
use std::ops::ControlFlow;

/// Bounds that keep nothing out.
pub const FREE: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

/// Settings of the loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OuterLoop {
    /// Outer step β.
    pub rate: f64,
    /// Outer iterations.
    pub iterations: u32,
    /// λ is brought back between these after every step.
    pub bounds: (f64, f64),
}

impl OuterLoop {
    /// The state after the last update of λ, or after the one at which `watch` breaks; θ is the one from before that
    /// update.
    pub fn run(
        &self,
        problem: &Problem,
        estimator: &mut dyn Estimator,
        seed: u64,
        watch: &mut dyn FnMut(u32, &State) -> ControlFlow<()>,
    ) -> Result<State> {
        let key = seed_key(seed);
        let mut state = State::initial(problem, key)?;
        for outer in 0..self.iterations {
            let h = estimator.estimate(&mut state, fold_in(key, 10 + outer))?;
            for (lambda, h) in state.lambda.iter_mut().zip(&h.value) {
                let moved: Vec<f64> = lambda
                    .to_f64()
                    .iter()
                    .zip(h.to_f64())
                    .map(|(l, h)| (l - self.rate * h).clamp(self.bounds.0, self.bounds.1))
                    .collect();
                *lambda = Array::from_values(lambda.shape(), &moved, lambda.dtype())?;
            }
            if watch(outer, &state).is_break() {
                break;
            }
        }
        let lost = state.lambda.iter().flat_map(Array::to_f64).find(|v| v.is_nan() || v.abs() > 1e6);
        match lost {
            Some(value) => Err(Error::Diverged { diagnosis: format!("the outer loop reached λ = {value:e}") }),
            None => Ok(state),
        }
    }
}

/// Where runs from several seeds ended; λ and θ are single numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ends {
    /// The last λ of each run that arrived.
    pub lambda: Vec<f64>,
    /// The θ from before the last update of λ.
    pub theta: Vec<f64>,
    /// Runs that stopped because something was no longer finite or grew beyond reason.
    pub diverged: u32,
}

/// Runs seeds one after another with one prepared estimator; a run that diverges is counted, any other error is passed on.
pub fn ends(
    outer: &OuterLoop,
    problem: &Problem,
    estimator: &mut dyn Estimator,
    seeds: std::ops::Range<u64>,
) -> Result<Ends> {
    let mut ends = Ends::default();
    for seed in seeds {
        match outer.run(problem, estimator, seed, &mut |_, _| ControlFlow::Continue(())) {
            Ok(state) => {
                ends.lambda.push(state.lambda[0].to_f64()[0]);
                ends.theta.push(state.theta[0].to_f64()[0]);
            }
            Err(Error::Diverged { .. }) => ends.diverged += 1,
            Err(other) => return Err(other),
        }
    }
    Ok(ends)
}
