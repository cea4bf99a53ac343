//! What is measured: trainings with a given loss, λ learned by a method, and TaylorGLO's search.

use crate::cma_es::CmaEs;
use crate::kept::Kept;
use crate::price::{Passes, price};
use crate::studies::deep::{OuterLoop, Ran, milliseconds, precision_on};
use crate::tasks::LearnedLoss;
use crate::tasks::learned_loss::{COEFFICIENTS, MEASURES};
use crate::{Context, Device, Measure, Place, Settings, Task};
use bilevel::{Array, DType, Evaluator, InnerLoop, Iteration, Key, Problem, Result, Session, State, Trainer, Tree};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

/// The coefficients of a loss.
pub(super) type Coefficients = [f64; COEFFICIENTS];

/// What a training came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Scores {
    /// Cross entropy of the validation pictures.
    pub validation_loss: f64,
    /// In percent.
    pub validation: f64,
    /// In percent.
    pub test: f64,
}

impl Scores {
    /// Those among measures; none where one is missing or is no number.
    fn of(measure: impl Fn(&str) -> Option<f64>) -> Option<Self> {
        let [loss, validation, test] = MEASURES.map(|name| measure(name).filter(|value| value.is_finite()));
        Some(Scores { validation_loss: loss?, validation: validation?, test: test? })
    }

    fn at(evaluator: &mut Evaluator, state: &State, key: Key) -> Result<Option<Self>> {
        let names = evaluator.names().to_vec();
        let numbers = evaluator.at(state, key)?;
        Ok(Self::of(|name| numbers.get(names.iter().position(|known| known == name)?).copied()))
    }
}

/// What a measurement begins with.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setup {
    pub task: LearnedLoss,
    pub seed: u64,
    pub device: Device,
}

impl Setup {
    /// The problem; the last two are kept, as many measurements begin with the same.
    fn problem(&self, place: &Place) -> Result<Arc<Problem>> {
        static LAST: Kept<Problem> = Kept::new(2);
        let context = Context { seed: self.seed, data: place.data.clone(), dtype: DType::F32 };
        let name = json!([self, context.data]).to_string();
        LAST.get(name, || self.task.build(&context)?.in_precision(precision_on(self.device)))
    }
}

/// A network retrained with a loss that stays as it is.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Training {
    pub setup: Setup,
    /// The loss; where there is none, the one that λ starts from, or cross entropy for a task that is plain.
    pub coefficients: Option<Coefficients>,
    /// Steps from one look to the next.
    pub steps: usize,
    /// Looks.
    pub looks: usize,
}

impl Measure for Training {
    /// Steps done and scores, look by look; it ends where training diverges.
    type Found = Vec<(usize, Scores)>;

    fn take(&self, place: &Place) -> Result<Self::Found> {
        let problem = self.setup.problem(place)?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let mut trainer = Trainer::new(&session, InnerLoop::new(self.setup.task.step, self.steps, 0.0, 1.0)?)?;
        let mut evaluator = session.evaluator()?;
        let key = Key::from_seed(self.setup.seed);
        let state = session.state(key)?;
        if let Some(coefficients) = &self.coefficients {
            write(&state, coefficients)?;
        }
        let mut found = vec![];
        for look in 1..=self.looks {
            trainer.train(&state, key.fold_in(look as u32))?;
            let Some(scores) = Scores::at(&mut evaluator, &state, key)? else { break };
            found.push((look * self.steps, scores));
            (place.progress)(look as f64 / self.looks as f64);
        }
        Ok(found)
    }
}

/// Sets λ.
fn write(state: &State, coefficients: &Coefficients) -> Result<()> {
    state.lambda.write(&[Array::from_f32([COEFFICIENTS], coefficients.iter().map(|c| *c as f32).collect())?])
}

/// λ learned by a method while the network is trained.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Learning {
    pub setup: Setup,
    pub method: Settings,
    /// What moves λ.
    pub optimizer: Settings,
    pub rate: f64,
    pub iterations: u32,
    /// The network starts from scratch in every iteration.
    pub cold: bool,
    /// How often scores are looked at.
    pub looks: u32,
}

/// What a method found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Learned {
    /// At the end; nothing where it diverged.
    pub scores: Option<Scores>,
    /// On the way, by iteration.
    pub way: Vec<(u32, Scores)>,
    /// The last good λ.
    pub coefficients: Vec<f64>,
    /// Why it ended, where it diverged.
    pub diverged: Option<String>,
    /// What it cost, in gradients.
    pub price: f64,
    /// Median time of an iteration.
    pub milliseconds: Option<f64>,
}

impl Learned {
    /// By a method that cannot work here, for this reason.
    fn refused(why: String) -> Self {
        let diverged = Some(why);
        Learned { scores: None, way: vec![], coefficients: vec![], diverged, price: 0.0, milliseconds: None }
    }

    /// The loss it found, where it did not diverge.
    pub fn loss(&self) -> Option<Coefficients> {
        Coefficients::try_from(&self.coefficients[..]).ok().filter(|_| self.diverged.is_none())
    }
}

impl Measure for Learning {
    type Found = Learned;

    fn take(&self, place: &Place) -> Result<Learned> {
        let problem = self.setup.problem(place)?;
        let outer = OuterLoop {
            method: &self.method,
            optimizer: &self.optimizer,
            rate: self.rate,
            iterations: self.iterations,
            looks: self.looks,
            cold: self.cold,
            seed: self.setup.seed,
            theta: None,
        };
        let (outcome, seen, diverged) = match outer.run(&problem, place)? {
            Ran::Over { outcome, iterations, diverged } => (outcome, iterations, diverged),
            Ran::Refused(why) => return Ok(Learned::refused(why)),
        };
        let scores = |iteration: &Iteration| Scores::of(|name| iteration.measures.get(name));
        Ok(Learned {
            scores: Scores::of(|name| outcome.measures.get(name)).filter(|_| diverged.is_none()),
            way: seen.iter().filter_map(|iteration| Some((iteration.number, scores(iteration)?))).collect(),
            coefficients: outcome.lambda.leaves().first().map_or(vec![], |leaf| leaf.to_f64()),
            diverged,
            price: price(outcome.oracles, Passes::of(self.method.name())),
            milliseconds: milliseconds(&seen),
        })
    }
}

/// TaylorGLO: CMA-ES over short trainings, judged by their validation error.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Search {
    pub setup: Setup,
    pub population: usize,
    pub generations: usize,
    /// Steps of a training.
    pub steps: usize,
}

/// What the search found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Searched {
    /// The best loss of all that were tried.
    pub coefficients: Coefficients,
    /// Its validation error after a short training, in percent.
    pub validation: f64,
    /// The least validation error of each generation.
    pub way: Vec<f64>,
}

impl Measure for Search {
    type Found = Searched;

    fn take(&self, place: &Place) -> Result<Searched> {
        let Search { setup, population, generations, steps } = self;
        let problem = setup.problem(place)?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let mut trainer = Trainer::new(&session, InnerLoop::new(setup.task.step, *steps, 0.0, 1.0)?)?;
        let mut evaluator = session.evaluator()?;
        let key = Key::from_seed(setup.seed);
        let first = setup.task.first.coefficients(setup.task.classes());
        // Coefficients of different sizes are searched on their own scales.
        let scale = first.map(|coefficient| coefficient.abs().max(1.0));
        let scaled = |point: &[f64]| -> Coefficients { std::array::from_fn(|i| first[i] + scale[i] * point[i]) };
        let mut search = CmaEs::new(vec![0.0; COEFFICIENTS], 0.3, *population, setup.seed);
        let (mut best, mut way) = ((first, f64::INFINITY), vec![]);
        for generation in 0..*generations {
            let points = search.ask();
            let mut errors = vec![];
            for point in &points {
                let coefficients = scaled(point);
                let state = session.state(key)?;
                write(&state, &coefficients)?;
                trainer.train(&state, key)?;
                // One that diverges is as bad as can be.
                let error = Scores::at(&mut evaluator, &state, key)?.map_or(100.0, |scores| scores.validation);
                if error < best.1 {
                    best = (coefficients, error);
                }
                errors.push(error);
            }
            way.push(errors.iter().copied().fold(f64::INFINITY, f64::min));
            search.tell(&points, &errors);
            (place.progress)((generation + 1) as f64 / *generations as f64);
        }
        Ok(Searched { coefficients: best.0, validation: best.1, way })
    }
}
