//! What is measured: plain trainings, λ learned by a method, and the time of an outer iteration.

use crate::kept::Kept;
use crate::price::{Passes, price};
use crate::statistics::median;
use crate::studies::deep::{OuterLoop, Ran, STEPS, milliseconds, precision_on, sgd};
use crate::tasks::L1Regularisation;
use crate::tasks::l1_regularisation::{Granularity, LayerPenalties, MEASURES, layers};
use crate::{Context, Device, LambdaLeaf, Measure, Place, Settings};
use bilevel::{Array, DType, Error, InnerLoop, Key, Measures, Method, Named, Problem, Result, Session, Trainer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

/// Errors on the four parts of the pictures, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Errors {
    pub train: f64,
    pub validation: f64,
    /// On pictures no loss sees.
    pub second: f64,
    pub test: f64,
}

impl Errors {
    /// Those among measures; none where one is missing or is no number.
    fn of(measure: impl Fn(&str) -> Option<f64>) -> Option<Self> {
        let [train, validation, second, test] = MEASURES.map(|name| measure(name).filter(|error| error.is_finite()));
        Some(Errors { train: train?, validation: validation?, second: second?, test: test? })
    }

    fn among(measures: &Measures) -> Option<Self> {
        Self::of(|name| measures.get(name))
    }
}

/// What a measurement begins with: a network, warmed up on the pictures of a seed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setup {
    pub task: L1Regularisation,
    pub seed: u64,
    pub device: Device,
}

/// A problem, and the θ to start from.
type Warm = (Problem, Named<Array>);

impl Setup {
    /// The problem with its warm-up behind it. The last problem and the last few warm-ups are kept, as many measurements begin
    /// with the same.
    fn warm(&self, place: &Place) -> Result<Arc<Warm>> {
        static PROBLEM: Kept<Warm> = Kept::new(1);
        static THETA: Kept<Named<Array>> = Kept::new(4);
        let context = Context { seed: self.seed, data: place.data.clone(), dtype: DType::F32 };
        let key = |task: &L1Regularisation| json!([task, self.seed, self.device, context.data]).to_string();
        PROBLEM.get(key(&self.task), || {
            let plain = L1Regularisation {
                granularity: Granularity::One,
                start: 0.0,
                train_on_validation: false,
                ..self.task.clone()
            };
            let theta = THETA.get(key(&plain), || {
                plain.warmed_up(&context, precision_on(self.device), &place.executor, &place.signal)
            })?;
            let problem = self.task.problem_from(&theta, &context)?.in_precision(precision_on(self.device))?;
            Ok((problem, (*theta).clone()))
        })
    }
}

/// Plain trainings from the warm-up on, with a penalty that all weights share.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Plain {
    pub setup: Setup,
    /// The penalties.
    pub shared: Vec<f64>,
    /// Gradient steps of each training.
    pub steps: usize,
}

/// What plain trainings came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PlainErrors {
    /// After the warm-up.
    pub warm: Option<Errors>,
    /// After training with each penalty; nothing where it diverged.
    pub shared: Vec<(f64, Option<Errors>)>,
}

impl Measure for Plain {
    type Found = PlainErrors;

    fn take(&self, place: &Place) -> Result<PlainErrors> {
        let mut setup = self.setup.clone();
        setup.task.granularity = Granularity::One;
        let warm = setup.warm(place)?;
        let (problem, theta) = &*warm;
        let session = Session::new(problem, &place.executor)?.stopped_by(place.signal.clone());
        let mut trainer = Trainer::new(&session, InnerLoop::new(setup.task.step, self.steps, 0.0, 1.0)?)?;
        let mut evaluator = session.evaluator()?;
        let names = evaluator.names().to_vec();
        let key = Key::from_seed(setup.seed);
        let mut train = |penalty: Option<f64>| -> Result<Option<Errors>> {
            let lambda = Array::full([], penalty.unwrap_or(0.0), DType::F32);
            let lambda = [("all".to_string(), lambda)].into_iter().collect();
            let state = problem.state_at(&lambda, theta, &place.executor)?;
            if penalty.is_some() {
                trainer.train(&state, key)?;
            }
            let numbers = evaluator.at(&state, key)?;
            let measure = |name: &str| numbers.get(names.iter().position(|known| known == name)?).copied();
            // An error can be read off logits that are no numbers; the loss cannot.
            Ok(Errors::of(measure).filter(|_| numbers[0].is_finite()))
        };
        let warm = train(None)?;
        let mut shared = vec![];
        for (done, penalty) in self.shared.iter().enumerate() {
            shared.push((*penalty, train(Some(*penalty))?));
            (place.progress)((done + 1) as f64 / self.shared.len() as f64);
        }
        Ok(PlainErrors { warm, shared })
    }
}

/// λ learned by a method, from the warm-up on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Learning {
    pub setup: Setup,
    pub method: Settings,
    /// Outer rate.
    pub rate: f64,
    pub iterations: u32,
    /// How often errors are looked at on the way.
    pub looks: u32,
    /// Whether to retrain from the warm-up with λ as it was found, on training pictures alone.
    pub retrain: bool,
}

/// What a method found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Learned {
    /// At the end of the run; nothing where it diverged.
    pub errors: Option<Errors>,
    /// On the way, by iteration.
    pub way: Vec<(u32, Errors)>,
    /// After retraining with λ.
    pub retrained: Option<Errors>,
    /// Iterations done.
    pub iterations: u32,
    /// Why it ended, where it diverged.
    pub diverged: Option<String>,
    /// What it cost, in gradients.
    pub price: f64,
    /// Median time of an iteration, in milliseconds.
    pub milliseconds: Option<f64>,
    /// λ by layer.
    pub layers: Vec<LayerPenalties>,
    /// The share of weights that their penalty holds at 0, |θ| ≤ γλ, in percent; nothing where λ is not by weight.
    pub held: Option<f64>,
}

impl Learned {
    /// By a method that cannot work here, for this reason.
    fn refused(why: String) -> Self {
        Learned {
            errors: None,
            way: vec![],
            retrained: None,
            iterations: 0,
            diverged: Some(why),
            price: 0.0,
            milliseconds: None,
            layers: vec![],
            held: None,
        }
    }
}

impl Measure for Learning {
    type Found = Learned;

    fn take(&self, place: &Place) -> Result<Learned> {
        let warm = self.setup.warm(place)?;
        let (problem, theta) = &*warm;
        let task = &self.setup.task;
        let outer = OuterLoop {
            method: &self.method,
            optimizer: &sgd(),
            rate: self.rate,
            iterations: self.iterations,
            looks: self.looks,
            cold: false,
            seed: self.setup.seed,
            theta: Some(theta),
        };
        let (outcome, iterations, diverged) = match outer.run(problem, place)? {
            Ran::Over { outcome, iterations, diverged } => (outcome, iterations, diverged),
            Ran::Refused(why) => return Ok(Learned::refused(why)),
        };
        let way: Vec<(u32, Errors)> = iterations
            .iter()
            .filter_map(|iteration| Some((iteration.number, Errors::among(&iteration.measures)?)))
            .collect();
        let retrained = match self.retrain && diverged.is_none() {
            true => {
                let training = problem.train(&outcome.lambda).theta(theta).step(task.step);
                let training = training.steps(STEPS * self.iterations as usize).seed(self.setup.seed);
                let trained = training.executor(place.executor.clone()).stop_signal(place.signal.clone()).run();
                match trained {
                    Ok(trained) => Errors::of(|name| trained.measures.get(name).copied()),
                    Err(Error::Diverged { .. }) => None,
                    Err(other) => return Err(other),
                }
            }
            false => None,
        };
        Ok(Learned {
            errors: Errors::among(&outcome.measures).filter(|_| diverged.is_none()),
            way,
            retrained,
            iterations: outcome.iterations,
            diverged,
            price: price(outcome.oracles, Passes::of(self.method.name())),
            milliseconds: milliseconds(&iterations),
            layers: layers(&LambdaLeaf::all(&outcome.lambda)),
            held: (task.granularity == Granularity::Weight).then(|| held(&outcome.lambda, &outcome.theta, task.step)),
        })
    }
}

/// The share of weights with |θ| ≤ γλ, which the penalty alone would bring across 0 in one step, in percent.
fn held(lambda: &Named<Array>, theta: &Named<Array>, step: f64) -> f64 {
    let (mut held, mut all) = (0, 0);
    for (name, penalties) in lambda.iter() {
        let Some(weights) = theta.get(name) else { continue };
        let pairs = penalties.to_f64().into_iter().zip(weights.to_f64());
        held += pairs.filter(|(penalty, weight)| *penalty > 0.0 && weight.abs() <= step * penalty).count();
        all += penalties.len();
    }
    100.0 * held as f64 / all.max(1) as f64
}

/// The time of an outer iteration of several methods.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Clock {
    pub setup: Setup,
    /// Each with its name.
    pub methods: Vec<(String, Settings)>,
    /// Iterations that are timed, after two that are not.
    pub rounds: u32,
}

impl Measure for Clock {
    /// Medians in milliseconds, by name.
    type Found = Vec<(String, f64)>;

    fn take(&self, place: &Place) -> Result<Self::Found> {
        let warm = self.setup.warm(place)?;
        let session = Session::new(&warm.0, &place.executor)?.stopped_by(place.signal.clone());
        let mut found = vec![];
        for (name, method) in &self.methods {
            let mut estimator = place.registry.read_method(method)?.compile(&session)?;
            let mut state = session.state(Key::from_seed(self.setup.seed))?;
            let mut times = vec![];
            for round in 0..self.rounds + 2 {
                let began = Instant::now();
                estimator.estimate(&mut state, Key::from_seed(u64::from(round)))?;
                times.push(1e3 * began.elapsed().as_secs_f64());
            }
            found.push((name.clone(), median(&times[2..])));
            (place.progress)(found.len() as f64 / self.methods.len() as f64);
        }
        Ok(found)
    }
}
