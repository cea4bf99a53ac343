//! The configuration of a run: defaults that depend on the experiment and the method, and a user's settings on top.
//!
//! A default is complete: every key a run has is in it, so it also says which keys there are and of what type. A user's
//! settings, from a file, from `--set` or from an argument of their own, may change what is there and nothing else.

use crate::config_entries::{Entry, Given};
use crate::config_errors::{ConfigError, Wrong};
use crate::config_text;
use crate::device::{AnyExecutor, Device};
use crate::errors::Result;
use crate::outer_settings::{
    OPTIMIZERS, Outer, SCHEDULES, ScheduleSettings, in_table, named_optimizer, usual_optimizer,
};
use bilevel::{AnyMethod, Chains, DType, Driver, InnerOptimizer, Method, Optimizer, Precision};
use bilevel_tasks::{Setup, Task, TaskOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The largest whole number a key takes, the seed excepted.
const LARGEST: i64 = u32::MAX as i64;

/// Keys that take one of a few words.
pub const WORDS: [(&str, &[&str]); 2] = [
    ("dtype", &["f32", "f64"]),
    ("precision", &[Precision::Full.name(), Precision::Tf32.name(), Precision::Bf16.name()]),
];

/// What `method.storage` takes.
const STORAGE: &str = "\"all\", \"checkpoints\" or { truncated = STEPS }";

/// Everything a run depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of the task.
    pub experiment: String,
    /// Everything random follows from it.
    pub seed: u64,
    /// Independent chains averaged in a hypergradient.
    pub chains: usize,
    /// Threads to run on; 0 is all cores.
    pub threads: usize,
    /// Where to run.
    pub device: Device,
    /// The floating-point type.
    pub dtype: Float,
    /// What operands of products are rounded to.
    #[serde(with = "bilevel::precision_name")]
    pub precision: Precision,
    /// Folder of data files; empty for none.
    pub data: String,
    /// The method with its settings.
    pub method: AnyMethod,
    /// The inner loop over the outer iterations.
    pub inner: Inner,
    /// The outer loop.
    pub outer: Outer,
    /// When to save.
    pub checkpoint: Checkpoint,
    /// When to measure.
    pub metrics: Metrics,
}

/// A floating-point type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Float {
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
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
    /// Every so many iterations.
    pub every: u32,
}

/// When to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// The experiment's own measures every so many iterations.
    pub every: u32,
    /// A diagnosis of the hypergradient every so many iterations; 0 is never.
    pub diagnose: u32,
    /// Event files for TensorBoard as well.
    pub tensorboard: bool,
}

/// A table in which one word decides which other keys it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// The table.
    pub table: &'static str,
    /// The key of the word.
    pub tag: &'static str,
    /// Both, with a point between them.
    pub key: &'static str,
}

/// All of them, those first that decide whether others are there.
pub const TAGGED: [Tagged; 5] = [
    Tagged { table: "method", tag: "name", key: "method.name" },
    Tagged { table: "method.optimizer", tag: "name", key: "method.optimizer.name" },
    Tagged { table: "outer.optimizer", tag: "name", key: "outer.optimizer.name" },
    Tagged { table: "outer.schedule", tag: "shape", key: "outer.schedule.shape" },
    Tagged { table: "inner.schedule", tag: "shape", key: "inner.schedule.shape" },
];

impl Tagged {
    /// The words it can be.
    pub fn words(&self) -> Vec<&'static str> {
        match self.table {
            "method" => bilevel::methods().iter().map(|info| info.name).collect(),
            "outer.schedule" | "inner.schedule" => SCHEDULES.to_vec(),
            _ => OPTIMIZERS.to_vec(),
        }
    }
}

/// The words that decide which other keys there are.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    /// The task.
    pub task: &'static Task,
    /// Words that were chosen, with their keys, which are those of [`TAGGED`]; for the others the task knows one.
    pub words: Vec<(&'static str, &'a str)>,
    /// Iterations that schedules chosen here go over; the task's own if `None`.
    pub iterations: Option<u32>,
}

impl<'a> Choices<'a> {
    /// The task as it is.
    pub fn of(task: &'static Task) -> Self {
        Choices { task, words: vec![], iterations: None }
    }

    /// The same with another word.
    pub fn with(mut self, key: &'static str, word: &'a str) -> Self {
        self.words.push((key, word));
        self
    }

    fn word(&self, key: &str) -> Option<&'a str> {
        self.words.iter().rev().find(|(chosen, _)| *chosen == key).map(|(_, word)| *word)
    }

    /// The method, with the optimizer that was chosen for it.
    fn method(&self) -> std::result::Result<AnyMethod, ConfigError> {
        let refuse = |error: bilevel::Error| ConfigError { place: None, wrong: Wrong::Other(error.to_string()) };
        let method = self.task.method(self.word("method.name").unwrap_or(self.task.defaults.method)).map_err(refuse)?;
        let key = "method.optimizer.name";
        let Some(optimizer) = self.word(key).map(|name| named_optimizer(key, name)).transpose()? else {
            return Ok(method);
        };
        let other = |error: serde_json::Error| ConfigError { place: None, wrong: Wrong::Other(error.to_string()) };
        let mut settings = serde_json::to_value(&method).map_err(other)?;
        // Of a method that has none the key is refused where all keys are looked for.
        let Some(place) = settings.get_mut("optimizer") else { return Ok(method) };
        *place = serde_json::to_value(optimizer).map_err(other)?;
        serde_json::from_value(settings).map_err(other)
    }

    /// The default configuration of these choices.
    pub fn defaults(&self) -> std::result::Result<Config, ConfigError> {
        let d = &self.task.defaults;
        let over = self.iterations.unwrap_or(d.iterations);
        let schedule =
            |key: &'static str| self.word(key).map(|shape| ScheduleSettings::named(key, shape, over)).transpose();
        let optimizer = self.word("outer.optimizer.name").map(|name| named_optimizer("outer.optimizer.name", name));
        Ok(Config {
            experiment: self.task.name.into(),
            seed: 0,
            chains: 1,
            threads: 0,
            device: Device::Cpu,
            dtype: if d.dtype == DType::F32 { Float::F32 } else { Float::F64 },
            precision: Precision::Full,
            data: String::new(),
            method: self.method()?,
            inner: Inner {
                schedule: match schedule("inner.schedule.shape")? {
                    Some(schedule) => schedule.above_zero(),
                    None => ScheduleSettings::Constant { warm_up: 0 },
                },
            },
            outer: Outer {
                iterations: d.iterations,
                rate: d.rate,
                cold: d.cold,
                clip: 0.0,
                tolerance: 0.0,
                patience: 0,
                improvement: 0.0,
                optimizer: optimizer.transpose()?.unwrap_or(usual_optimizer(d.optimizer)),
                schedule: match schedule("outer.schedule.shape")? {
                    Some(schedule) => schedule,
                    None if d.cosine => ScheduleSettings::cosine(d.iterations),
                    None => ScheduleSettings::Constant { warm_up: 0 },
                },
            },
            checkpoint: Checkpoint { every: (d.iterations / 10).max(10) },
            metrics: Metrics {
                every: (d.iterations / 100).max(1),
                diagnose: (d.iterations / 100).max(1),
                tensorboard: false,
            },
        })
    }
}

impl Config {
    /// The configuration that a list of settings asks for; of two for the same key the later counts.
    ///
    /// ```
    /// use bilevel_cli::{config::Config, config_entries::parse};
    /// let entries = parse(b"experiment = \"synth1d\"\n[method]\nname = \"rmd\"\nsteps = 5\n", "my.toml".as_ref())?;
    /// assert!(Config::resolve(&entries)?.to_toml().contains("steps = 5"));
    /// let entries = parse(b"experiment = \"synth1d\"\n[method]\nname = \"rmd\"\nstpes = 5\n", "my.toml".as_ref())?;
    /// let error = Config::resolve(&entries).unwrap_err().to_string();
    /// assert_eq!(error, "my.toml, line 4: there is no key 'method.stpes'; did you mean method.steps?");
    /// # Ok::<(), bilevel_cli::config_errors::ConfigError>(())
    /// ```
    pub fn resolve(entries: &[Entry]) -> std::result::Result<Self, ConfigError> {
        // What is longer than any word there is would only make the search for the nearest one long.
        for Entry { key, value, place } in entries {
            let given = if let Given::Text(text) = value { text.len() } else { 0 };
            if given > crate::LONGEST || key.iter().any(|part| part.len() > crate::LONGEST) {
                let what = if given > crate::LONGEST { "value" } else { "key" };
                let wrong = format!("a {what} is too long; the longest may have {} bytes", crate::LONGEST);
                return Err(ConfigError::at(place, Wrong::Other(wrong)));
            }
        }
        let word = |key: &str| -> std::result::Result<Option<(&Entry, &str)>, ConfigError> {
            match entries.iter().rev().find(|entry| entry.dotted() == key) {
                None => Ok(None),
                Some(entry @ Entry { value: Given::Text(text), .. }) => Ok(Some((entry, text))),
                Some(entry) => Err(wrong_type(entry, "a string")),
            }
        };
        let Some((named, experiment)) = word("experiment")? else {
            let place = entries.first().map(|entry| entry.place.clone());
            return Err(ConfigError { place, wrong: Wrong::NoExperiment });
        };
        let task = bilevel_tasks::task(experiment)
            .map_err(|error| ConfigError::at(&named.place, Wrong::Other(error.to_string())))?;
        let iterations = entries.iter().rfind(|entry| entry.dotted() == "outer.iterations");
        let iterations = iterations.and_then(|entry| match entry.value {
            Given::Whole(count @ 1..=LARGEST) => Some(count as u32),
            _ => None,
        });
        let mut choices = Choices { iterations, ..Choices::of(task) };
        // One after another, so that a word that is not known is blamed on its own place.
        for Tagged { key, .. } in TAGGED {
            let Some((entry, text)) = word(key)? else { continue };
            choices = choices.with(key, text);
            choices.defaults().map_err(|error| ConfigError { place: Some(entry.place.clone()), ..error })?;
        }
        let mut settings = choices.defaults()?.settings();
        for entry in entries {
            apply(&mut settings, entry)?;
        }
        // A table that says nothing of what is kept.
        if settings["method"].get("storage").and_then(Value::as_object).is_some_and(Map::is_empty)
            && let Some(entry) = entries.iter().rev().find(|entry| entry.key == ["method", "storage"])
        {
            let given = Given::EmptyTable;
            return Err(wrong_type(&Entry { value: given, ..entry.clone() }, STORAGE));
        }
        let other = |error: serde_json::Error| ConfigError { place: None, wrong: Wrong::Other(error.to_string()) };
        let config: Config = serde_json::from_value(Value::Object(settings)).map_err(other)?;
        config.check().map_err(|error| match (&error.wrong, error.place) {
            // The place is that of the key the complaint is about.
            (Wrong::OutOfRange { key, .. }, None) => {
                let given = entries.iter().rev().find(|entry| entry.dotted() == *key);
                ConfigError { place: given.map(|entry| entry.place.clone()), wrong: error.wrong }
            }
            (_, place) => ConfigError { place, wrong: error.wrong },
        })?;
        Ok(config)
    }

    /// All keys and values, in order.
    pub fn settings(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(settings)) => settings,
            // Structs of numbers and words can always be written down.
            _ => Map::new(),
        }
    }

    /// The configuration as a file, every key with what it means.
    pub fn to_toml(&self) -> String {
        config_text::to_toml(&self.settings())
    }

    /// Sixteen digits that differ where two runs may differ in their results: what only says where to run, where data lie
    /// and how often to save and measure is left out.
    pub fn hash(&self) -> String {
        let mut settings = self.settings();
        for key in ["threads", "data", "checkpoint", "metrics"] {
            settings.shift_remove(key);
        }
        digits(&Value::Object(settings).to_string())
    }

    /// The same without the number of iterations and the device, which may be changed when a run is resumed.
    pub fn path_hash(&self) -> String {
        let mut longer = Config { device: Device::Cpu, ..self.clone() };
        longer.outer.iterations = 0;
        longer.hash()
    }

    fn check(&self) -> std::result::Result<(), ConfigError> {
        let require = |holds: bool, key: &str, given: f64, must: &str| {
            if holds { Ok(()) } else { Err(ConfigError::range(key, given, must)) }
        };
        require(self.chains >= 1 && self.chains <= 4096, "chains", self.chains as f64, "from 1 to 4096")?;
        require(self.threads <= 1024, "threads", self.threads as f64, "at most 1024")?;
        if self.dtype == Float::F64 && self.precision != Precision::Full {
            let must = "full where dtype is f64, whose products have one precision; choose dtype f32";
            return Err(ConfigError::range("precision", self.precision, must));
        }
        require(self.checkpoint.every >= 1, "checkpoint.every", 0.0, "at least 1")?;
        require(self.metrics.every >= 1, "metrics.every", 0.0, "at least 1")?;
        self.inner.schedule.check("inner", 1.0)?;
        if let Some(optimizer) = self.inner_optimizer() {
            optimizer.check().map_err(|error| in_table("method.optimizer", error))?;
        }
        self.outer.check()
    }

    /// The optimizer of the inner loop, where the method has one.
    fn inner_optimizer(&self) -> Option<InnerOptimizer> {
        let settings = serde_json::to_value(&self.method).ok()?;
        serde_json::from_value(settings.get("optimizer")?.clone()).ok()
    }

    /// The task.
    pub fn task(&self) -> Result<&'static Task> {
        Ok(bilevel_tasks::task(&self.experiment)?)
    }

    /// The task's problem.
    pub fn setup(&self) -> Result<Setup> {
        let dtype = match self.dtype {
            Float::F32 => DType::F32,
            Float::F64 => DType::F64,
        };
        let data_dir = (!self.data.is_empty()).then(|| PathBuf::from(&self.data));
        let setup = self.task()?.setup(&TaskOptions { seed: self.seed, data_dir, dtype: Some(dtype) })?;
        Ok(Setup { problem: setup.problem.in_precision(self.precision)?, ..setup })
    }

    /// What it runs on; an error where the device cannot be used.
    pub fn executor(&self) -> Result<AnyExecutor> {
        self.device.executor(self.threads)
    }

    /// The method, in as many chains as asked for.
    pub fn method(&self) -> Box<dyn Method> {
        match self.chains {
            1 => Box::new(self.method.clone()),
            count => Box::new(Chains::new(self.method.clone(), count)),
        }
    }

    /// The outer loop on this problem; observers, signal and checkpoints are the caller's to add.
    pub fn driver(&self, setup: &Setup) -> Result<Driver> {
        let outer = &self.outer;
        let mut driver = Driver::new(&setup.problem, self.method())
            .executor(self.executor()?)
            .optimizer(outer.optimizer)
            .schedule(outer.schedule.build(outer.rate))
            .seed(self.seed)
            .cold(outer.cold)
            .diagnose_every(self.metrics.diagnose)
            .iterations(outer.iterations);
        if self.inner.schedule != (ScheduleSettings::Constant { warm_up: 0 }) {
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

/// FNV-1a: not against malice, only against mixing runs up.
fn digits(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ b as u64).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

fn wrong_type(entry: &Entry, takes: &'static str) -> ConfigError {
    let wrong = Wrong::WrongType { key: entry.dotted(), takes, given: entry.value.describe() };
    ConfigError::at(&entry.place, wrong)
}

/// The error for a whole number that no key of its kind can hold.
fn beyond(entry: &Entry, number: impl std::fmt::Display, negative: bool) -> ConfigError {
    let key = entry.dotted();
    let must = match key.as_str() {
        "chains" => "from 1 to 4096".into(),
        "outer.iterations" | "checkpoint.every" | "metrics.every" if negative => "at least 1".into(),
        _ if negative => "at least 0".into(),
        "seed" => format!("at most {}", i64::MAX),
        _ => format!("at most {LARGEST}"),
    };
    ConfigError { place: Some(entry.place.clone()), ..ConfigError::range(&key, number, &must) }
}

/// Puts one setting in its place.
fn apply(settings: &mut Map<String, Value>, entry: &Entry) -> std::result::Result<(), ConfigError> {
    // The one key that takes a word or a number: how much of the inner loop reverse mode keeps.
    if entry.key == ["method", "storage", "truncated"] && settings["method"].get("storage").is_some() {
        let Given::Whole(kept @ 1..=LARGEST) = entry.value else {
            return Err(wrong_type(entry, "a whole number, at least 1"));
        };
        settings["method"]["storage"] = serde_json::json!({ "truncated": kept });
        return Ok(());
    }
    if entry.key == ["method", "storage"]
        && let Some(storage) = settings["method"].get_mut("storage")
    {
        return match &entry.value {
            Given::Text(word) if word == "all" || word == "checkpoints" => {
                *storage = Value::from(word.as_str());
                Ok(())
            }
            Given::Table => {
                *storage = Value::Object(Map::new());
                Ok(())
            }
            _ => Err(wrong_type(entry, STORAGE)),
        };
    }
    let Some(value) = find(settings, &entry.key) else { return Err(unknown_key(settings, entry)) };
    match (&mut *value, &entry.value) {
        (Value::Object(_), Given::Table) => {}
        (Value::Object(_), Given::EmptyTable) => return Err(wrong_type(entry, "a table with settings in it")),
        (Value::Object(_), _) => return Err(wrong_type(entry, "a table")),
        (Value::Bool(_), Given::Truth(truth)) => *value = Value::from(*truth),
        (Value::Bool(_), _) => return Err(wrong_type(entry, "true or false")),
        (Value::String(_), Given::Text(text)) => {
            let choice = WORDS.iter().find(|(key, words)| entry.key == [*key] && !words.contains(&text.as_str()));
            if let Some((key, words)) = choice {
                let known = words.iter().map(|word| word.to_string()).collect();
                let near = bilevel::nearest(text, words.iter().copied()).map(String::from);
                let wrong = Wrong::UnknownWord { key, given: text.clone(), near, known };
                return Err(ConfigError::at(&entry.place, wrong));
            }
            if entry.key == ["device"]
                && let Err(wrong) = text.parse::<Device>()
            {
                return Err(ConfigError::at(&entry.place, Wrong::Other(wrong)));
            }
            *value = Value::from(text.as_str());
        }
        (Value::String(_), _) => return Err(wrong_type(entry, "a string")),
        (Value::Number(old), given) if old.is_f64() => {
            let number = match given {
                Given::Whole(number) => *number as f64,
                Given::Number(number) => *number,
                Given::TooLarge(number) => number.parse().unwrap_or(f64::INFINITY),
                _ => return Err(wrong_type(entry, "a number")),
            };
            let Some(number) = serde_json::Number::from_f64(number) else {
                let error = ConfigError::range(&entry.dotted(), number, "finite");
                return Err(ConfigError { place: Some(entry.place.clone()), ..error });
            };
            *value = Value::Number(number);
        }
        (_, Given::Whole(number)) => {
            if *number < 0 || (*number > LARGEST && entry.key != ["seed"]) {
                return Err(beyond(entry, number, *number < 0));
            }
            *value = Value::from(*number);
        }
        (_, Given::TooLarge(number)) => return Err(beyond(entry, number, number.starts_with('-'))),
        (_, _) => return Err(wrong_type(entry, "a whole number")),
    }
    Ok(())
}

fn find<'a>(settings: &'a mut Map<String, Value>, key: &[String]) -> Option<&'a mut Value> {
    let (last, tables) = key.split_last()?;
    let mut table = settings;
    for name in tables {
        table = table.get_mut(name)?.as_object_mut()?;
    }
    table.get_mut(last)
}

/// The length of the inner loop, by what other methods call it.
const SAME: [(&str, &str); 2] = [("steps", "samples"), ("samples", "steps")];

/// The error for a key that is not there. It may stand elsewhere, be a slip among its neighbours, or a slip in the whole.
fn unknown_key(settings: &mut Map<String, Value>, entry: &Entry) -> ConfigError {
    let all = config_text::keys(settings);
    let (last, table) = entry.key.split_last().map_or(("", &[][..]), |(last, table)| (last.as_str(), table));
    let prefix = table.iter().map(|part| format!("{part}.")).collect::<String>();
    let beside: Vec<&str> =
        all.iter().filter_map(|key| key.strip_prefix(&prefix)).filter(|rest| !rest.contains('.')).collect();
    let near = bilevel::nearest(last, beside.iter().copied()).map(|name| format!("{prefix}{name}"));
    let elsewhere = || all.iter().find(|key| key.rsplit('.').next() == Some(last)).cloned();
    let same = || {
        let (_, meant) = SAME.iter().find(|(given, meant)| *given == last && beside.contains(meant))?;
        Some(format!("{prefix}{meant}"))
    };
    // In a table there is, a key that resembles none of it is no slip, however much of the path they share.
    let slip = || match beside.is_empty() {
        true => bilevel::nearest(&entry.dotted(), all.iter().map(String::as_str)).map(String::from),
        false => None,
    };
    let near = same().or_else(elsewhere).or(near).or_else(slip);
    let known = if beside.is_empty() {
        settings.keys().cloned().collect()
    } else {
        beside.iter().map(|name| format!("{prefix}{name}")).collect()
    };
    ConfigError::at(&entry.place, Wrong::UnknownKey { key: entry.dotted(), near, known })
}
