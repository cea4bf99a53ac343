//! Everything a run depends on.

use super::{Device, Outer, ScheduleSettings, dtype_name};
use crate::{AnyTask, BuiltOn, Context, Registry, Settings};
use bilevel::graph::Executor;
use bilevel::{
    AnyMethod, Chains, DType, Driver, InnerOptimizer, Method, Optimizer, Output, Precision, Problem, Result, Sgd,
    Shape, StopSignal,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Everything a run depends on: the contents of `config.toml` in its folder.
///
/// ```
/// use bilevel::Rmd;
/// use bilevel_tasks::{Registry, tasks::Synth1d};
/// let registry = Registry::everything();
/// let mut config = registry.config(&Synth1d { noise: 0.3, ..Synth1d::default() })?.by(Rmd::default()).seeded(7);
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
    /// Where to run.
    pub device: Device,
    /// The floating-point type.
    #[serde(with = "dtype_name")]
    pub dtype: DType,
    /// The precision of matrix products and convolutions.
    #[serde(with = "bilevel::precision_name")]
    pub precision: Precision,
    /// Folder of data files; empty for none.
    pub data: String,
    /// The task with its settings.
    pub task: Settings,
    /// The method with its settings.
    pub method: Settings,
    /// The inner loop over the outer iterations.
    pub inner: Inner,
    /// The outer loop.
    pub outer: Outer,
    /// When to save.
    pub checkpoint: Checkpoint,
    /// When to measure.
    pub metrics: Metrics,
}

/// How the inner loop changes over the outer iterations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inner {
    /// A factor on the inner step.
    pub schedule: ScheduleSettings,
}

/// When to save.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Every n iterations.
    pub every: u32,
}

/// When to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// The task's own measures every n iterations.
    pub every: u32,
    /// A diagnosis of the hypergradient every n iterations; 0 means never.
    pub diagnose: u32,
    /// Event files for TensorBoard as well.
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
            device: Device::Cpu,
            dtype: d.dtype,
            precision: Precision::Full,
            data: String::new(),
            task: task.settings(),
            method: Settings::default(),
            inner: Inner { schedule: Shape::Constant.into() },
            outer: Outer {
                iterations: d.iterations,
                rate: d.rate,
                cold: d.cold,
                clip: 0.0,
                tolerance: 0.0,
                patience: 0,
                improvement: 0.0,
                optimizer: Settings::new(bilevel::Optimizer::kind(&d.optimizer), &d.optimizer),
                schedule: ScheduleSettings {
                    shape: match d.cosine {
                        true => Shape::Cosine { over: d.iterations.saturating_sub(d.warm_up).max(1), last: 0.0 },
                        false => Shape::Constant,
                    },
                    warm_up: d.warm_up,
                },
            },
            checkpoint: Checkpoint { every: (d.iterations / 10).max(10) },
            metrics: Metrics {
                every: (d.iterations / 100).max(1),
                diagnose: (d.iterations / 100).max(1),
                tensorboard: false,
            },
        };
        config.with_method(registry, registry.suited(task, d.method)?)
    }

    /// The same by another method, with these settings. If it prescribes the step of λ, the outer loop takes that step: plain
    /// descent at a constant rate.
    ///
    /// ```
    /// use bilevel_tasks::Registry;
    /// let registry = Registry::everything();
    /// let (config, task) = (registry.usual("synth1d")?, registry.known_task("synth1d")?.usual());
    /// assert_eq!(config.outer.rate, 0.005);
    /// let config = config.with_method(&registry, registry.suited(&*task, "d-tfbo")?)?;
    /// assert_eq!((config.outer.rate, config.outer.optimizer.name()), (1.0, "sgd"));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn with_method(mut self, registry: &Registry, method: Settings) -> Result<Self> {
        let output = registry.read_method(&method)?.output();
        let plain = Settings::new(Sgd.kind(), &InnerOptimizer::Sgd);
        if output == Output::Step {
            (self.outer.optimizer, self.outer.schedule) = (plain.clone(), Shape::Constant.into());
        }
        // Other optimizers choose the length of a step themselves.
        if self.outer.optimizer == plain {
            self.outer.rate = output.rate(self.outer.rate);
        }
        self.method = method;
        Ok(self)
    }

    /// The same by another method of the library, with these settings.
    pub fn by(self, method: impl Into<AnyMethod>) -> Self {
        Config { method: Settings::of_method(method), ..self }
    }

    /// The same from another seed.
    pub fn seeded(self, seed: u64) -> Self {
        Config { seed, ..self }
    }

    /// All keys and values, in order.
    pub fn settings(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(settings)) => settings,
            // Structs of numbers and words can always be written down.
            _ => Map::new(),
        }
    }

    /// Sixteen digits that differ where two runs may differ in their results: what only says where to run, where data
    /// is and how often to save and measure is left out.
    pub fn hash(&self) -> String {
        let mut settings = self.settings();
        for key in ["threads", "data", "checkpoint", "metrics"] {
            settings.shift_remove(key);
        }
        hash(&Value::Object(settings))
    }

    /// The same without the number of iterations and the device, which may be changed when a run is resumed.
    pub fn path_hash(&self) -> String {
        let mut longer = Config { device: Device::Cpu, ..self.clone() };
        longer.outer.iterations = 0;
        longer.hash()
    }

    /// What the task is told.
    pub fn context(&self) -> Context {
        let data = (!self.data.is_empty()).then(|| PathBuf::from(&self.data));
        Context { seed: self.seed, data, dtype: self.dtype }
    }

    /// The task's problem.
    pub fn problem(&self, registry: &Registry) -> Result<Problem> {
        registry.read_task(&self.task)?.build(&self.context())?.in_precision(self.precision)
    }

    /// The same for a run on this executor: a task that trains something before the run begins does so there.
    pub fn problem_on(&self, registry: &Registry, executor: &dyn Executor, signal: &StopSignal) -> Result<Problem> {
        let on = BuiltOn { executor, precision: self.precision, signal };
        registry.read_task(&self.task)?.build_on(&self.context(), &on)?.in_precision(self.precision)
    }

    /// The method, in as many chains as asked for.
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

    /// The same by a method that is there already, prepared perhaps.
    pub(crate) fn driver_by(
        &self,
        method: impl Method + 'static,
        registry: &Registry,
        problem: &Problem,
        executor: Box<dyn Executor>,
    ) -> Result<Driver> {
        let outer = &self.outer;
        let mut driver = Driver::new(problem, method)
            .boxed_executor(executor)
            .optimizer(registry.read_optimizer(&outer.optimizer)?)
            .schedule(outer.schedule.build(outer.rate))
            .seed(self.seed)
            .cold(outer.cold)
            .diagnose_every(self.metrics.diagnose)
            .iterations(outer.iterations);
        if self.inner.schedule != Shape::Constant.into() {
            driver = driver.inner_schedule(self.inner.schedule.build(1.0));
        }
        if outer.clip > 0.0 {
            driver = driver.clip_norm(outer.clip);
        }
        if outer.tolerance > 0.0 {
            driver = driver.tolerance(outer.tolerance);
        }
        if outer.patience > 0 {
            driver = driver.patience(outer.patience, outer.improvement);
        }
        Ok(driver)
    }
}

/// FNV-1a of some settings: not against malice, only against mixing runs up.
pub(crate) fn hash(settings: &Value) -> String {
    let text = settings.to_string();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ b as u64).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}
