//! From a user's settings to the configuration of a run: defaults that depend on the task and the method, and settings on top.
//!
//! A default is complete: it has every key of a run, and so defines the keys and their types. A user's settings, from a
//! file, from `--set` or from a separate argument, may only change existing keys.

mod arrays;
pub mod entries;
pub mod errors;
mod include;
mod keys;
pub mod schema;
pub mod sweep;
pub mod text;

pub use include::{INCLUDE, parse_including};
pub use keys::Meanings;

use crate::run::{HeldOut, schedules};
use crate::{AnyTask, Config, Device, Registry, Settings};
use bilevel::Precision;
use bilevel::optimizers::{Optimizer, ScheduleSettings};
use entries::{Entry, Given};
use errors::{ConfigError, Instead, Wrong};
use serde_json::{Map, Value};

type Result<T> = std::result::Result<T, ConfigError>;

/// The longest argument and the longest word of a setting, in bytes; no path can be longer.
pub const MAX_WORD_BYTES: usize = 4096;

/// Keys of `[split]` that take a fraction or a number of rows.
const SHARES: [&str; 3] = ["train", "validation", "held_out"];

/// The largest whole number a key takes, the seed excepted.
const LARGEST: i64 = u32::MAX as i64;

/// Keys that take one of a few words.
pub const WORDS: [(&str, &[&str]); 2] = [
    ("dtype", &["f32", "f64"]),
    ("precision", &[Precision::Full.name(), Precision::Tf32.name(), Precision::Bf16.name()]),
];

/// The values of `method.storage`.
const STORAGE: &str = "\"all\", \"checkpoints\" or { truncated = STEPS }";

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

/// All of them; first those that decide whether others exist.
pub const TAGGED: [Tagged; 6] = [
    Tagged { table: "task", tag: "name", key: "task.name" },
    Tagged { table: "method", tag: "name", key: "method.name" },
    Tagged { table: "inner.optimizer", tag: "name", key: "inner.optimizer.name" },
    Tagged { table: "outer.optimizer", tag: "name", key: "outer.optimizer.name" },
    Tagged { table: "outer.schedule", tag: "shape", key: "outer.schedule.shape" },
    Tagged { table: "inner.schedule", tag: "shape", key: "inner.schedule.shape" },
];

impl Tagged {
    /// The words it can be.
    pub fn words(&self, registry: &Registry) -> Vec<&'static str> {
        match self.table {
            "task" => registry.tasks().iter().map(|task| task.name).collect(),
            "method" => registry.methods().iter().map(|method| method.info.name).collect(),
            "outer.schedule" | "inner.schedule" => schedules(1).map(|(name, _)| name).to_vec(),
            "outer.optimizer" => registry.optimizers().iter().map(|optimizer| optimizer.name).collect(),
            _ => crate::run::optimizers().iter().map(|optimizer| optimizer.kind()).collect(),
        }
    }
}

/// The words that decide which other keys there are.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    /// The known tasks, methods and optimizers.
    pub registry: &'a Registry,
    /// The task with its settings.
    pub task: &'a dyn AnyTask,
    /// Chosen words with their keys, which are those of [`TAGGED`]; for the others the task has a default.
    pub words: Vec<(&'static str, &'a str)>,
    /// Iterations that schedules chosen here go over; the task's own if `None`.
    pub iterations: Option<u32>,
}

impl<'a> Choices<'a> {
    /// The task as it is.
    pub fn of(registry: &'a Registry, task: &'a dyn AnyTask) -> Self {
        Choices { registry, task, words: vec![], iterations: None }
    }

    /// The same with another word.
    pub fn with(mut self, key: &'static str, word: &'a str) -> Self {
        self.words.push((key, word));
        self
    }

    fn word(&self, key: &str) -> Option<&'a str> {
        self.words.iter().rev().find(|(chosen, _)| *chosen == key).map(|(_, word)| *word)
    }

    /// The default configuration of these choices.
    pub fn defaults(&self) -> Result<Config> {
        let mut config = self.registry.config(self.task).map_err(other)?;
        if let Some(name) = self.word("method.name") {
            let recipe = self.registry.suited(self.task, name).map_err(other)?;
            config = config.with_method(self.registry, recipe).map_err(other)?;
        }
        if let Some(name) = self.word("inner.optimizer.name") {
            let known = crate::run::optimizers();
            let found = known.iter().find(|optimizer| optimizer.kind() == name);
            let names = || known.iter().map(|optimizer| optimizer.kind()).collect::<Vec<_>>();
            config.inner.optimizer = *found.ok_or_else(|| unknown_word("inner.optimizer.name", name, &names()))?;
        }
        if let Some(name) = self.word("outer.optimizer.name") {
            let known = self.registry.optimizers();
            let names = || known.iter().map(|optimizer| optimizer.name).collect::<Vec<_>>();
            let found = known.iter().find(|optimizer| optimizer.name == name);
            let optimizer = found.ok_or_else(|| unknown_word("outer.optimizer.name", name, &names()))?;
            config.outer.optimizer = optimizer.usual().clone();
        }
        let over = self.iterations.unwrap_or(config.outer.iterations);
        let schedule = |key: &str| -> Result<Option<ScheduleSettings>> {
            let Some(shape) = self.word(key) else { return Ok(None) };
            let known = schedules(over);
            let found = known.iter().find(|(name, _)| *name == shape);
            found
                .map(|(_, schedule)| Some(*schedule))
                .ok_or_else(|| unknown_word(key, shape, &known.map(|(name, _)| name)))
        };
        if let Some(schedule) = schedule("inner.schedule.shape")? {
            config.inner.schedule = schedule.above_zero();
        }
        if let Some(schedule) = schedule("outer.schedule.shape")? {
            config.outer.schedule = schedule;
        }
        Ok(config)
    }
}

/// The library's complaint, without a place.
fn other(error: bilevel::Error) -> ConfigError {
    ConfigError { place: None, wrong: Wrong::Other(error.to_string()) }
}

fn unknown_word(key: &str, given: &str, known: &[&str]) -> ConfigError {
    let instead = match bilevel::errors::nearest(given, known.iter().copied()) {
        Some(near) => Instead::Near(near.into()),
        None => Instead::Known(known.iter().map(|word| word.to_string()).collect()),
    };
    ConfigError { place: None, wrong: Wrong::UnknownWord { key: key.into(), given: given.into(), instead } }
}

/// The configuration given by a list of settings; for the same key the later one counts.
///
/// ```
/// use bilevel_run::config::{entries::parse, resolve, text::to_toml};
/// let registry = bilevel_tasks::register(bilevel_run::Registry::new());
/// let entries = parse(b"[task]\nname = \"synth1d\"\n[inner]\nsteps = 5\n", "my.toml".as_ref())?;
/// assert!(to_toml(&registry, &resolve(&registry, &entries)?).contains("steps = 5"));
/// let entries = parse(b"[task]\nname = \"synth1d\"\nnosie = 1\n", "my.toml".as_ref())?;
/// let error = resolve(&registry, &entries).unwrap_err().to_string();
/// assert_eq!(error, "my.toml, line 3: there is no key 'task.nosie'; did you mean task.noise?");
/// # Ok::<(), bilevel_run::config::errors::ConfigError>(())
/// ```
pub fn resolve(registry: &Registry, entries: &[Entry]) -> Result<Config> {
    // A word longer than any known one would only slow down the search for the nearest.
    for Entry { key, value, place } in entries {
        let given = if let Given::Text(text) = value { text.len() } else { 0 };
        if given > MAX_WORD_BYTES || key.iter().any(|part| part.len() > MAX_WORD_BYTES) {
            let what = if given > MAX_WORD_BYTES { "value" } else { "key" };
            let wrong = format!("a {what} is too long; at most {} bytes are allowed", MAX_WORD_BYTES);
            return Err(ConfigError::at(place, Wrong::Other(wrong)));
        }
    }
    let word = |key: &str| -> Result<Option<(&Entry, &str)>> {
        match entries.iter().rev().find(|entry| entry.dotted() == key) {
            None => Ok(None),
            Some(entry @ Entry { value: Given::Text(text), .. }) => Ok(Some((entry, text))),
            Some(entry) => Err(wrong_type(entry, "a string")),
        }
    };
    let task = match word("task.name")? {
        Some((named, name)) => task(registry, name, entries)
            .map_err(|error| ConfigError { place: error.place.or(Some(named.place.clone())), ..error })?,
        None => {
            if let Some(entry) = entries.iter().find(|entry| entry.dotted() == "task" && entry.value != Given::Table) {
                return Err(wrong_type(entry, "a table with a name in it"));
            }
            let place = entries.first().map(|entry| entry.place.clone());
            return Err(ConfigError { place, wrong: Wrong::NoTask });
        }
    };
    let iterations = entries.iter().rfind(|entry| entry.dotted() == "outer.iterations");
    let iterations = iterations.and_then(|entry| match entry.value {
        Given::Whole(count @ 1..=LARGEST) => Some(count as u32),
        _ => None,
    });
    let mut choices = Choices { iterations, ..Choices::of(registry, &*task) };
    // One after another, so that a word that is not known is blamed on its own place.
    for Tagged { key, .. } in TAGGED {
        let Some((entry, text)) = word(key)? else { continue };
        choices = choices.with(key, text);
        choices.defaults().map_err(|error| ConfigError { place: Some(entry.place.clone()), ..error })?;
    }
    let mut settings = choices.defaults()?.settings();
    let schema = registry.known_task(task.name()).map_err(other)?.schema();
    for entry in entries {
        apply(&mut settings, entry, &schema)?;
    }
    check_words(registry, &settings, entries)?;
    // A table without the key of the storage.
    if settings["method"].get("storage").and_then(Value::as_object).is_some_and(Map::is_empty)
        && let Some(entry) = entries.iter().rev().find(|entry| entry.key == ["method", "storage"])
    {
        let given = Given::EmptyTable;
        return Err(wrong_type(&Entry { value: given, ..entry.clone() }, STORAGE));
    }
    let other = |error: serde_json::Error| ConfigError { place: None, wrong: Wrong::Other(error.to_string()) };
    let config: Config = serde_json::from_value(Value::Object(settings)).map_err(other)?;
    check(registry, &config, entries).map_err(|error| match (&error.wrong, error.place) {
        // The place is that of the key the complaint is about.
        (Wrong::OutOfRange { key, .. }, None) => {
            let given = entries.iter().rev().find(|entry| entry.dotted() == *key);
            ConfigError { place: given.map(|entry| entry.place.clone()), wrong: error.wrong }
        }
        (_, place) => ConfigError { place, wrong: error.wrong },
    })?;
    Ok(config)
}

/// Refuses a word that a setting of the method cannot be.
fn check_words(registry: &Registry, settings: &Map<String, Value>, entries: &[Entry]) -> Result<()> {
    let method = registry.known_method(settings["method"]["name"].as_str().unwrap_or_default()).map_err(other)?;
    for entry in entries {
        // How much of the inner loop reverse mode keeps is a word or a table.
        let [table, key] = &entry.key[..] else { continue };
        if table != "method" || key == "storage" {
            continue;
        }
        let words = method.words(key);
        if let Given::Text(word) = &entry.value
            && !words.is_empty()
            && !words.contains(&word.as_str())
        {
            return Err(ConfigError { place: Some(entry.place.clone()), ..unknown_word(&entry.dotted(), word, words) });
        }
    }
    Ok(())
}

/// The task of this name with the settings given for it, which determine further defaults.
fn task(registry: &Registry, name: &str, entries: &[Entry]) -> Result<Box<dyn AnyTask>> {
    let known = registry.known_task(name).map_err(other)?;
    let schema = known.schema();
    let mut settings = Map::new();
    settings.insert("task".into(), Value::Object(known.usual().settings().table().clone()));
    for entry in entries.iter().filter(|entry| entry.key.len() > 1 && entry.key[0] == "task") {
        apply(&mut settings, entry, &schema)?;
        let words = words_of(&schema["properties"][entry.key[1].as_str()]);
        if let (Given::Text(word), false) = (&entry.value, words.is_empty())
            && !words.contains(&word.as_str())
        {
            return Err(ConfigError {
                place: Some(entry.place.clone()),
                ..unknown_word(&entry.dotted(), word, &words)
            });
        }
    }
    match settings.remove("task") {
        Some(Value::Object(table)) => registry.read_task(&Settings::from_table(table)).map_err(other),
        _ => Ok(known.usual()),
    }
}

/// The words allowed for a property of a schema; none if any is allowed.
fn words_of(property: &Value) -> Vec<&str> {
    let listed = property["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let described = property["oneOf"].as_array().into_iter().flatten().filter_map(|one| one["const"].as_str());
    listed.chain(described).collect()
}

fn check(registry: &Registry, config: &Config, entries: &[Entry]) -> Result<()> {
    let require = |holds: bool, key: &str, given: f64, must: &str| {
        if holds { Ok(()) } else { Err(ConfigError::range(key, given, must)) }
    };
    let Config { chains, threads, .. } = *config;
    require((1..=4096).contains(&chains), "chains", chains as f64, "from 1 to 4096")?;
    require(threads <= 1024, "threads", threads as f64, "at most 1024")?;
    if config.dtype == bilevel::DType::F64 && config.precision != Precision::Full {
        let must = "full if dtype is f64; choose dtype f32 for other precisions";
        return Err(ConfigError::range("precision", config.precision, must));
    }
    config.split.check().map_err(|(key, given, must)| ConfigError::range(key, given, &must))?;
    let HeldOut { share, every, patience, folds, shrinkage, .. } = config.held_out;
    require((0.0..1.0).contains(&share), "held_out.share", share, "from 0 to below 1")?;
    require(patience == 0 || every > 0, "held_out.every", 0.0, "at least 1 if held_out.patience is not 0")?;
    require((0..=100).contains(&folds) && folds != 1, "held_out.folds", folds as f64, "0, or from 2 to 100")?;
    let is_deviation = shrinkage >= 0.0 && shrinkage.is_finite();
    require(is_deviation, "held_out.shrinkage", shrinkage, "0 or more")?;
    let keeps = !config.outer.keep_best.is_empty();
    require(patience == 0 || !keeps, "held_out.patience", patience.into(), "0 if outer.keep_best is given")?;
    config.about.check().map_err(|error| in_table("about", error))?;
    require(config.checkpoint.every >= 1, "checkpoint.every", 0.0, "at least 1")?;
    require(config.metrics.every >= 1, "metrics.every", 0.0, "at least 1")?;
    check_schedule("inner", &config.inner.schedule, 1.0)?;
    config.inner.optimizer.check().map_err(|error| in_table("inner.optimizer", error))?;
    let method = registry.read_method(&config.method).map_err(other)?;
    bilevel::methods::check_settings(&*method, &config.inner).map_err(|error| match error {
        bilevel::Error::Setting { name, .. } if INNER.contains(&name) => in_table("inner", error),
        bilevel::Error::InnerLoop { setting, .. } => {
            let given = entries.iter().rev().find(|entry| entry.dotted().starts_with(&format!("inner.{setting}")));
            ConfigError { place: given.map(|entry| entry.place.clone()), ..other(error) }
        }
        error => in_table("method", error),
    })?;
    config.outer.check().map_err(|error| in_table("outer", error))?;
    check_schedule("outer", &config.outer.schedule, config.outer.rate)?;
    let optimizer = registry.read_optimizer(&config.outer.optimizer).map_err(other)?;
    optimizer.check().map_err(|error| in_table("outer.optimizer", error))
}

fn check_schedule(table: &str, schedule: &ScheduleSettings, rate: f64) -> Result<()> {
    schedule.build(rate).check().map_err(|error| match error {
        // The rate is the schedule's to check, but stands outside its table.
        bilevel::Error::Setting { name: "rate", value, must } => {
            ConfigError::range(&format!("{table}.rate"), value, must)
        }
        error => in_table(&format!("{table}.schedule"), error),
    })
}

/// The library's error about a setting, with the full key.
fn in_table(table: &str, error: bilevel::Error) -> ConfigError {
    match error {
        bilevel::Error::Setting { name, value, must } => ConfigError::range(&format!("{table}.{name}"), value, must),
        error => other(error),
    }
}

fn wrong_type(entry: &Entry, takes: &'static str) -> ConfigError {
    let takes = match entry.dotted().as_str() {
        "outer.keep_best" | "outer.patience_on" => "a string such as 'highest accuracy'",
        "outer.time_limit" => "a string such as '90s', '9m' or '1h30m'",
        _ => takes,
    };
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

/// Puts one setting in its place, given the schema of the task's settings.
fn apply(settings: &mut Map<String, Value>, entry: &Entry, task: &Value) -> Result<()> {
    // The length of the inner loop has two names, of which the one given last counts.
    if let [table, key] = &entry.key[..]
        && (table == "inner" && LENGTH.contains(&key.as_str()))
        && let Some(Value::Object(inner)) = settings.get_mut("inner")
    {
        let old = LENGTH.iter().find_map(|name| inner.shift_remove(*name));
        inner.insert(key.clone(), old.unwrap_or_default());
    }
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
    // A share of the rows keeps its type: a whole number counts rows.
    if let (true, Given::Whole(rows @ 0..=LARGEST)) = (is_share(entry), &entry.value) {
        *value = Value::from(*rows);
        return Ok(());
    }
    let strings = serde_json::json!({ "items": { "type": "string" } });
    let schema = match &entry.key[..] {
        [table, key] if table == "task" => &task["properties"][key],
        [table, key] if table == "about" && key == "tags" => &strings,
        _ => &Value::Null,
    };
    put_value(value, entry, schema)
}

/// Puts a value in the place of a default one of the same type. Only arrays need the schema of their key.
fn put_value(value: &mut Value, entry: &Entry, schema: &Value) -> Result<()> {
    match (&mut *value, &entry.value) {
        (Value::Array(default), _) => arrays::put(default, entry, schema, &put_value)?,
        (Value::Object(_), Given::Table) => {}
        (Value::Object(_), Given::EmptyTable) => return Err(wrong_type(entry, "a table with settings in it")),
        (Value::Object(_), _) => return Err(wrong_type(entry, "a table")),
        (Value::Bool(_), Given::Truth(truth)) => *value = Value::from(*truth),
        (Value::Bool(_), _) => return Err(wrong_type(entry, "true or false")),
        (Value::String(_), Given::Text(text)) => {
            let choice = WORDS.iter().find(|(key, words)| entry.key == [*key] && !words.contains(&text.as_str()));
            if let Some((key, words)) = choice {
                return Err(ConfigError { place: Some(entry.place.clone()), ..unknown_word(key, text, words) });
            }
            if entry.key == ["device"]
                && let Err(wrong) = text.parse::<Device>()
            {
                return Err(ConfigError::at(&entry.place, Wrong::Other(wrong)));
            }
            *value = Value::from(text.as_str());
        }
        (Value::String(_), _) => return Err(wrong_type(entry, "a string")),
        (Value::Number(old), given) if old.is_f64() || is_share(entry) => {
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

/// Returns true for a key that takes a fraction or a number of rows.
fn is_share(entry: &Entry) -> bool {
    matches!(&entry.key[..], [table, key] if table == "split" && SHARES.contains(&key.as_str()))
}

fn find<'a>(settings: &'a mut Map<String, Value>, key: &[String]) -> Option<&'a mut Value> {
    let (last, tables) = key.split_last()?;
    let mut table = settings;
    for name in tables {
        table = table.get_mut(name)?.as_object_mut()?;
    }
    table.get_mut(last)
}

/// The numbers of `[inner]`.
const INNER: [&str; 6] = ["step", "steps", "samples", "burn_in", "temperature", "noise_scale"];
/// The keys for the length of the inner loop.
const LENGTH: [&str; 2] = ["steps", "samples"];

/// The key of `[inner]` that was a setting of methods.
fn moved(entry: &Entry) -> Option<String> {
    let [table, key, rest @ ..] = &entry.key[..] else { return None };
    let key = if key == "shrink_step" { "shrink" } else { key };
    let known = INNER.contains(&key) || ["shrink", "optimizer"].contains(&key);
    let rest = rest.iter().map(|part| format!(".{part}")).collect::<String>();
    (table == "method" && known).then(|| format!("inner.{key}{rest}"))
}

/// The error for a key that is not there. It may stand elsewhere, be a slip among its neighbours, or a slip in the whole.
fn unknown_key(settings: &mut Map<String, Value>, entry: &Entry) -> ConfigError {
    let all = text::keys(settings);
    let (last, table) = entry.key.split_last().map_or(("", &[][..]), |(last, table)| (last.as_str(), table));
    let prefix = table.iter().map(|part| format!("{part}.")).collect::<String>();
    let beside: Vec<&str> =
        all.iter().filter_map(|key| key.strip_prefix(&prefix)).filter(|rest| !rest.contains('.')).collect();
    let near = bilevel::errors::nearest(last, beside.iter().copied()).map(|name| format!("{prefix}{name}"));
    // In the same table first.
    let top = entry.key.first().map_or(String::new(), |top| format!("{top}."));
    let elsewhere = || {
        let same = all.iter().filter(|key| key.rsplit('.').next() == Some(last));
        same.max_by_key(|key| (key.starts_with(&top), std::cmp::Reverse(key.len()))).cloned()
    };
    // In a table there is, a key that resembles none of it is not a slip, however much of the path they share.
    let slip = || match beside.is_empty() {
        true => bilevel::errors::nearest(&entry.dotted(), all.iter().map(String::as_str)).map(String::from),
        false => None,
    };
    if entry.key == [INCLUDE] {
        let wrong = "only a configuration file can include another; name the file instead of the task".to_string();
        return ConfigError::at(&entry.place, Wrong::Other(wrong));
    }
    let known = || match beside.is_empty() {
        true => settings.keys().cloned().collect(),
        false => beside.iter().map(|name| format!("{prefix}{name}")).collect(),
    };
    // A division belongs to the run, whichever task divides its rows.
    if let [table, split, rest @ ..] = &entry.key[..]
        && (table == "task" && split == "split")
    {
        let rest = rest.iter().map(|part| format!(".{part}")).collect::<String>();
        let near = Instead::Near(format!("split{rest}"));
        return ConfigError::at(&entry.place, Wrong::UnknownKey { key: entry.dotted(), instead: near });
    }
    if let Some(key) = moved(entry) {
        return ConfigError::at(&entry.place, Wrong::UnknownKey { key: entry.dotted(), instead: Instead::Moved(key) });
    }
    let near = elsewhere().or(near).or_else(slip);
    let instead = near.map_or_else(|| Instead::Known(known()), Instead::Near);
    ConfigError::at(&entry.place, Wrong::UnknownKey { key: entry.dotted(), instead })
}
