//! The measurements of a table of penalties besides its runs: their common warm-up, and the time of an outer iteration.

use crate::studies::deep::precision_on;
use bilevel::{DType, Error, Key, Result, Session};
use bilevel_run::manifest::Taken;
use bilevel_run::statistics::median;
use bilevel_run::{BuiltOn, Config, Context, Device, Measure, Place, Recipe, Task};
use bilevel_tasks::L1Regularisation;
use bilevel_tasks::l1_regularisation::Granularity;
use serde::Serialize;
use serde_json::{Map, Value};
use std::time::Instant;

/// The warm-up, which keeps its θ.
#[derive(Clone, Debug, Serialize)]
pub struct WarmUp {
    task: L1Regularisation,
    seed: u64,
    device: Device,
}

impl WarmUp {
    /// The warm-up of a configuration's task. It depends neither on how λ is shared, nor on the later training data.
    pub fn of(config: &Config, _: &Map<String, Value>) -> Result<Self> {
        let task: L1Regularisation = config.task.read()?;
        let task = L1Regularisation { granularity: Granularity::One, start: 0.0, train_on_validation: false, ..task };
        Ok(WarmUp { task, seed: config.seed, device: config.device })
    }
}

impl Measure for WarmUp {
    type Found = Taken;

    /// The errors after it.
    fn take(&self, place: &Place) -> Result<Taken> {
        let context = Context { seed: self.seed, data: place.data.clone(), dtype: DType::F32, ..Context::default() };
        let precision = precision_on(self.device);
        let theta = self.task.warmed_up(&context, precision, &place.executor, &place.signal)?;
        place.keep_theta(&theta)?;
        let problem = self.task.problem_from(&theta, &context)?.in_precision(precision)?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let (mut evaluator, key) = (session.evaluator()?, Key::from_seed(self.seed));
        let names = evaluator.names().to_vec();
        let numbers = evaluator.at(&session.state(key)?, key)?;
        let numbers = names.into_iter().zip(numbers).map(|(name, number)| (name, vec![number])).collect();
        Ok(Taken { numbers, ..Taken::default() })
    }
}

/// The time of an outer iteration.
#[derive(Clone, Debug, Serialize)]
pub struct Clock {
    task: L1Regularisation,
    seed: u64,
    device: Device,
    method: Recipe,
    /// Iterations that are timed, after two that are not.
    rounds: u32,
}

impl Clock {
    /// The time of an outer iteration of a configuration.
    pub fn of(config: &Config, with: &Map<String, Value>) -> Result<Self> {
        let rounds = with.get("rounds").and_then(Value::as_u64).and_then(|rounds| u32::try_from(rounds).ok());
        let rounds = rounds.filter(|rounds| *rounds > 0).ok_or_else(|| Error::setting("rounds", 0.0, "at least 1"))?;
        let (task, method) = (config.task.read()?, config.recipe());
        Ok(Clock { task, seed: config.seed, device: config.device, method, rounds })
    }
}

impl Measure for Clock {
    type Found = Taken;

    /// The median, in milliseconds.
    fn take(&self, place: &Place) -> Result<Taken> {
        let (executor, precision, signal) = (&*place.executor, precision_on(self.device), &place.signal);
        let context = Context { seed: self.seed, data: place.data.clone(), dtype: DType::F32, ..Context::default() };
        let problem =
            self.task.build_on(&context, &BuiltOn { executor, precision, signal })?.in_precision(precision)?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let Recipe { method, inner } = &self.method;
        let mut estimator = place.registry.read_method(method)?.compile(&session, inner)?;
        let mut state = session.state(Key::from_seed(self.seed))?;
        let mut times = vec![];
        for round in 0..self.rounds + 2 {
            let began = Instant::now();
            estimator.estimate(&mut state, Key::from_seed(u64::from(round)), inner.step)?;
            times.push(1e3 * began.elapsed().as_secs_f64());
            (place.progress)(f64::from(round + 1) / f64::from(self.rounds + 2));
        }
        let numbers = [("ms per iteration".to_string(), vec![median(&times[2..])])].into();
        Ok(Taken { numbers, ..Taken::default() })
    }
}
