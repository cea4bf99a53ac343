//! A study: a list of items, and a pure function from their results to rows, tables and figures.
//!
//! An item is a run of the driver or a measurement. The conductor of a study decides where items run, how many at a
//! time, and where their records are stored, independently of the study. Items that depend on the results of others
//! come in a later stage: [`Study::next`] is called until it returns no more items. Because it depends only on
//! records, an interrupted study can be continued, and its rows are those of an uninterrupted one.

use crate::price::price;
use crate::run::{HeldOut, History, LambdaLeaf, RunResult, save_lambda};
use crate::{AnyTask, Config, Device, Registry, Row};
use bilevel::files::save_tree;
use bilevel::graph::Executor;
use bilevel::observers::{Recorder, StopSignal};
use bilevel::{Array, Error, Named, Result};
use bilevel_report::{Plot, Section, Table};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

/// The file of λ in the folder of a run.
pub const LAMBDA_FILE: &str = "lambda.safetensors";
/// The file of θ in the folder of a run that keeps it.
pub const THETA_FILE: &str = "theta.safetensors";

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

/// How much of a study is done.
///
/// ```
/// use bilevel_run::Scale;
/// assert_eq!("paper".parse(), Ok(Scale::Paper));
/// assert_eq!("papr".parse::<Scale>().unwrap_err(), "'papr' is not a scale; use quick, full or paper");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scale {
    /// Few seeds and low limits: rough numbers in seconds.
    Quick,
    /// Minutes.
    #[default]
    Full,
    /// The protocol of the paper as it is stated, nothing shortened.
    Paper,
}

impl Scale {
    /// All of them, the smallest first.
    pub const ALL: [Scale; 3] = [Scale::Quick, Scale::Full, Scale::Paper];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Scale::Quick => "quick",
            Scale::Full => "full",
            Scale::Paper => "paper",
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let found = Scale::ALL.into_iter().find(|scale| scale.name() == name);
        found.ok_or_else(|| format!("'{name}' is not a scale; use quick, full or paper"))
    }
}

/// How a study is to be conducted.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The known tasks, methods and optimizers.
    pub registry: &'a Registry,
    /// How much is done (`--scale`).
    pub scale: Scale,
    /// The first seed (`--seed`).
    pub seed: u64,
    /// The folder of data files (`--data`).
    pub data: Option<PathBuf>,
    /// The device (`--device`).
    pub device: Device,
    /// The folder of its items: each has a subfolder named by its label.
    pub folder: PathBuf,
}

impl<'a> Plan<'a> {
    /// In full, from seed 0, on the CPU, without data.
    pub fn new(registry: &'a Registry) -> Self {
        Plan { registry, scale: Scale::Full, seed: 0, data: None, device: Device::Cpu, folder: PathBuf::new() }
    }

    /// The file in which an item that is done has kept λ, for another item to start from.
    pub fn lambda_of(&self, label: &str) -> String {
        self.folder.join(label).join(LAMBDA_FILE).to_string_lossy().into_owned()
    }

    /// The same for θ: of a run that was told to keep it, or of a measurement that does.
    pub fn theta_of(&self, label: &str) -> String {
        self.folder.join(label).join(THETA_FILE).to_string_lossy().into_owned()
    }

    /// Chooses one of two values; the size of the paper is that of the full form.
    pub fn choose<T>(&self, quick: T, full: T) -> T {
        if self.scale == Scale::Quick { quick } else { full }
    }

    /// Returns true for a quick test, whose numbers are not compared.
    pub fn is_quick(&self) -> bool {
        self.scale == Scale::Quick
    }

    /// A run of a task with these settings on the plan's device, from its first seed. Nothing is held out, as in
    /// publications.
    pub fn run(&self, task: &dyn AnyTask) -> Result<Config> {
        let data = self.data.as_ref().filter(|_| task.reads_data());
        let data = data.map_or(String::new(), |data| data.to_string_lossy().into_owned());
        let held_out = HeldOut::NOTHING;
        Ok(Config { seed: self.seed, data, device: self.device, held_out, ..self.registry.config(task)? })
    }
}

/// A piece of work with its own record.
pub struct Item {
    /// Its name among the items, and that of its folder.
    pub label: String,
    /// It measures times, so nothing else should run at the same time.
    pub alone: bool,
    /// The work.
    pub work: Work,
}

/// The work.
pub enum Work {
    /// A run of the driver, with metrics and checkpoints.
    Run(Box<Config>),
    /// A measurement of any other kind.
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

    /// Marks the item to run alone.
    pub fn alone(self) -> Self {
        Item { alone: true, ..self }
    }

    /// Its work in gradient steps, which weights it in the progress of its study. The work of a measurement is unknown.
    pub fn weight(&self) -> Option<f64> {
        match &self.work {
            Work::Run(config) => Some(f64::from(config.outer.iterations) * config.inner.steps.max(1) as f64),
            Work::Measure(_) => None,
        }
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

/// A measurement: everything it depends on, and its computation. Its result is stored as JSON, in which a number that
/// is not finite is none: use an `Option` if there may be one.
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
        serde_json::to_value(Measure::take(self, place)?).map_err(Error::other)
    }
}

/// The environment of an item.
#[derive(Clone)]
pub struct Place<'a> {
    /// The known tasks, methods and optimizers.
    pub registry: &'a Registry,
    /// The executor that runs programs.
    pub executor: Arc<dyn Executor>,
    /// Set if the work should stop.
    pub signal: StopSignal,
    /// The folder of data files.
    pub data: Option<PathBuf>,
    /// The folder of the item, for λ and θ that other items start from.
    pub folder: PathBuf,
    /// Receives the finished part of the item, from 0 to 1.
    pub progress: Arc<dyn Fn(f64) + Send + Sync>,
}

impl<'a> Place<'a> {
    /// With this executor, and without an observer.
    pub fn new(registry: &'a Registry, executor: impl Executor + 'static) -> Self {
        let (signal, progress) = (StopSignal::new(), Arc::new(|_| ()));
        Place { registry, executor: Arc::new(executor), signal, data: None, folder: PathBuf::new(), progress }
    }

    /// Keeps λ in the folder of the item, if there is one: see [`Plan::lambda_of`].
    pub fn keep_lambda(&self, lambda: &Named<Array>) -> Result<()> {
        self.keep(LAMBDA_FILE, |path| save_lambda(lambda, path))
    }

    /// Keeps θ in the folder of the item, if there is one: see [`Plan::theta_of`].
    pub fn keep_theta(&self, theta: &Named<Array>) -> Result<()> {
        self.keep(THETA_FILE, |path| save_tree(theta, path))
    }

    fn keep(&self, name: &str, save: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        if self.folder.as_os_str().is_empty() {
            return Ok(());
        }
        let cannot =
            |error: std::io::Error| Error::other(format!("cannot make the folder {}: {error}", self.folder.display()));
        std::fs::create_dir_all(&self.folder).map_err(cannot)?;
        save(&self.folder.join(name))
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
    /// A finished run with this result, history and λ.
    pub fn new(
        registry: &Registry,
        config: &Config,
        result: RunResult,
        history: History,
        lambda: Vec<LambdaLeaf>,
    ) -> Result<Self> {
        let passes = registry.known_method(config.method.name())?.passes;
        Ok(FinishedRun {
            config: config.clone(),
            price: price(result.oracles, passes),
            seconds: history.last().and_then(|row| row.seconds).unwrap_or(f64::NAN),
            result,
            history,
            lambda,
        })
    }

    /// Returns false if it diverged.
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
    /// A finished run.
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

    /// All finished runs, with their labels.
    pub fn runs(&self) -> impl Iterator<Item = (&str, &FinishedRun)> {
        self.iter().filter_map(|(label, done)| match done {
            Done::Run(run) => Some((label, &**run)),
            _ => None,
        })
    }

    /// The run of this label, or an error.
    pub fn run(&self, label: &str) -> Result<&FinishedRun> {
        match self.get(label) {
            Some(Done::Run(run)) => Ok(run),
            _ => Err(Error::other(format!("the study has no finished run '{label}'"))),
        }
    }

    /// The result of a measurement; an error if there is none.
    pub fn measured<T: DeserializeOwned>(&self, label: &str) -> Result<T> {
        let wrong = |what: String| Error::other(format!("the measurement '{label}' {what}"));
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
    /// Warnings for the top of the page.
    pub warnings: Vec<String>,
    /// Its numbers with those for comparison, as a file and a table.
    pub rows: Vec<Row>,
    /// Its own tables, for the terminal and the page; if there are some, the rows are not shown on a terminal.
    pub tables: Vec<Table>,
    /// The results in sentences, for the terminal and the page.
    pub said: Vec<String>,
    /// Figures and everything else on the page.
    pub sections: Vec<Section>,
}

impl Findings {
    /// Findings of rows and plots only.
    pub fn new(rows: Vec<Row>, plots: impl IntoIterator<Item = Plot>) -> Self {
        Findings { rows, sections: plots.into_iter().map(Section::Plot).collect(), ..Findings::default() }
    }
}

/// Conducts a study: runs the selected items stage by stage until none is left. A stage adds its items to the finished
/// ones, even if it fails. Items that depend on a skipped one are skipped too.
pub fn conduct<E: From<Error>>(
    study: &dyn Study,
    plan: &Plan,
    done: &mut Finished,
    wanted: impl Fn(&Item) -> bool,
    mut stage: impl FnMut(&[Item], &mut Finished) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut items = study.items(plan)?;
    let mut is_partial = false;
    while !items.is_empty() {
        for (n, item) in items.iter().enumerate() {
            if done.get(&item.label).is_some() || items[..n].iter().any(|other| other.label == item.label) {
                let reason = format!("the study {} has two items named '{}'", study.name(), item.label);
                return Err(Error::other(reason).into());
            }
        }
        let all = items.len();
        items.retain(&wanted);
        is_partial |= items.len() < all;
        if items.is_empty() {
            break;
        }
        stage(&items, done)?;
        items = match study.next(plan, done) {
            Err(_) if is_partial => vec![],
            next => next?,
        };
    }
    Ok(())
}

/// Conducts a study in memory, one item after the other, for tests and your own programs.
pub fn in_memory(study: &dyn Study, plan: &Plan, place: &Place) -> Result<Findings> {
    // λ and θ go from one item to the next in files.
    let cannot = |error: std::io::Error| Error::other(format!("there is no temporary folder: {error}"));
    let folder = tempfile::tempdir().map_err(cannot)?;
    let plan = Plan { folder: folder.path().to_path_buf(), ..plan.clone() };
    let mut done = Finished::default();
    conduct(
        study,
        &plan,
        &mut done,
        |_| true,
        |items, done| -> Result<()> {
            for item in items {
                let place = Place { folder: plan.folder.join(&item.label), ..place.clone() };
                done.add(item.label.clone(), do_item(item, &place)?);
            }
            Ok(())
        },
    )?;
    study.findings(&plan, &done)
}

/// Computes one item, and keeps λ and θ in the folder of the place, if there is one.
pub fn do_item(item: &Item, place: &Place) -> Result<Done> {
    let began = Instant::now();
    match &item.work {
        Work::Measure(measure) => {
            let value = measure.take(place)?;
            Ok(Done::Measured { value, seconds: began.elapsed().as_secs_f64() })
        }
        Work::Run(config) => {
            let (recorder, config) = (Recorder::new(), (**config).clone().sealed()?);
            let problem = config.problem_on(place.registry, &*place.executor, &place.signal)?;
            let ran = config.run_on(place.registry, &problem, place.boxed_executor(), |driver| {
                driver.stop_signal(place.signal.clone()).observe(recorder.clone())
            });
            let (outcome, result) = match ran {
                Err(error @ Error::NotApplicable { .. }) => return Ok(Done::NotApplicable(error.to_string())),
                ran => ran?,
            };
            let Some(result) = result else {
                return Err(Error::other(format!("'{}' {}", item.label, outcome.reason)));
            };
            place.keep_lambda(&outcome.lambda)?;
            if config.checkpoint.theta {
                place.keep_theta(&outcome.theta)?;
            }
            let (history, lambda) = (History::of(&recorder.iterations()), LambdaLeaf::all(&outcome.lambda));
            Ok(Done::Run(Box::new(FinishedRun::new(place.registry, &config, result, history, lambda)?)))
        }
    }
}
