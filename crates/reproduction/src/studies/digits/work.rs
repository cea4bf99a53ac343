//! The measurements: classifiers trained with given penalties, the search for the best shared one, and the price of a
//! hypergradient.

use super::METHODS;
use bilevel::methods::{AnyMethod, Evidence};
use bilevel::optimizers::Adam;
use bilevel::{Array, DType, Driver, Key, Method, Result, Session, Tree};
use bilevel_run::price::price;
use bilevel_run::{Config, Context, Measure, Place, Recipe, Task};
use bilevel_tasks::digits::{Digits, SHAPE, Score, Split};
use bilevel_tasks::{DigitsL2, trained};
use serde::{Deserialize, Serialize};

/// How well a classifier does on the three parts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// On the digits it was trained on.
    pub train: Score,
    /// On those λ was chosen by.
    pub validation: Score,
    /// The score on unseen digits.
    pub test: Score,
}

/// A classifier trained from weights 0 on one split.
#[derive(Clone, Debug, Serialize)]
pub struct Training {
    /// Which digits.
    pub task: DigitsL2,
    /// The seed of the split.
    pub split: u64,
    /// Logarithms of the penalties: one for all weights, or one for each.
    pub penalties: Vec<f64>,
    /// Gradient steps.
    pub steps: usize,
    /// Train on the validation digits too.
    pub both: bool,
}

impl Training {
    fn split(&self) -> Split {
        let split = self.task.split(self.split);
        if !self.both {
            return split;
        }
        let Digits { mut pixels, mut labels } = split.train;
        pixels.extend_from_slice(&split.validation.pixels);
        labels.extend_from_slice(&split.validation.labels);
        Split { train: Digits { pixels, labels }, ..split }
    }
}

impl Measure for Training {
    type Found = Scores;

    fn take(&self, place: &Place) -> Result<Scores> {
        let split = self.split();
        let problem = self.task.typed(&split, DType::F32)?;
        let penalties = match &self.penalties[..] {
            [shared] => Array::full(SHAPE, *shared, DType::F32),
            each => Array::from_f32(SHAPE, each.iter().map(|value| *value as f32).collect())?,
        };
        // The step of the training digits alone, for any training data.
        let steps = (DigitsL2::safe_step(&self.task.split(self.split)), self.steps);
        let weights = trained(&problem, penalties, steps, place.executor.clone(), &place.signal)?;
        let [train, validation, test] = [&split.train, &split.validation, &split.test].map(|part| part.score(&weights));
        Ok(Scores { train, validation, test })
    }
}

/// The best shared penalty of a grid.
#[derive(Clone, Debug, Serialize)]
pub struct Search {
    /// All but the penalties.
    pub training: Training,
    /// Logarithms of the penalties that are tried.
    pub grid: Vec<f64>,
}

impl Measure for Search {
    /// The best by the validation loss, and its classifier's scores.
    type Found = (f64, Scores);

    fn take(&self, place: &Place) -> Result<Self::Found> {
        let mut best: Option<(f64, Scores)> = None;
        for (done, &log_strength) in self.grid.iter().enumerate() {
            let training = Training { penalties: vec![log_strength], ..self.training.clone() };
            let scores = training.take(place)?;
            if best.is_none_or(|(_, least)| scores.validation.loss < least.validation.loss) {
                best = Some((log_strength, scores));
            }
            (place.progress)((done + 1) as f64 / self.grid.len() as f64);
        }
        best.ok_or_else(|| bilevel::Error::other("the grid of shared penalties is empty"))
    }
}

/// The cost of one hypergradient of each method, in gradients.
#[derive(Clone, Debug, Serialize)]
pub struct Prices {
    /// A run of any method.
    pub config: Config,
    /// Inner steps of a hypergradient.
    pub inner_steps: usize,
}

impl Measure for Prices {
    type Found = Vec<f64>;

    fn take(&self, place: &Place) -> Result<Vec<f64>> {
        let problem = self.config.problem(place.registry)?;
        let session = Session::new(&problem, &place.executor)?;
        let key = Key::from_seed(0);
        let one = |setting: &super::Setting| {
            let Recipe { method, inner } = setting.method(0.1, self.inner_steps);
            let mut estimator = place.registry.read_method(&method)?.compile(&session, &inner)?;
            let found = estimator.estimate(&mut session.state(key)?, key, inner.step)?;
            Ok(price(found.oracles, setting.passes()))
        };
        METHODS.iter().map(one).collect()
    }
}

/// Penalties that the evidence finds on all labelled digits, and a classifier trained with them on these digits.
#[derive(Clone, Debug, Serialize)]
pub struct ByEvidence {
    /// The training without the penalties; its task has their start.
    pub training: Training,
    /// Outer iterations.
    pub iterations: u32,
    /// The rate of λ, by Adam.
    pub rate: f64,
}

impl Measure for ByEvidence {
    type Found = Scores;

    fn take(&self, place: &Place) -> Result<Scores> {
        let Training { task, split, .. } = &self.training;
        let context = Context { seed: *split, dtype: DType::F32, evidence: true, ..Context::default() };
        let problem = Task::build(task, &context)?;
        let (mut method, mut inner) = (AnyMethod::Evidence(Evidence::default()), Task::defaults(task).inner);
        task.tune(&mut method, &mut inner);
        let driver = Driver::new(&problem, method).inner(inner).executor(place.executor.clone()).seed(*split);
        let driver = driver.optimizer(Adam::default()).rate(self.rate).iterations(self.iterations).diagnose_every(0);
        let found = driver.stop_signal(place.signal.clone()).run()?;
        let penalties = found.lambda.leaves().into_iter().flat_map(Array::to_f64).collect();
        Training { penalties, both: true, ..self.training.clone() }.take(place)
    }
}
