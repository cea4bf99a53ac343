//! Everything a run depends on.

use super::learning::Learning;
use super::{About, Device, Division, Outer, RunResult, Start, dtype_name};
use crate::{AnyTask, BuiltOn, Context, Recipe, Registry, Settings};
use bilevel::graph::{ErrorKind, Executor};
use bilevel::methods::{Chains, Output};
use bilevel::observers::StopSignal;
use bilevel::optimizers::{InnerOptimizer, Optimizer, ScheduleSettings, Sgd, Shape};
use bilevel::splits::{Baselines, Guard, Part};
use bilevel::{Array, DType, Driver, Error, InnerLoop, Method, Named, Outcome, Precision, Problem, Result, StopReason};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Inner steps of a training that hyperparameters are compared by, at most, unless a single hypergradient takes more.
const MOST_STEPS: usize = 2000;

/// Everything a run depends on: the contents of `config.toml` in its folder.
///
/// ```
/// use bilevel::prelude::*;
/// use bilevel_run::Registry;
/// use bilevel_tasks::Synth1d;
/// let registry = bilevel_tasks::register(Registry::new());
/// let mut config = registry.config(&Synth1d { noise: 0.3, ..Synth1d::default() })?.by((Rmd::default(), InnerLoop::new(0.005, 100))).seeded(7);
/// config.outer.iterations = 20;
/// let problem = config.problem(&registry)?;
/// let outcome = config.driver(&registry, &problem, Box::new(bilevel::Cpu::with_threads(1)))?.run()?;
/// assert_eq!(outcome.iterations, 20);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The seed of all random numbers.
    pub seed: u64,
    /// Independent chains averaged in a hypergradient.
    pub chains: usize,
    /// Threads to run on; 0 is all cores.
    pub threads: usize,
    /// The least number of elements of a sharded tensor; 0 shards none.
    pub shard_from: usize,
    /// The device.
    pub device: Device,
    /// The floating-point type.
    #[serde(with = "dtype_name")]
    pub dtype: DType,
    /// The precision of matrix products and convolutions.
    #[serde(with = "bilevel::diagnostics::precision_name")]
    pub precision: Precision,
    /// Folder of data files; empty for none.
    pub data: String,
    /// The task with its settings.
    pub task: Settings,
    /// Files that λ and θ start from.
    pub start: Start,
    /// The method with its settings.
    pub method: Settings,
    /// The inner loop.
    pub inner: InnerLoop,
    /// The outer loop.
    pub outer: Outer,
    /// The division of the rows, if it is not the task's.
    pub split: Division,
    /// The held-out rows, and the judgement of λ by them.
    pub held_out: HeldOut,
    /// When to save.
    pub checkpoint: Checkpoint,
    /// When to measure.
    pub metrics: Metrics,
    /// The user's description of it.
    pub about: About,
}

/// The held-out rows, and the judgement of λ by them ([`Guard`]). It has no effect for tasks that do not divide rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    /// The share of the validation rows.
    pub share: f64,
    /// Outer iterations from one evaluation to the next; 0 is no guard.
    pub every: u32,
    /// Stop after this many evaluations in a row at which their loss had risen; 0 is never.
    pub patience: u32,
    /// Compare the hyperparameters with simpler ones at the end ([`Baselines`]).
    pub compare: bool,
    /// Parallel trainings, each without the rows of one fold, on which λ is validated; 0 for one training with the
    /// task's split.
    pub folds: usize,
    /// Pull each group of hyperparameters towards one value, with this standard deviation; 0 is free.
    pub shrinkage: f64,
    /// Train once more at the end, on all rows with labels.
    pub retrain: bool,
}

impl HeldOut {
    /// Nothing is held out, as in published experiments.
    pub const NOTHING: Self =
        HeldOut { share: 0.0, every: 0, patience: 0, compare: false, folds: 0, shrinkage: 0.0, retrain: false };
}

impl Default for HeldOut {
    /// A fifth, and the library's guard.
    fn default() -> Self {
        let Guard { every, patience } = Guard::default();
        HeldOut { share: 0.2, every, patience, compare: true, ..HeldOut::NOTHING }
    }
}

/// When to save.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Every n iterations.
    pub every: u32,
    /// θ as well as λ at the end of the run.
    pub theta: bool,
}

/// When to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// The task's own measures every n iterations.
    pub every: u32,
    /// A diagnosis of the hypergradient every n iterations; 0 means never.
    pub diagnose: u32,
    /// Also writes event files for TensorBoard.
    pub tensorboard: bool,
}

impl Config {
    /// A run of a task, with the loops that suit its settings.
    pub fn of(registry: &Registry, task: &dyn AnyTask) -> Result<Self> {
        let d = task.defaults();
        let config = Config {
            seed: 0,
            chains: 1,
            threads: 0,
            shard_from: 0,
            device: Device::Cpu,
            dtype: d.dtype,
            precision: Precision::Full,
            data: String::new(),
            task: task.settings(),
            start: Start::default(),
            method: Settings::default(),
            inner: d.inner,
            outer: Outer {
                iterations: d.iterations,
                rate: d.rate,
                cold: d.cold,
                clip: 0.0,
                tolerance: 0.0,
                patience: 0,
                improvement: 0.0,
                patience_on: String::new(),
                keep_best: String::new(),
                time_limit: String::new(),
                optimizer: Settings::new(bilevel::optimizers::Optimizer::kind(&d.optimizer), &d.optimizer),
                schedule: ScheduleSettings {
                    shape: match d.cosine {
                        true => Shape::Cosine { over: d.iterations.saturating_sub(d.warm_up).max(1), last: 0.0 },
                        false => Shape::Constant,
                    },
                    warm_up: d.warm_up,
                },
            },
            split: Division::default(),
            held_out: HeldOut::default(),
            checkpoint: Checkpoint { every: (d.iterations / 10).max(10), theta: false },
            metrics: Metrics {
                every: (d.iterations / 100).max(1),
                diagnose: (d.iterations / 100).max(1),
                tensorboard: false,
            },
            about: About::default(),
        };
        config.with_method(registry, registry.suited(task, d.method)?)
    }

    /// The same by another method, with these settings and this inner loop. If it prescribes the step of λ, the outer loop takes that step: plain
    /// descent at a constant rate.
    ///
    /// ```
    /// use bilevel_run::Registry;
    /// let registry = bilevel_tasks::register(Registry::new());
    /// let (config, task) = (registry.usual("synth1d")?, registry.known_task("synth1d")?.usual());
    /// assert_eq!(config.outer.rate, 0.005);
    /// let config = config.with_method(&registry, registry.suited(&*task, "d-tfbo")?)?;
    /// assert_eq!((config.outer.rate, config.outer.optimizer.name()), (1.0, "sgd"));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn with_method(mut self, registry: &Registry, recipe: Recipe) -> Result<Self> {
        let output = registry.read_method(&recipe.method)?.output();
        let plain = Settings::new(Sgd.kind(), &InnerOptimizer::Sgd);
        if output == Output::Step {
            (self.outer.optimizer, self.outer.schedule) = (plain.clone(), Shape::Constant.into());
        }
        // Other optimizers choose the length of a step themselves.
        if self.outer.optimizer == plain {
            self.outer.rate = output.rate(self.outer.rate, &recipe.inner);
        }
        Ok(self.by(recipe))
    }

    /// The same configuration with another method and this inner loop; the outer loop does not change.
    pub fn by(self, recipe: impl Into<Recipe>) -> Self {
        let Recipe { method, inner } = recipe.into();
        Config { method, inner, ..self }
    }

    /// The method with its settings, and its inner loop.
    pub fn recipe(&self) -> Recipe {
        Recipe { method: self.method.clone(), inner: self.inner }
    }

    /// The same from another seed.
    pub fn seeded(self, seed: u64) -> Self {
        Config { seed, ..self }
    }

    /// The same with the checksums of the files it starts from and of those that divide its rows.
    pub fn sealed(self) -> Result<Self> {
        Ok(Config { start: self.start.sealed()?, split: self.split.sealed()?, ..self })
    }

    /// All keys and values, in order.
    pub fn settings(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(settings)) => settings,
            // Structs of numbers and words can always be written down.
            _ => Map::new(),
        }
    }

    /// Sixteen digits that differ if two runs may differ in their results. They do not depend on the device, the place
    /// of data, the intervals of saving and measuring, the time limit and the description. For files that the run
    /// starts from, the contents count: see [`sealed`](Self::sealed).
    pub fn hash(&self) -> String {
        let mut settings = self.settings();
        for key in ["threads", "shard_from", "data", "checkpoint", "metrics", "about"] {
            settings.shift_remove(key);
        }
        // Keys added later count only if they are used, so that earlier runs keep their hash.
        let mut leave_out = |table: &str, keys: &[(&str, bool)]| {
            let Some(Value::Object(inside)) = settings.get_mut(table) else { return };
            keys.iter().filter(|(_, unused)| *unused).for_each(|(key, _)| _ = inside.shift_remove(*key));
        };
        let HeldOut { folds, shrinkage, retrain, .. } = self.held_out;
        leave_out("held_out", &[("folds", folds == 0), ("shrinkage", shrinkage == 0.0), ("retrain", !retrain)]);
        let Outer { patience_on, keep_best, .. } = &self.outer;
        let outer =
            [("time_limit", true), ("patience_on", patience_on.is_empty()), ("keep_best", keep_best.is_empty())];
        leave_out("outer", &outer);
        // The contents of files count, not their names.
        settings.insert("start".into(), self.start.checksum.clone().into());
        match settings.get_mut("split").and_then(Value::as_object_mut) {
            Some(split) if !self.split.is_the_tasks() => {
                ["groups", "rows"].iter().for_each(|file| _ = split.shift_remove(*file));
            }
            _ => _ = settings.shift_remove("split"),
        }
        hash(&Value::Object(settings))
    }

    /// The same without the number of iterations and the device, which may be changed when a run is resumed.
    pub fn path_hash(&self) -> String {
        let mut longer = Config { device: Device::Cpu, ..self.clone() };
        longer.outer.iterations = 0;
        longer.hash()
    }

    /// The context of the task.
    pub fn context(&self) -> Context {
        let data = (!self.data.is_empty()).then(|| PathBuf::from(&self.data));
        Context { seed: self.seed, data, dtype: self.dtype, evidence: false }
    }

    /// The context with the judge of λ, which depends on the method.
    fn judged(&self, registry: &Registry) -> Result<Context> {
        let evidence = registry.read_method(&self.method)?.claims().evidence;
        Ok(Context { evidence, ..self.context() })
    }

    /// The task's problem.
    pub fn problem(&self, registry: &Registry) -> Result<Problem> {
        let problem = registry.read_task(&self.task)?.build(&self.judged(registry)?)?;
        self.divided(problem)?.in_precision(self.precision)
    }

    /// The same for a run on this executor: a task that trains something before the run begins does so there.
    pub fn problem_on(&self, registry: &Registry, executor: &dyn Executor, signal: &StopSignal) -> Result<Problem> {
        let on = BuiltOn { executor, precision: self.precision, signal };
        let problem = registry.read_task(&self.task)?.build_on(&self.judged(registry)?, &on)?;
        self.divided(problem)?.in_precision(self.precision)
    }

    /// The problem with its rows divided, and without those that are held out.
    fn divided(&self, problem: Problem) -> Result<Problem> {
        self.split.clone().sealed()?.divide(problem, self.seed)?.holding_out(self.held_out.share, self.seed)
    }

    /// The method, in the configured number of chains.
    pub fn method(&self, registry: &Registry) -> Result<Box<dyn Method>> {
        match self.chains {
            1 => registry.read_method(&self.method),
            count => Ok(Box::new(Chains::new(registry.read_method(&self.method)?, count))),
        }
    }

    /// The outer loop on this problem; observers, signal and checkpoints are the caller's to add.
    pub fn driver(&self, registry: &Registry, problem: &Problem, executor: Box<dyn Executor>) -> Result<Driver> {
        self.driver_by(self.method(registry)?, registry, problem, executor)
    }

    /// The same with an existing method, possibly prepared.
    pub fn driver_by(
        &self,
        method: impl Method + 'static,
        registry: &Registry,
        problem: &Problem,
        executor: Box<dyn Executor>,
    ) -> Result<Driver> {
        let outer = &self.outer;
        let mut driver = Driver::new(problem, method)
            .boxed_executor(executor)
            .shard_from(self.shard_from)
            .optimizer(registry.read_optimizer(&outer.optimizer)?)
            .schedule(outer.schedule.build(outer.rate))
            .seed(self.seed)
            .cold(outer.cold)
            .inner(self.inner)
            .diagnose_every(self.metrics.diagnose)
            .guard(self.guard())
            .iterations(outer.iterations);
        if outer.clip > 0.0 {
            driver = driver.clip_norm(outer.clip);
        }
        if outer.tolerance > 0.0 {
            driver = driver.tolerance(outer.tolerance);
        }
        match outer.followed()? {
            Some(aim) => driver = driver.patience_on(aim, outer.patience, outer.improvement),
            None if outer.patience > 0 => driver = driver.patience(outer.patience, outer.improvement),
            None => {}
        }
        if let Some(aim) = outer.kept()? {
            driver = driver.keep_best(aim);
        }
        if let Some(limit) = outer.limit()? {
            driver = driver.time_limit(limit);
        }
        if outer.follows_measures() {
            driver = driver.measure_every(self.metrics.every);
        }
        self.start.place(driver, problem)
    }

    /// The guard on held-out rows; none if a measure decides which λ is returned.
    fn guard(&self) -> Guard {
        let every = if self.outer.keep_best.is_empty() { self.held_out.every } else { 0 };
        Guard { every, patience: self.held_out.patience }
    }

    /// Runs it on the problem that [`problem_on`](Self::problem_on) has built, with the observers and checkpoints that `add` gives
    /// the driver. There is a result if the run was finished.
    pub fn run_on(
        &self,
        registry: &Registry,
        problem: &Problem,
        executor: Box<dyn Executor>,
        add: impl FnOnce(Driver) -> Driver,
    ) -> Result<(Outcome, Option<RunResult>)> {
        let shared = executor.share();
        let learning = Learning::of(self, problem)?;
        let driver = add(self.driver(registry, learning.problem(), executor)?.measure_every(self.metrics.every));
        let signal = driver.signal();
        let mut outcome = driver.run()?;
        if let Some(best) = &outcome.best {
            let [lambda, theta] = [best.state.lambda.arrays()?, best.state.theta.arrays()?];
            (outcome.lambda, outcome.theta) = (renamed(&outcome.lambda, lambda), renamed(&outcome.theta, theta));
            outcome.measures = best.measures.clone();
        }
        let is_good = !matches!(outcome.reason, StopReason::Diverged(_) | StopReason::Signal);
        let stopped = |error: &Error| matches!(error, Error::Graph(error) if error.kind == ErrorKind::Stopped);
        if !is_good {
            outcome.lambda = learning.found(&outcome.lambda)?;
            let result = RunResult::new(self, problem, &outcome)?;
            return Ok((outcome, result));
        }
        let baselines = match self.baselines(problem, &learning, &outcome, (Box::new(shared.clone()), signal.clone())) {
            // As a run that was stopped before its end.
            Err(error) if stopped(&error) => return Ok((outcome, None)),
            found => found?,
        };
        let last = self.last_training(outcome.iterations);
        match learning.finish(&mut outcome, last, (shared, signal)) {
            Err(error) if stopped(&error) => return Ok((outcome, None)),
            finished => finished?,
        }
        let result = RunResult::new(self, problem, &outcome)?.map(|found| RunResult { baselines, ..found });
        Ok((outcome, result))
    }

    /// A training alone after a run of so many iterations: a quarter of its inner steps, up to [`MOST_STEPS`].
    fn last_training(&self, iterations: u32) -> InnerLoop {
        let quarter = self.inner.steps.saturating_mul(iterations as usize) / 4;
        let steps = quarter.min(MOST_STEPS).max(self.inner.steps);
        InnerLoop { steps, burn_in: 0, schedule: ScheduleSettings::CONSTANT, ..self.inner }
    }

    /// The baselines of a run's hyperparameters, if requested and if the problem has rows for them.
    fn baselines(
        &self,
        problem: &Problem,
        learning: &Learning,
        outcome: &Outcome,
        (executor, signal): (Box<dyn Executor>, StopSignal),
    ) -> Result<Option<Baselines>> {
        let by_evidence = problem.is_judged_by_evidence();
        let nothing = match by_evidence {
            true => !problem.judges_row_by_row() || problem.rows_of(Part::Test) == 0,
            false => problem.rows_of(Part::Validation) == 0,
        };
        // One tuned value of an initialisation would be no baseline.
        if !self.held_out.compare || nothing || problem.starts_from_lambda() {
            return Ok(None);
        }
        let lambda = problem.rescaled(&learning.found(&outcome.lambda)?, learning.share())?;
        let mut inner = self.last_training(outcome.iterations);
        if by_evidence {
            // The noise is that of the posterior, but its maxima are compared.
            inner.temperature = 0.0;
        }
        let comparison = problem.compare(&lambda).inner(inner).seed(self.seed).stop_signal(signal);
        comparison.boxed_executor(executor).run().map(Some)
    }
}

/// These arrays under the names of others.
fn renamed(names: &Named<Array>, arrays: Vec<Array>) -> Named<Array> {
    names.iter().map(|(name, _)| name.to_string()).zip(arrays).collect()
}

/// FNV-1a of some settings: not against malice, only against mixing runs up.
pub(crate) fn hash(settings: &Value) -> String {
    let text = settings.to_string();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ b as u64).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}
