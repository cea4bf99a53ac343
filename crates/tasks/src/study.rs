//! A study: a list of items, and a pure function from their results to rows, tables and figures.
//!
//! An item is a run of the driver or a measurement. The conductor of a study decides where items are done, how many at
//! a time, and where their records are kept; the study knows nothing about it. Items that depend on the results of
//! others come in a later stage: [`Study::next`] is asked again until it has nothing more to do. As it depends on
//! records alone, a study that was interrupted continues where it stopped, and its rows are those of one that was not.

use crate::price::price;
use crate::run::{History, LambdaLeaf, RunResult};
use crate::{AnyTask, Config, Device, Registry, Row};
use bilevel::graph::Executor;
use bilevel::{Error, Recorder, Result, StopSignal};
use bilevel_report::{Plot, Section, Table};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// A study. All that belong to the command: [`Registry::studies`].
pub trait Study: Send + Sync {
    /// Its name, as on the command line.
    fn name(&self) -> &str;

    /// Its topic, in one line.
    fn title(&self) -> &str;

    /// The first items.
    fn items(&self, plan: &Plan) -> Result<Vec<Item>>;

    /// The items that follow those done so far; an empty list ends the study.
    fn next(&self, _plan: &Plan, _done: &Finished) -> Result<Vec<Item>> {
        Ok(vec![])
    }

    /// Its results.
    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings>;
}

/// How a study is to be conducted.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// What is known.
    pub registry: &'a Registry,
    /// Few seeds and low limits, for a quick test with rough numbers (`--quick`).
    pub quick: bool,
    /// Where seeds begin (`--seed`).
    pub seed: u64,
    /// Where data files are (`--data`).
    pub data: Option<PathBuf>,
    /// Where it runs (`--device`).
    pub device: Device,
}

impl<'a> Plan<'a> {
    /// In full, from seed 0, on the CPU, without data.
    pub fn new(registry: &'a Registry) -> Self {
        Plan { registry, quick: false, seed: 0, data: None, device: Device::Cpu }
    }

    /// One of two values.
    pub fn choose<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// A run of a task with these settings, where this plan says, from its first seed.
    pub fn run(&self, task: &dyn AnyTask) -> Result<Config> {
        let data = self.data.as_ref().filter(|_| task.reads_data());
        let data = data.map_or(String::new(), |data| data.to_string_lossy().into_owned());
        Ok(Config { seed: self.seed, data, device: self.device, ..self.registry.config(task)? })
    }
}

/// A piece of work with a record of its own.
pub struct Item {
    /// Its name among the items, and that of its folder.
    pub label: String,
    /// It takes times, so nothing else should run beside it.
    pub alone: bool,
    /// The work.
    pub work: Work,
}

/// The work.
pub enum Work {
    /// A run of the driver, with metrics and checkpoints.
    Run(Box<Config>),
    /// Anything else.
    Measure(Box<dyn AnyMeasure>),
}

impl Item {
    /// A run.
    pub fn run(label: impl Into<String>, config: Config) -> Self {
        Item { label: label.into(), alone: false, work: Work::Run(Box::new(config)) }
    }

    /// A measurement.
    pub fn measure(label: impl Into<String>, measure: impl Measure) -> Self {
        Item { label: label.into(), alone: false, work: Work::Measure(Box::new(measure)) }
    }

    /// With nothing beside it.
    pub fn alone(self) -> Self {
        Item { alone: true, ..self }
    }

    /// Sixteen digits that differ if the results of two items may differ.
    pub fn hash(&self) -> String {
        match &self.work {
            Work::Run(config) => config.hash(),
            Work::Measure(measure) => {
                let version = env!("CARGO_PKG_VERSION");
                crate::run::hash(&serde_json::json!([version, self.label, measure.settings()]))
            }
        }
    }
}

/// A measurement: everything it depends on, and how it is taken. Its result is stored as JSON, in which a number that
/// is not finite is none: use an `Option` where there may be one.
pub trait Measure: Serialize + Send + Sync + 'static {
    /// The result.
    type Found: Serialize + DeserializeOwned;

    /// Takes it. A result that comes after the place's signal was set is discarded.
    fn take(&self, place: &Place) -> Result<Self::Found>;
}

/// Any measurement.
pub trait AnyMeasure: Send + Sync {
    /// All it depends on.
    fn settings(&self) -> Value;
    /// Takes it.
    fn take(&self, place: &Place) -> Result<Value>;
}

impl<M: Measure> AnyMeasure for M {
    fn settings(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn take(&self, place: &Place) -> Result<Value> {
        serde_json::to_value(Measure::take(self, place)?).map_err(|error| Error::Problem { reason: error.to_string() })
    }
}

/// Where an item is done.
pub struct Place<'a> {
    /// What is known.
    pub registry: &'a Registry,
    /// The executor that runs programs.
    pub executor: Arc<dyn Executor>,
    /// Set where the work should stop.
    pub signal: StopSignal,
    /// Where data files are.
    pub data: Option<PathBuf>,
    /// Told how much of the item is done, from 0 to 1.
    pub progress: Arc<dyn Fn(f64) + Send + Sync>,
}

impl<'a> Place<'a> {
    /// With this executor, and without an observer.
    pub fn new(registry: &'a Registry, executor: impl Executor + 'static) -> Self {
        let (signal, progress) = (StopSignal::new(), Arc::new(|_| ()));
        Place { registry, executor: Arc::new(executor), signal, data: None, progress }
    }

    /// The executor, to be handed to a driver.
    pub fn boxed_executor(&self) -> Box<dyn Executor> {
        Box::new(self.executor.clone())
    }
}

/// A run that is finished, or diverged.
#[derive(Clone, Debug)]
pub struct FinishedRun {
    /// Its configuration.
    pub config: Config,
    /// Its result.
    pub result: RunResult,
    /// Its numbers, iteration by iteration.
    pub history: History,
    /// The hyperparameters it found.
    pub lambda: Vec<LambdaLeaf>,
    /// Seconds it took.
    pub seconds: f64,
    /// Its cost, in gradients.
    pub price: f64,
}

impl FinishedRun {
    /// False where it diverged.
    pub fn arrived(&self) -> bool {
        self.result.stopped != "diverged"
    }

    /// A measure of the task at the end.
    pub fn measure(&self, name: &str) -> Option<f64> {
        self.result.measures.get(name)?.as_f64()
    }
}

/// The outcome of an item.
#[derive(Clone, Debug)]
pub enum Done {
    /// A run came to its end.
    Run(Box<FinishedRun>),
    /// A measurement was taken.
    Measured {
        /// Its result.
        value: Value,
        /// Seconds it took.
        seconds: f64,
    },
    /// The method cannot work on this problem, for this reason.
    NotApplicable(String),
}

/// All items that are done, in their order.
#[derive(Clone, Debug, Default)]
pub struct Finished(Vec<(String, Done)>);

impl Finished {
    /// With the outcome of one more item.
    pub fn add(&mut self, label: impl Into<String>, done: Done) {
        self.0.push((label.into(), done));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True before the first.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them with their labels.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Done)> {
        self.0.iter().map(|(label, done)| (label.as_str(), done))
    }

    /// The outcome of an item, if it is done.
    pub fn get(&self, label: &str) -> Option<&Done> {
        self.iter().find(|(known, _)| *known == label).map(|(_, done)| done)
    }

    /// All runs that came to an end, with their labels.
    pub fn runs(&self) -> impl Iterator<Item = (&str, &FinishedRun)> {
        self.iter().filter_map(|(label, done)| match done {
            Done::Run(run) => Some((label, &**run)),
            _ => None,
        })
    }

    /// A run; an error where there is none.
    pub fn run(&self, label: &str) -> Result<&FinishedRun> {
        match self.get(label) {
            Some(Done::Run(run)) => Ok(run),
            _ => Err(Error::Problem { reason: format!("the study has no finished run '{label}'") }),
        }
    }

    /// The result of a measurement; an error if there is none.
    pub fn measured<T: DeserializeOwned>(&self, label: &str) -> Result<T> {
        let wrong = |what: String| Error::Problem { reason: format!("the measurement '{label}' {what}") };
        match self.get(label) {
            Some(Done::Measured { value, .. }) => {
                T::deserialize(value).map_err(|error| wrong(format!("has a different form: {error}")))
            }
            _ => Err(wrong("is missing".into())),
        }
    }

    /// Seconds an item took.
    pub fn seconds(&self, label: &str) -> Option<f64> {
        match self.get(label)? {
            Done::Run(run) => Some(run.seconds),
            Done::Measured { seconds, .. } => Some(*seconds),
            Done::NotApplicable(_) => None,
        }
    }
}

/// The results of a study.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Warnings to read before anything else.
    pub warnings: Vec<String>,
    /// Its numbers, each beside those it is compared with: a file of them, and a table.
    pub rows: Vec<Row>,
    /// Tables of its own, for the terminal and the page; where there are some, the rows are not shown on a terminal.
    pub tables: Vec<Table>,
    /// The results in sentences, for the terminal and the page.
    pub said: Vec<String>,
    /// Figures and everything else on the page.
    pub sections: Vec<Section>,
}

impl Findings {
    /// Rows and plots, and nothing else.
    pub fn new(rows: Vec<Row>, plots: impl IntoIterator<Item = Plot>) -> Self {
        Findings { rows, sections: plots.into_iter().map(Section::Plot).collect(), ..Findings::default() }
    }
}

/// Conducts a study: asks for its items, has each stage done, and so on until nothing is left. A stage adds its items to those that are
/// done, which are there even where it fails.
pub fn conduct<E: From<Error>>(
    study: &dyn Study,
    plan: &Plan,
    done: &mut Finished,
    mut stage: impl FnMut(&[Item], &mut Finished) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut items = study.items(plan)?;
    while !items.is_empty() {
        for (n, item) in items.iter().enumerate() {
            if done.get(&item.label).is_some() || items[..n].iter().any(|other| other.label == item.label) {
                let reason = format!("the study {} has two items named '{}'", study.name(), item.label);
                return Err(Error::Problem { reason }.into());
            }
        }
        stage(&items, done)?;
        items = study.next(plan, done)?;
    }
    Ok(())
}

/// Conducts a study here and now, one item after the other, and keeps nothing: for tests and programs of one's own.
///
/// ```
/// use bilevel_tasks::{Place, Plan, Registry, in_memory};
/// let registry = Registry::everything();
/// let plan = Plan { quick: true, ..Plan::new(&registry) };
/// let toy = registry.known_study("toy-polynomial")?;
/// let found = in_memory(&**toy, &plan, &Place::new(&registry, bilevel::Cpu::with_threads(1)))?;
/// assert_eq!(found.rows[0].paper, Some(0.0083));
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn in_memory(study: &dyn Study, plan: &Plan, place: &Place) -> Result<Findings> {
    let mut done = Finished::default();
    conduct(study, plan, &mut done, |items, done| -> Result<()> {
        for item in items {
            done.add(item.label.clone(), do_item(item, place)?);
        }
        Ok(())
    })?;
    study.findings(plan, &done)
}

/// Does one item and keeps nothing.
pub fn do_item(item: &Item, place: &Place) -> Result<Done> {
    let began = Instant::now();
    match &item.work {
        Work::Measure(measure) => {
            let value = measure.take(place)?;
            Ok(Done::Measured { value, seconds: began.elapsed().as_secs_f64() })
        }
        Work::Run(config) => {
            let recorder = Recorder::new();
            let problem = config.problem(place.registry)?;
            let driver = config.driver(place.registry, &problem, place.boxed_executor())?;
            let driver = driver.measure_every(config.metrics.every).stop_signal(place.signal.clone());
            let outcome = match driver.observe(recorder.clone()).run() {
                Err(error @ Error::NotApplicable { .. }) => return Ok(Done::NotApplicable(error.to_string())),
                outcome => outcome?,
            };
            let Some(result) = RunResult::new(config, &problem, &outcome)? else {
                return Err(Error::Problem { reason: format!("'{}' {}", item.label, outcome.reason) });
            };
            let passes = place.registry.known_method(config.method.name())?.passes;
            Ok(Done::Run(Box::new(FinishedRun {
                config: (**config).clone(),
                price: price(result.oracles, passes),
                result,
                history: History::of(&recorder.iterations()),
                lambda: LambdaLeaf::all(&outcome.lambda),
                seconds: outcome.elapsed.as_secs_f64(),
            })))
        }
    }
}
