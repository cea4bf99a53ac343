//! One run of one method within the budget, and the choice of its settings.

use super::candidates::{Candidate, Variant};
use crate::digits::{Penalty, PerWeightL2, SHAPE, Score, Split, largest_curvature, per_weight_l2};
use crate::prepared::Prepared;
use crate::price::{Passes, price};
use crate::runs::Outer;
use bilevel::{Array, Cpu, DType, Error, Estimator, Key, Method, Recorder, Result, Session, Variable};

/// All is computed in 32-bit floats.
const DTYPE: DType = DType::F32;
/// λ before the first step.
const START: f64 = -5.0;
/// e^−15 is no penalty to speak of. At e^−1 a penalty adds .74 to a curvature of 1.23 or less, and γ times the sum is still
/// below 2.
const BOUNDS: (f64, f64) = (-15.0, -1.0);

/// A split, its problem on one thread, and the inner step all methods take on it.
pub(super) struct Ground {
    pub split: Split,
    problem: PerWeightL2,
    pub session: Session,
    /// γ = 1 / (largest curvature of the training loss at weights 0). In training that curvature rises by a fifth within
    /// a few steps and then falls, so γ times it stays well below 2.
    pub step: f64,
}

impl Ground {
    pub fn new(seed: u64) -> Result<Self> {
        let split = Split::new(seed);
        let log_strength = Variable::constant(SHAPE, START).at_least(BOUNDS.0).at_most(BOUNDS.1);
        let problem = per_weight_l2(&split, DTYPE, log_strength)?;
        let session = Session::new(&problem, &Cpu::with_threads(1))?;
        Ok(Ground { step: 1.0 / largest_curvature(&split.train), problem, session, split })
    }

    /// The weights after plain training with one penalty for all.
    pub fn train(&self, log_strength: f64, steps: usize) -> Result<Array> {
        let lambda = Penalty { log_strength: Array::full(SHAPE, log_strength, DTYPE) };
        let training = self.problem.train(&lambda).step(self.step).steps(steps).executor(Cpu::with_threads(1));
        Ok(training.run()?.theta.weights)
    }

    /// Scores of these weights on the validation and the test digits.
    pub fn scores(&self, weights: &Array) -> [Score; 2] {
        [self.split.validation.score(weights), self.split.test.score(weights)]
    }
}

/// What one hypergradient of a method is like.
pub(super) enum Probe {
    Runs {
        method: Prepared,
        /// The price of one hypergradient.
        price: f64,
    },
    /// The library's reason.
    DoesNotApply(String),
}

pub(super) fn probe(ground: &Ground, method: &dyn Method, passes: Passes) -> Result<Probe> {
    let mut method = match Prepared::new(method, &ground.session) {
        Ok(method) => method,
        Err(error @ Error::NotApplicable { .. }) => return Ok(Probe::DoesNotApply(error.to_string())),
        Err(other) => return Err(other),
    };
    let key = Key::from_seed(0);
    let found = method.estimate(&mut ground.session.state(key)?, key)?;
    Ok(Probe::Runs { method, price: price(found.oracles, passes) })
}

/// Where a run ended.
pub(super) struct Run {
    /// Nothing where it diverged.
    pub scores: Option<[Score; 2]>,
    /// Validation loss over the price paid.
    pub curve: Vec<(f64, f64)>,
}

/// As many outer iterations of plain descent as the budget pays for.
pub(super) fn run(ground: &Ground, method: &Prepared, passes: Passes, outer: Outer) -> Result<Run> {
    let recorder = Recorder::new();
    let outcome = outer.driver(&ground.problem, method, 1).observe(recorder.clone()).run()?;
    let scores = match outcome.reason.is_failure() {
        true => None,
        false => Some(ground.scores(&outcome.theta.weights)),
    };
    let curve = recorder.iterations().iter().map(|i| (price(i.oracles, passes), i.outer_loss)).collect();
    Ok(Run { scores, curve })
}

/// The settings a method runs with.
pub(super) struct Choice {
    /// Number of the variant.
    pub variant: usize,
    pub outer: Outer,
    /// The price of one hypergradient.
    pub price: f64,
}

/// The variant and rate with the least validation loss on this split. Variants whose hypergradient the budget cannot pay are
/// left out; nothing where all are, or where all diverge.
pub(super) fn choose(ground: &Ground, candidate: &Candidate, rates: &[f64], budget: f64) -> Result<Option<Choice>> {
    let mut best: Option<(f64, Choice)> = None;
    for (number, Variant { method, .. }) in candidate.variants.iter().enumerate() {
        let Probe::Runs { method, price } = probe(ground, &**method, candidate.passes)? else { continue };
        let iterations = (budget / price) as u32;
        if iterations == 0 {
            continue;
        }
        for &rate in rates {
            let outer = Outer { rate, iterations };
            let Some([validation, _]) = run(ground, &method, candidate.passes, outer)?.scores else { continue };
            if best.as_ref().is_none_or(|(loss, _)| validation.loss < *loss) {
                best = Some((validation.loss, Choice { variant: number, outer, price }));
            }
        }
    }
    Ok(best.map(|(_, choice)| choice))
}
