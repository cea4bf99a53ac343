//! Runs of the outer loop on a background thread, controlled from Python.

use crate::array;
use crate::command::{executor_of_run, follows, page};
use crate::error::{self, of};
use crate::problem::{Problem, inner_loop, named, settings};
use bilevel::checkpoints::Checkpoints;
use bilevel::methods::check_settings;
use bilevel::observers::{Iteration, JsonLines, StopSignal, iteration_fields};
use bilevel::optimizers::ScheduleSettings;
use bilevel::splits::Guard;
use bilevel::{Driver, Named, Outcome, Problem as Core, State, StopReason, Variable};
use pyo3::prelude::*;
use serde_json::{Map, Value, json};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Tree = Named<Variable>;

/// A run in progress, or its result.
#[pyclass(frozen, module = "bilevel._bilevel")]
pub struct Run {
    core: Core,
    shared: Arc<Shared>,
    signal: StopSignal,
    folder: Option<PathBuf>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    iterations: Vec<Iteration>,
    paused: bool,
    ended: Option<Ended>,
    /// The exception of the callback.
    raised: Option<PyErr>,
}

enum Ended {
    Outcome(Box<Outcome<Tree, Tree>>),
    Error(bilevel::Error),
    Panic,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of an iteration and waits for as long as the run is paused.
    fn told(&self, iteration: &Iteration, signal: &StopSignal) {
        let mut progress = self.lock();
        progress.iterations.push(iteration.clone());
        self.changed.notify_all();
        while progress.paused && !signal.is_set() {
            let waited = self.changed.wait_timeout(progress, Duration::from_millis(50));
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The settings of the outer loop, read from a JSON table.
struct Outer(Map<String, Value>);

impl Outer {
    fn number(&self, key: &str) -> PyResult<Option<f64>> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(error::setting(format!("{key} is {value} but must be a number"))),
            },
        }
    }

    fn count(&self, key: &str) -> PyResult<Option<u32>> {
        let Some(number) = self.number(key)? else { return Ok(None) };
        if number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number) {
            return Ok(Some(number as u32));
        }
        Err(error::setting(format!("{key} is {number} but must be a whole number that is not negative")))
    }

    fn flag(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Applies the settings that are not plain numbers.
    fn applied(&self, mut driver: Driver<Tree, Tree>) -> PyResult<Driver<Tree, Tree>> {
        let rate = self.number("rate")?;
        match (self.0.get("schedule"), rate) {
            (Some(schedule @ Value::Object(_)), rate) => {
                let read: ScheduleSettings = serde_json::from_value(schedule.clone()).map_err(error::setting)?;
                driver = driver.schedule(read.build(rate.unwrap_or(0.01)));
            }
            (_, Some(rate)) => driver = driver.rate(rate),
            _ => {}
        }
        if let Some(iterations) = self.count("iterations")? {
            driver = driver.iterations(iterations);
        }
        if let Some(numbers) = self.count("shard_from")? {
            driver = driver.shard_from(numbers as usize);
        }
        if let Some(every) = self.count("diagnose_every")? {
            driver = driver.diagnose_every(every);
        }
        if let Some(every) = self.count("metrics_every")? {
            driver = driver.measure_every(every);
        }
        if let Some(limit) = self.number("clip_norm")? {
            driver = driver.clip_norm(limit);
        }
        if let Some(tolerance) = self.number("tolerance")? {
            driver = driver.tolerance(tolerance);
        }
        if let Some(patience) = self.count("patience")? {
            driver = driver.patience(patience, self.number("improvement")?.unwrap_or(0.0));
        }
        if let Some(seconds) = self.number("time_limit")? {
            let limit = Duration::try_from_secs_f64(seconds);
            driver = driver.time_limit(limit.map_err(|error| error::setting(format!("time_limit: {error}")))?);
        }
        match self.0.get("guard") {
            None | Some(Value::Null) => {}
            Some(guard) => {
                let guard: Guard = serde_json::from_value(guard.clone())
                    .map_err(|error| error::setting(format!("guard: {error}; it has 'every' and 'patience'")))?;
                driver = driver.guard(guard);
            }
        }
        let seed = self.0.get("seed").and_then(Value::as_u64).unwrap_or_default();
        Ok(driver.seed(seed).cold(self.flag("cold")))
    }
}

/// Calls the callback, and ends the run if it raises or returns True.
fn asked(callback: &Py<PyAny>, iteration: &Iteration, shared: &Shared) -> ControlFlow<String> {
    let answer = Python::attach(|py| {
        let table = serde_json::to_string(&iteration_fields(iteration)).map_err(error::other)?;
        callback.call1(py, (table,))?.extract::<Option<bool>>(py)
    });
    match answer {
        Ok(Some(true)) => ControlFlow::Break("the callback returned True".into()),
        Ok(_) => ControlFlow::Continue(()),
        Err(error) => {
            shared.lock().raised = Some(error);
            ControlFlow::Break("the callback raised".into())
        }
    }
}

#[pymethods]
impl Run {
    /// Starts a run: method, inner loop, optimizer and outer loop are JSON tables.
    #[new]
    #[pyo3(signature = (problem, method, outer, inner=None, optimizer=None, device="cpu", threads=0, callback=None,
                        folder=None, resume=false, checkpoint_every=10, lambda_=None, theta=None))]
    #[allow(clippy::too_many_arguments)] // They are keywords in Python.
    fn new(
        py: Python<'_>,
        problem: &Problem,
        method: &str,
        outer: &str,
        inner: Option<&str>,
        optimizer: Option<&str>,
        device: &str,
        threads: usize,
        callback: Option<Py<PyAny>>,
        folder: Option<PathBuf>,
        resume: bool,
        checkpoint_every: u32,
        lambda_: Option<Vec<Bound<'_, PyAny>>>,
        theta: Option<Vec<Bound<'_, PyAny>>>,
    ) -> PyResult<Self> {
        let core = problem.core.clone();
        let registry = bilevel_run::Registry::new();
        let given = [method, outer, inner.unwrap_or_default(), optimizer.unwrap_or_default()].join("\n");
        let method = registry.read_method(&settings(method)?).map_err(error::setting)?;
        let inner = inner_loop(inner, &*method)?;
        check_settings(&*method, &inner).map_err(of)?;
        method.applies(&core).map_err(of)?;
        let (signal, shared) = (StopSignal::new(), Arc::new(Shared::default()));
        let mut driver = Driver::new(&core, method).inner(inner).stop_signal(signal.clone());
        driver = driver.executor(py.detach(|| executor_of_run(device, threads, &given))?);
        if let Some(optimizer) = optimizer {
            driver = driver.optimizer(registry.read_optimizer(&settings(optimizer)?).map_err(error::setting)?);
        }
        driver = Outer(serde_json::from_str(outer).map_err(error::setting)?).applied(driver)?;
        if let Some(lambda) = lambda_ {
            driver = driver.start_from(&named(&core.lambda_names(), &lambda)?);
        }
        if let Some(theta) = theta {
            driver = driver.theta(&named(&core.theta_names(), &theta)?);
        }
        if let Some(folder) = &folder {
            let checkpoints = Checkpoints::new(folder.join("checkpoints")).every(checkpoint_every).resume(resume);
            driver = driver.checkpoints(checkpoints);
        }
        // Of several ranks, the first writes.
        let folder = folder.filter(|_| !follows());
        if let Some(folder) = &folder {
            driver = driver.observe(JsonLines::new(folder.join("metrics.jsonl")));
        }
        let (told, stop) = (shared.clone(), signal.clone());
        let driver = driver.on_iteration(move |iteration: &Iteration, _: &State| {
            let answer = callback.as_ref().map_or(ControlFlow::Continue(()), |call| asked(call, iteration, &told));
            told.told(iteration, &stop);
            answer
        });
        started(driver, shared.clone())?;
        Ok(Run { core, shared, signal, folder })
    }

    /// Waits until the run has ended or new iterations have come, at most this many seconds; True once it has ended.
    fn wait(&self, py: Python<'_>, seen: usize, seconds: f64) -> bool {
        py.detach(|| {
            let progress = self.shared.lock();
            let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            let waiting = |progress: &mut Progress| progress.ended.is_none() && progress.iterations.len() <= seen;
            let waited = self.shared.changed.wait_timeout_while(progress, limit, waiting);
            waited.unwrap_or_else(PoisonError::into_inner).0.ended.is_some()
        })
    }

    /// The iterations from this one on, as a JSON list of tables.
    fn iterations(&self, from: usize) -> PyResult<String> {
        let progress = self.shared.lock();
        let rows = progress.iterations.iter().skip(from).map(|iteration| Value::Object(iteration_fields(iteration)));
        serde_json::to_string(&rows.collect::<Vec<Value>>()).map_err(error::other)
    }

    fn pause(&self) {
        self.shared.lock().paused = true;
    }

    fn resume(&self) {
        self.shared.lock().paused = false;
        self.shared.changed.notify_all();
    }

    #[getter]
    fn is_paused(&self) -> bool {
        self.shared.lock().paused
    }

    fn abort(&self) {
        self.signal.stop();
        self.shared.changed.notify_all();
    }

    /// λ, θ and a JSON table of the outcome of a run that has ended; an exception of the callback is raised if
    /// `strict`.
    #[pyo3(signature = (strict=true))]
    #[allow(clippy::type_complexity)] // Python names the parts.
    fn outcome<'py>(
        &self,
        py: Python<'py>,
        strict: bool,
    ) -> PyResult<Option<(Vec<Bound<'py, PyAny>>, Vec<Bound<'py, PyAny>>, String)>> {
        let progress = self.shared.lock();
        if let (Some(error), true) = (&progress.raised, strict) {
            return Err(error.clone_ref(py));
        }
        let outcome = match &progress.ended {
            None => return Ok(None),
            Some(Ended::Error(error)) => return Err(of(error.clone())),
            Some(Ended::Panic) => {
                return Err(error::other("the run ended in a panic, which is a bug; please report it"));
            }
            Some(Ended::Outcome(outcome)) => outcome,
        };
        let leaves = |tree: &Named<bilevel::Array>| -> PyResult<Vec<Bound<'py, PyAny>>> {
            tree.iter().map(|(_, array)| array::written(py, array.clone())).collect()
        };
        let metrics: Map<String, Value> =
            outcome.measures.iter().map(|(name, v)| (name.to_string(), json!(v))).collect();
        let report = json!({
            "reason": outcome.reason.to_string(),
            "failed": outcome.reason.is_failure(),
            "diverged": matches!(outcome.reason, StopReason::Diverged(_)),
            "iterations": outcome.iterations,
            "best_outer_loss": outcome.best_outer_loss,
            "inner_loss": outcome.last.as_ref().map(|last| last.inner_loss),
            "outer_loss": outcome.last.as_ref().map(|last| last.outer_loss),
            "metrics": metrics,
            "oracles": outcome.oracles,
            "seconds": outcome.elapsed.as_secs_f64(),
            "notes": outcome.notes,
            "guard": outcome.guard,
            "guard_sentence": outcome.guard.map(|guard| guard.to_string()),
        });
        Ok(Some((leaves(&outcome.lambda)?, leaves(&outcome.theta)?, report.to_string())))
    }

    /// The page about the run.
    fn page(&self, py: Python<'_>, title: &str) -> PyResult<Option<String>> {
        py.detach(|| {
            let progress = self.shared.lock();
            let Some(Ended::Outcome(outcome)) = &progress.ended else { return Ok(None) };
            page(title, &self.core, &progress.iterations, outcome).map(Some)
        })
    }

    #[getter]
    fn folder(&self) -> Option<PathBuf> {
        self.folder.clone()
    }
}

/// Runs on a background thread.
fn started(driver: Driver<Tree, Tree>, shared: Arc<Shared>) -> PyResult<()> {
    let run = move || {
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| driver.run()));
        let ended = match ran {
            Ok(Ok(outcome)) => Ended::Outcome(Box::new(outcome)),
            Ok(Err(error)) => Ended::Error(error),
            Err(_) => Ended::Panic,
        };
        shared.lock().ended = Some(ended);
        shared.changed.notify_all();
    };
    let thread = std::thread::Builder::new().name("bilevel run".into()).spawn(run);
    thread.map(drop).map_err(|error| error::other(format!("no thread for the run: {error}")))
}
