//! A study as data: a TOML file with the runs and the numbers for comparison, so that a row or a whole study needs no
//! compiler.
//!
//! ```toml
//! title = "A linear regression at two noises"
//!
//! [settings]                       # keys of a configuration, for every item
//! task.name = "synth1d"
//!
//! [scale.full]
//! seeds = 3                        # of rows that carry an argument; others have one
//! settings.outer.iterations = 200
//!
//! [[group]]                        # every row once for each group
//! name = "noisy"
//! settings.task.noise = 0.3
//!
//! [[metric]]
//! name = "λ"
//! lambda = 0                       # the first number of λ
//!
//! [[row]]
//! method = "RMD"
//! argument = true
//! settings.method.name = "rmd"
//! paper = 0.7363
//! rule.within = 2e-3
//! ```
//!
//! Settings come in layers, in which later ones win: study, GPU, scale, group, row, and row at the scale. They are
//! checked like those of a configuration file, with file, line and key. The guide's chapter *Extending* has every key.

mod curves;
mod findings;
mod items;
mod parse;
mod pictures;
mod reader;
mod rule;
mod taken;

pub use taken::{Taken, TakenPicture};

use crate::config::entries::Entry;
use crate::config::errors::ConfigError;
use crate::{Findings, Finished, Item, Plan, Registry, Scale, Study};
use bilevel::{Error, Result};
use rule::Rule;
use serde_json::{Map, Value};
use std::path::Path;

/// A study that is read from a file.
///
/// ```
/// use bilevel::Cpu;
/// use bilevel_run::manifest::Manifest;
/// use bilevel_run::{Place, Plan, Registry, in_memory};
/// let registry = bilevel_tasks::register(Registry::new());
/// let text = r#"
/// title = "The end of one run"
/// settings.task.name = "synth1d"
/// settings.outer.iterations = 20
/// metric = [{ name = "outer loss", of = "outer loss" }]
/// row = [{ method = "RMD", settings.method.name = "rmd" }]
/// "#;
/// let study = Manifest::parse("mine", "mine.toml".as_ref(), text);
/// let place = Place::new(&registry, Cpu::with_threads(1));
/// let found = in_memory(&study, &Plan::new(&registry), &place)?;
/// assert!(found.rows[0].ours.is_some_and(f64::is_finite));
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct Manifest {
    name: String,
    title: String,
    read: std::result::Result<Contents, ConfigError>,
}

/// The contents of a file.
struct Contents {
    /// How it was done, for the page.
    about: String,
    settings: Vec<Entry>,
    /// Settings that hold on a GPU.
    gpu: Vec<Entry>,
    scales: [AtScale; 3],
    /// The setting that distinguishes groups, if metrics are drawn over it.
    sweep: Option<String>,
    groups: Vec<Group>,
    metrics: Vec<Metric>,
    rows: Vec<RowSpec>,
    follow: Vec<Follow>,
    differences: Vec<Difference>,
    /// The cost of a run in words, with keys in braces, if rows with another cost than the one they are to beat are
    /// named.
    effort: Option<String>,
}

/// The settings of a study, a group or a row that depend on the scale.
#[derive(Clone, Default)]
struct AtScale {
    settings: Vec<Entry>,
    /// Settings of a measure.
    with: Map<String, Value>,
    seeds: Option<u32>,
    looks: Option<u32>,
    saves: Option<u32>,
    /// Groups that there are; all if there are none.
    groups: Vec<String>,
    /// Rows that there are, of a study or a group, by their names; all if there are none.
    rows: Vec<String>,
    /// It is left out.
    skip: bool,
    /// The settings of which a row has the best.
    grid: Vec<Point>,
    /// Whether numbers are compared with the paper's.
    held: Option<bool>,
    about: String,
}

/// One of several settings of a row.
#[derive(Clone)]
struct Point {
    number: usize,
    settings: Vec<Entry>,
}

/// Tasks, data or sizes of which every row is taken.
struct Group {
    name: String,
    settings: Vec<Entry>,
    /// Settings of measures.
    with: Map<String, Value>,
    /// The dataset that is read.
    data: String,
    /// Its place in a sweep over the groups.
    x: Option<f64>,
    scales: [AtScale; 3],
}

/// A number that is read off an item.
struct Metric {
    name: String,
    /// The iterate or the judge it is of, shown among the settings of a row.
    setting: String,
    source: Source,
    /// value = times · (x − minus), its size if it is `absolute`.
    times: f64,
    minus: f64,
    absolute: bool,
    better: Option<Better>,
    rule: Rule,
    /// It is drawn over this: iterations, or the axis of a measure's curve.
    curve: Option<String>,
    /// It is drawn over another axis than iterations, and is no number of a row.
    drawn: bool,
    /// Groups and rows that have it; all if there are none.
    groups: Vec<String>,
    rows: Vec<String>,
}

impl Metric {
    /// The name that other parts of the file call it by.
    fn id(&self) -> String {
        if self.setting.is_empty() { self.name.clone() } else { format!("{}, {}", self.name, self.setting) }
    }
}

/// The source of a number.
enum Source {
    /// A measure at the end, or a loss.
    Measure(String),
    /// The best value of a measure during the run: the least, or the largest if more is better.
    Best(String),
    /// The value of a measure at the iteration with the least value of another.
    AtBest(String, String),
    /// A number of λ.
    Lambda(usize),
    /// The largest size of all numbers of λ but this one, relative to it if that is true.
    LambdaBut(usize, bool),
    /// How many runs diverged, if any did.
    Diverged,
}

#[derive(Clone, Copy, PartialEq)]
enum Better {
    Higher,
    Lower,
}

/// A number, or one for each group.
#[derive(Clone, Default)]
struct ByGroup(Vec<(Option<String>, f64)>);

impl ByGroup {
    fn of(&self, group: &str) -> Option<f64> {
        self.0.iter().find(|(name, _)| name.as_deref().is_none_or(|name| name == group)).map(|(_, number)| *number)
    }
}

/// The numbers that a result is compared with.
#[derive(Clone, Default)]
struct Held {
    metric: String,
    /// The name of the follow-up with the row's learned λ that it belongs to.
    follow: Option<String>,
    paper: ByGroup,
    reference: ByGroup,
    rule: Option<Rule>,
    why: String,
}

/// A row: its run, and the numbers for comparison.
struct RowSpec {
    method: String,
    setting: String,
    /// It carries an argument: it has more seeds, and comes first.
    argument: bool,
    settings: Vec<Entry>,
    /// Settings in some groups, by their names.
    within: Vec<(String, Vec<Entry>)>,
    /// The measure that is taken instead of a run.
    measure: Option<String>,
    /// Settings of its measure, and of the measures that follow it.
    with: Map<String, Value>,
    /// Settings of which it has the best.
    grid: Vec<Point>,
    /// Why it is not run.
    not_run: Option<String>,
    /// The group whose run of the same row it shares.
    shared: Option<String>,
    /// It measures times, so that nothing else runs at the same time.
    alone: bool,
    scales: [AtScale; 3],
    /// Groups that it is taken of; all if there are none.
    groups: Vec<String>,
    /// Metrics that it has; all if there are none.
    metrics: Vec<String>,
    /// It diverged in the paper, or did not arrive.
    diverged: bool,
    held: Vec<Held>,
    follow: Vec<String>,
    /// The row whose θ it starts from.
    theta: Option<String>,
    /// λ is drawn as its task shows it.
    show: bool,
}

impl RowSpec {
    /// Its name among the rows.
    fn name(&self) -> String {
        format!("{} {}", self.method, self.setting).trim().to_string()
    }
}

/// A follow-up run, or a measure, with the learned λ of a row.
struct Follow {
    name: String,
    /// Its rows' method; that of the row and its name if there is none.
    method: Option<String>,
    settings: Vec<Entry>,
    /// The measure that is taken of that λ instead of a run.
    measure: Option<String>,
    with: Map<String, Value>,
    /// Its numbers are those of the row itself.
    judges: bool,
    scales: [AtScale; 3],
    /// The run starts from that λ.
    start: bool,
    /// The setting that takes the numbers of λ.
    take: Option<String>,
    /// As many seeds as the row; one otherwise.
    every_seed: bool,
    /// Metrics that it has; all if there are none.
    metrics: Vec<String>,
}

/// The difference of a metric between two rows.
struct Difference {
    name: String,
    method: String,
    metric: String,
    of: String,
    minus: String,
    paper: Option<f64>,
    why: String,
}

impl Manifest {
    /// Parses the text of a file; if that fails, the study's items return the error.
    pub fn parse(name: &str, path: &Path, text: &str) -> Self {
        let (title, read) = match parse::parse(path, text) {
            Ok((title, contents)) => (title, Ok(contents)),
            Err(error) => (String::new(), Err(error)),
        };
        Manifest { name: name.into(), title, read }
    }

    /// Reads a user's study from a file, after which it is named, and checks all of it.
    pub fn read(registry: &Registry, path: &Path) -> std::result::Result<Self, ConfigError> {
        let failed = |error: std::io::Error| parse::unread(path, &error);
        let text = bilevel::files::whole_file::read_regular(path).map_err(failed)?;
        let text =
            String::from_utf8(text).map_err(|_| parse::unread(path, &std::io::Error::other("it is not UTF-8 text")))?;
        let name = path.file_stem().map_or_else(String::new, |stem| crate::label(&stem.to_string_lossy()));
        let manifest = Self::parse(if name.is_empty() { "study" } else { &name }, path, &text);
        let contents = manifest.read.as_ref().map_err(Clone::clone)?;
        for scale in Scale::ALL {
            contents.check(&Plan { scale, ..Plan::new(registry) })?;
        }
        Ok(manifest)
    }

    fn contents(&self) -> Result<&Contents> {
        self.read.as_ref().map_err(|error| Error::other(error.to_string()))
    }
}

impl Study for Manifest {
    fn name(&self) -> &str {
        &self.name
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        self.contents()?.first(plan)
    }

    fn next(&self, plan: &Plan, done: &Finished) -> Result<Vec<Item>> {
        self.contents()?.next(plan, done)
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        self.contents()?.findings(&self.name, plan, done)
    }
}
