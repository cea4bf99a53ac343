//! TaylorGLO: CMA-ES over the coefficients of a loss, each judged by the validation error of a short training.
//!
//! The values told to the search are kept after every generation, so that an interrupted search continues with the same
//! draws.

use crate::cma_es::CmaEs;
use crate::studies::deep::precision_on;
use bilevel::files::whole_file::{read_regular, write_whole};
use bilevel::training::{Evaluator, Trainer};
use bilevel::{Array, DType, Error, InnerLoop, Key, Named, Result, Session, State};
use bilevel_run::manifest::Taken;
use bilevel_run::{Config, Context, Device, Measure, Place, Task};
use bilevel_tasks::LearnedLoss;
use bilevel_tasks::learned_loss::{COEFFICIENTS, MEASURES};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// The coefficients of a loss.
type Coefficients = [f64; COEFFICIENTS];

/// By which a loss is judged.
const ERROR: &str = MEASURES[1];
/// The error of a loss whose training diverges, in percent: as bad as can be.
const WORST: f64 = 100.0;

/// A search.
#[derive(Clone, Debug, Serialize)]
pub struct TaylorGlo {
    task: LearnedLoss,
    step: f64,
    seed: u64,
    device: Device,
    population: usize,
    generations: usize,
    /// Steps of a training.
    steps: usize,
}

/// The state of an unfinished search.
#[derive(Serialize, Deserialize)]
struct Partial {
    /// The identity of the search.
    of: Value,
    /// The errors of each generation.
    errors: Vec<Vec<f64>>,
}

impl TaylorGlo {
    /// On the task of a configuration.
    pub fn of(config: &Config, with: &Map<String, Value>) -> Result<Self> {
        let whole = |name: &'static str| {
            let given = with.get(name).and_then(Value::as_u64).filter(|count| *count > 0);
            given.map(|count| count as usize).ok_or_else(|| Error::setting(name, 0.0, "at least 1"))
        };
        Ok(TaylorGlo {
            task: config.task.read()?,
            step: config.inner.step,
            seed: config.seed,
            device: config.device,
            population: whole("population")?,
            generations: whole("generations")?,
            steps: whole("steps")?,
        })
    }

    fn partial_file(place: &Place) -> Option<PathBuf> {
        (!place.folder.as_os_str().is_empty()).then(|| place.folder.join("partial.json"))
    }

    /// The errors of the generations that are done.
    fn resumed(&self, place: &Place) -> Vec<Vec<f64>> {
        let read =
            || -> Option<Partial> { serde_json::from_slice(&read_regular(&Self::partial_file(place)?).ok()?).ok() };
        read().filter(|partial| partial.of == json!(self)).map_or(vec![], |partial| partial.errors)
    }

    fn keep(&self, place: &Place, errors: &[Vec<f64>]) -> Result<()> {
        let Some(path) = Self::partial_file(place) else { return Ok(()) };
        let text = json!(Partial { of: json!(self), errors: errors.to_vec() }).to_string();
        std::fs::create_dir_all(&place.folder).and_then(|()| write_whole(&path, text.as_bytes())).map_err(Error::other)
    }
}

/// The validation error of the network that is in the state; nothing if it is no number.
fn error_at(evaluator: &mut Evaluator, state: &State, key: Key) -> Result<Option<f64>> {
    let at = evaluator.names().iter().position(|name| name == ERROR);
    let numbers = evaluator.at(state, key)?;
    Ok(at.and_then(|at| numbers.get(at).copied()).filter(|error| error.is_finite()))
}

impl Measure for TaylorGlo {
    type Found = Taken;

    fn take(&self, place: &Place) -> Result<Taken> {
        let TaylorGlo { task, population, generations, steps, .. } = self;
        let context = Context { seed: self.seed, data: place.data.clone(), dtype: DType::F32, ..Context::default() };
        let problem = task.build(&context)?.in_precision(precision_on(self.device))?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let mut trainer = Trainer::new(&session, InnerLoop::new(self.step, *steps))?;
        let mut evaluator = session.evaluator()?;
        let key = Key::from_seed(self.seed);
        let first = task.first.coefficients(task.classes());
        // Coefficients of different sizes are searched on their own scales.
        let scale = first.map(|coefficient| coefficient.abs().max(1.0));
        let scaled = |point: &[f64]| -> Coefficients { std::array::from_fn(|i| first[i] + scale[i] * point[i]) };
        let mut search = CmaEs::new(vec![0.0; COEFFICIENTS], 0.3, *population, self.seed);
        let (mut told, mut best) = (self.resumed(place), (first, f64::INFINITY));
        for generation in 0..*generations {
            let points = search.ask();
            if told.len() == generation {
                let mut errors = vec![];
                for point in &points {
                    let state = session.state(key)?;
                    let numbers = scaled(point).iter().map(|number| *number as f32).collect();
                    state.lambda.write(&[Array::from_f32([COEFFICIENTS], numbers)?])?;
                    trainer.train(&state, key)?;
                    errors.push(error_at(&mut evaluator, &state, key)?.unwrap_or(WORST));
                }
                told.push(errors);
                self.keep(place, &told)?;
            }
            let errors = &told[generation];
            for (point, error) in points.iter().zip(errors) {
                if *error < best.1 {
                    best = (scaled(point), *error);
                }
            }
            search.tell(&points, errors);
            (place.progress)((generation + 1) as f64 / *generations as f64);
        }
        let name = problem.lambda_names().into_iter().next().unwrap_or_default();
        let found = Array::from_f32([COEFFICIENTS], best.0.iter().map(|number| *number as f32).collect())?;
        place.keep_lambda(&[(name.to_string(), found)].into_iter().collect::<Named<Array>>())?;
        let least = told.iter().map(|errors| errors.iter().copied().fold(f64::INFINITY, f64::min));
        let way = least.enumerate().map(|(number, error)| (number as f64 + 1.0, error)).collect();
        Ok(Taken {
            numbers: [(ERROR.to_string(), vec![best.1])].into(),
            way: [("least validation error of a generation".to_string(), way)].into(),
            leaf: name.to_string(),
            lambda: best.0.to_vec(),
            cost: Some((population * generations * steps) as f64),
            ..Taken::default()
        })
    }
}
