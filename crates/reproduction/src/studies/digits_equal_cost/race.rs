//! One run of one method within the budget, and the choice of its settings.

use super::candidates::{Choices, Variant, candidates};
use crate::prepared::Prepared;
use bilevel::observers::Recorder;
use bilevel::{Array, Error, Estimator, Key, Method, Problem, Result, Session, Tree};
use bilevel_run::price::{Passes, price};
use bilevel_run::{Config, Measure, Place, Recipe};
use bilevel_tasks::digits::{PerWeightL2, SHAPE, Score, Split};
use bilevel_tasks::{DigitsL2, trained};
use serde::{Deserialize, Serialize};

/// λ is between e^−15, a negligible penalty, and e^−1. There a penalty adds 0.74 to a curvature of 1.23 or less, and γ
/// times the sum is still below 2.
pub(super) fn task() -> DigitsL2 {
    DigitsL2 { start: -5.0, lowest: -15.0, highest: -1.0, ..DigitsL2::default() }
}

/// A split, its problem, and the inner step all methods take on it.
pub(super) struct Ground<'a> {
    place: &'a Place<'a>,
    config: Config,
    split: Split,
    typed: PerWeightL2,
    problem: Problem,
    session: Session,
}

/// γ on the split of a seed.
pub(super) fn step(seed: u64) -> f64 {
    DigitsL2::safe_step(&task().split(seed))
}

impl<'a> Ground<'a> {
    pub fn new(config: &Config, place: &'a Place<'a>) -> Result<Self> {
        let split = task().split(config.seed);
        let typed = task().typed(&split, config.dtype)?;
        let problem = typed.clone().erase();
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        Ok(Ground { place, config: config.clone(), split, typed, problem, session })
    }

    /// The weights after plain training with one penalty for all.
    pub fn train(&self, log_strength: f64, steps: usize) -> Result<Array> {
        let penalties = Array::full(SHAPE, log_strength, self.config.dtype);
        let steps = (DigitsL2::safe_step(&self.split), steps);
        trained(&self.typed, penalties, steps, self.place.executor.clone(), &self.place.signal)
    }

    /// Scores of these weights on the validation and the test digits.
    pub fn scores(&self, weights: &Array) -> [Score; 2] {
        [self.split.validation.score(weights), self.split.test.score(weights)]
    }

    fn prepared(&self, Recipe { method, inner }: &Recipe) -> Result<Prepared> {
        Prepared::new(&*self.place.registry.read_method(method)?, inner, &self.session)
    }

    /// The method and the cost of one hypergradient; the library's reason if it does not apply.
    fn probe(&self, recipe: &Recipe, passes: Passes) -> Result<std::result::Result<(Prepared, f64), String>> {
        let mut method = match self.prepared(recipe) {
            Ok(method) => method,
            Err(error @ Error::NotApplicable { .. }) => return Ok(Err(error.to_string())),
            Err(other) => return Err(other),
        };
        let key = Key::from_seed(0);
        let found = method.estimate(&mut self.session.state(key)?, key, recipe.inner.step)?;
        Ok(Ok((method, price(found.oracles, passes))))
    }

    /// A run of plain descent.
    fn run(&self, method: Prepared, passes: Passes, (rate, iterations): (f64, u32)) -> Result<Run> {
        let mut config = Config { inner: method.usual_loop(), ..self.config.clone() };
        (config.outer.rate, config.outer.iterations) = (rate, iterations);
        let recorder = Recorder::new();
        let executor = self.place.boxed_executor();
        let driver = config.driver_by(method, self.place.registry, &self.problem, executor)?;
        let outcome = driver.stop_signal(self.place.signal.clone()).observe(recorder.clone()).run()?;
        let scores = match outcome.reason.is_failure() {
            true => None,
            false => Some(self.scores(&outcome.theta.leaves()[0].clone())),
        };
        let point = |i: &bilevel::observers::Iteration| (price(i.oracles, passes), i.outer_loss);
        let curve = recorder.iterations().iter().map(point).filter(|(_, loss)| loss.is_finite()).collect();
        Ok(Run { scores, curve })
    }
}

/// The end of a run.
#[derive(Serialize, Deserialize)]
pub(super) struct Run {
    /// `None` if it diverged.
    pub scores: Option<[Score; 2]>,
    /// Validation loss over the price paid.
    pub curve: Vec<(f64, f64)>,
}

/// The settings a method runs with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Choice {
    /// Number of the variant.
    pub variant: usize,
    pub rate: f64,
    pub iterations: u32,
    /// The price of one hypergradient.
    pub price: f64,
}

/// The result of choosing.
#[derive(Serialize, Deserialize)]
pub(super) enum Chosen {
    Choice(Choice),
    /// With the reason.
    NotRun(String),
}

/// The choice of variant and rate with the least validation loss on one split. Variants whose hypergradient the budget cannot pay
/// are left out.
#[derive(Serialize)]
pub(super) struct Tuning {
    pub config: Config,
    pub candidate: usize,
    pub choices: Choices,
    pub rates: Vec<f64>,
    pub budget: f64,
}

impl Measure for Tuning {
    type Found = Chosen;

    fn take(&self, place: &Place) -> Result<Chosen> {
        let ground = Ground::new(&self.config, place)?;
        let candidate = candidates(step(self.config.seed), &self.choices).swap_remove(self.candidate);
        match ground.probe(&candidate.variants[0].method, candidate.passes)? {
            Err(why) => return Ok(Chosen::NotRun(why)),
            Ok((_, price)) if price > self.budget => {
                let why =
                    format!("one hypergradient costs {price} gradients, which exceeds the budget of {}", self.budget);
                return Ok(Chosen::NotRun(why));
            }
            Ok(_) => {}
        }
        let mut best: Option<(f64, Choice)> = None;
        for (number, Variant { method, .. }) in candidate.variants.iter().enumerate() {
            let Ok((method, price)) = ground.probe(method, candidate.passes)? else { continue };
            let iterations = (self.budget / price) as u32;
            if iterations == 0 {
                continue;
            }
            for &rate in &self.rates {
                let run = ground.run(method.clone(), candidate.passes, (rate, iterations))?;
                let Some([validation, _]) = run.scores else { continue };
                if best.as_ref().is_none_or(|(loss, _)| validation.loss < *loss) {
                    best = Some((validation.loss, Choice { variant: number, rate, iterations, price }));
                }
            }
            (place.progress)((number + 1) as f64 / candidate.variants.len() as f64);
        }
        Ok(best.map_or(Chosen::NotRun("every rate of the grid diverges".into()), |(_, choice)| Chosen::Choice(choice)))
    }
}

/// A method with the settings chosen for it, on another split.
#[derive(Serialize)]
pub(super) struct Race {
    pub config: Config,
    pub candidate: usize,
    pub choices: Choices,
    pub choice: Choice,
}

impl Measure for Race {
    type Found = Run;

    fn take(&self, place: &Place) -> Result<Run> {
        let ground = Ground::new(&self.config, place)?;
        // γ belongs to the split, so the method is made again.
        let candidate = candidates(step(self.config.seed), &self.choices).swap_remove(self.candidate);
        let method = ground.prepared(&candidate.variants[self.choice.variant].method)?;
        ground.run(method, candidate.passes, (self.choice.rate, self.choice.iterations))
    }
}
