//! Inner iterations until a measure of the task is small enough.

use crate::prepared::Prepared;
use bilevel::observers::{Iteration, Observer};
use bilevel::training::Evaluator;
use bilevel::{Error, Key, Result, Session, State, StopReason};
use bilevel_run::manifest::Taken;
use bilevel_run::{Config, Measure, Place};
use serde::Serialize;
use serde_json::{Map, Value};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// The task's last measure above which a run is beyond hope.
const HOPELESS: f64 = 1e6;
/// The first points of a curve, and of those after them one in so many, are kept.
const KEPT: [usize; 2] = [20, 10];

/// A run to the tolerance, or to its last iteration.
#[derive(Clone, Debug, Serialize)]
pub struct Until {
    config: Config,
    below: f64,
}

impl Until {
    /// A run of this configuration until the task's last measure is `below` this.
    pub fn of(config: &Config, with: &Map<String, Value>) -> Result<Self> {
        let below = with.get("below").and_then(Value::as_f64).filter(|below| *below > 0.0);
        let below = below.ok_or_else(|| Error::setting("below", 0.0, "a number above 0"))?;
        Ok(Until { config: config.clone(), below })
    }
}

/// Writes down the measure over iterations, and ends the run when it is small enough or beyond hope.
struct Approach {
    measure: Evaluator,
    below: f64,
    curve: Arc<Mutex<Vec<(u32, f64)>>>,
}

impl Observer for Approach {
    fn on_iteration(&mut self, iteration: &Iteration, state: &State) -> ControlFlow<String> {
        let value = match self.measure.at(state, Key::from([0, 0])) {
            Ok(numbers) => numbers.last().copied().unwrap_or(f64::NAN),
            Err(error) => return ControlFlow::Break(error.to_string()),
        };
        self.curve.lock().unwrap_or_else(PoisonError::into_inner).push((iteration.number, value));
        match (self.below..=HOPELESS).contains(&value) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break("it is decided".into()),
        }
    }
}

impl Measure for Until {
    type Found = Taken;

    /// The `inner iterations` of a run that arrived or the value `left` of one that did not, and the `way`.
    fn take(&self, place: &Place) -> Result<Taken> {
        let Until { config, below } = self;
        let problem = config.problem(place.registry)?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let prepared = Prepared::new(&*config.method(place.registry)?, &config.inner, &session)?;
        let curve = Arc::<Mutex<Vec<_>>>::default();
        let approach = Approach { measure: session.evaluator()?, below: *below, curve: curve.clone() };
        let driver = config.driver_by(prepared, place.registry, &problem, place.boxed_executor())?;
        let end = driver.stop_signal(place.signal.clone()).observe(approach).run()?;
        let curve = curve.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = |iterations: u32| f64::from(iterations) * config.inner.steps as f64;
        let (iterations, value) = curve.last().map_or((0.0, f64::NAN), |(number, value)| (inner(*number), *value));
        let mut taken = Taken::default();
        match end.reason {
            _ if value < *below => _ = taken.numbers.insert("inner iterations".into(), vec![iterations]),
            StopReason::Diverged(_) => taken.diverged = 1,
            _ if value.is_nan() || value > HOPELESS => taken.diverged = 1,
            _ => {
                taken.numbers.insert("left".into(), vec![value]);
                taken.missed = format!("are not within {below:e} after {iterations} inner iterations");
            }
        }
        let [first, every] = KEPT;
        let kept = |(n, (number, value)): (usize, &(u32, f64))| {
            (value.is_finite() && (n < first || (n + 1) % every == 0)).then(|| (inner(*number), *value))
        };
        taken.way.insert("way".into(), curve.iter().enumerate().filter_map(kept).collect());
        Ok(taken)
    }
}
