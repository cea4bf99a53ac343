//! The entry of a run in a list, read from its folder without the task: configuration, result, provenance, the last
//! line of its metrics.
//!
//! Each of these files is whole at any moment, or cut at the last end of a line, so a run may be at work while it is read.

use super::tail::last_line;
use crate::config::entries::{Given, parse};
use crate::run::folder::{RunFolder, read_settings};
use crate::run::provenance;
use crate::run::result::read_result;
use bilevel_run::run::{IterationRow, RunResult};
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A run that has said nothing for so long is not at work, unless its iterations take longer.
const SILENCE: Duration = Duration::from_secs(60);
/// Nor is one that has said nothing for so many of its iterations.
const SILENT_ITERATIONS: f64 = 20.0;

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All iterations are done, or it stopped by itself.
    Finished,
    /// It diverged.
    Diverged,
    /// It is at work, as far as its files tell.
    Running,
    /// It was stopped or killed, and can be resumed.
    Unfinished,
    /// Its files cannot be read.
    Damaged,
}

impl Status {
    /// The status in a word.
    pub fn word(self) -> &'static str {
        match self {
            Status::Finished => "finished",
            Status::Diverged => "diverged",
            Status::Running => "running",
            Status::Unfinished => "unfinished",
            Status::Damaged => "damaged",
        }
    }
}

/// The entry of a run in a list.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// The folder, below the one that was searched and with `/` between its parts.
    pub run: String,
    /// Its task.
    pub task: String,
    /// Its method.
    pub method: String,
    /// Its seed.
    pub seed: Option<u64>,
    /// Its name; may be empty.
    pub name: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// Its note; may be empty.
    pub note: String,
    /// How it stands.
    pub status: Status,
    /// The reason why it stopped, or the damage of its files.
    pub because: String,
    /// Iterations that are done.
    pub iterations: u32,
    /// Iterations that it is to do.
    pub until: Option<u32>,
    /// The inner loss at the end.
    pub inner_loss: Option<f64>,
    /// The outer loss at the end.
    pub outer_loss: Option<f64>,
    /// The lowest outer loss, if the run is finished.
    pub best_outer_loss: Option<f64>,
    /// The task's own measures at the end.
    pub measures: Map<String, Value>,
    /// When it was begun, in UTC.
    pub started: Option<String>,
    /// Seconds it took.
    pub seconds: Option<f64>,
    /// All keys of its configuration but those about name, tags and note.
    pub settings: Map<String, Value>,
    /// The folder of the run.
    #[serde(skip)]
    pub path: PathBuf,
}

impl Overview {
    /// Reads the run in this folder, which was found below `root`.
    pub fn read(path: &Path, root: &Path) -> Self {
        let mut overview = Overview::empty(Overview::name_of(path, root), path.to_path_buf());
        if let Err(why) = overview.fill() {
            (overview.status, overview.because) = (Status::Damaged, why);
        }
        overview
    }

    /// The name of the run in this folder, which was found below `root`.
    pub fn name_of(path: &Path, root: &Path) -> String {
        let below = path.strip_prefix(root).unwrap_or(path);
        let parts: Vec<String> = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if parts.is_empty() { ".".into() } else { parts.join("/") }
    }

    fn empty(run: String, path: PathBuf) -> Self {
        Overview {
            run,
            task: String::new(),
            method: String::new(),
            seed: None,
            name: String::new(),
            tags: vec![],
            note: String::new(),
            status: Status::Unfinished,
            because: String::new(),
            iterations: 0,
            until: None,
            inner_loss: None,
            outer_loss: None,
            best_outer_loss: None,
            measures: Map::new(),
            started: None,
            seconds: None,
            settings: Map::new(),
            path,
        }
    }

    /// Reads the files; the error describes their damage.
    fn fill(&mut self) -> std::result::Result<(), String> {
        let folder = RunFolder::at(&self.path);
        self.configuration(&folder)?;
        let entries = provenance::read(&self.path).unwrap_or_default();
        self.started = entries.first().map(|first| first.started.clone());
        let last = match last_line(&folder.metrics_file()) {
            Ok(line) => line.map(|line| serde_json::from_slice::<IterationRow>(&line)).transpose(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => return Err(format!("metrics.jsonl cannot be read: {error}")),
        };
        let last = last.map_err(|_| "the last line of metrics.jsonl is not the metrics of an iteration".to_string())?;
        if let Some(row) = &last {
            (self.iterations, self.seconds) = (row.iteration, row.seconds);
            (self.inner_loss, self.outer_loss) = (row.inner_loss, row.outer_loss);
            self.measures = row.measures.clone();
        }
        let result = match folder.result_file().symlink_metadata() {
            Ok(_) => Some(read_result(&folder).map_err(|error| error.to_string())?),
            Err(_) => None,
        };
        match result.filter(|result| self.is_current(result, last.as_ref())) {
            Some(result) => self.take(result),
            None => {
                let open = entries.last().is_some_and(|entry| entry.ended.is_none());
                self.status = if open && self.is_lively(&folder) { Status::Running } else { Status::Unfinished };
            }
        }
        Ok(())
    }

    fn configuration(&mut self, folder: &RunFolder) -> std::result::Result<(), String> {
        let path = folder.config_file();
        let text = read_settings(&path).map_err(|error| format!("config.toml cannot be read: {error}"))?;
        for entry in parse(&text, &path).map_err(|error| error.to_string())? {
            let text = || if let Given::Text(text) = &entry.value { text.clone() } else { String::new() };
            let whole = || if let Given::Whole(number) = entry.value { u64::try_from(number).ok() } else { None };
            match entry.dotted().as_str() {
                "task.name" => self.task = text(),
                "method.name" => self.method = text(),
                "seed" => self.seed = whole(),
                "outer.iterations" => self.until = whole().and_then(|number| u32::try_from(number).ok()),
                "about.name" => self.name = text(),
                "about.note" => self.note = text(),
                "about.tags" => {
                    let Given::Array(tags) = &entry.value else { continue };
                    let words =
                        tags.iter().filter_map(|tag| if let Given::Text(tag) = tag { Some(tag.clone()) } else { None });
                    self.tags = words.collect();
                }
                _ => {}
            }
            if entry.key[0] != "about"
                && let Some(value) = entry.value.json()
            {
                self.settings.insert(entry.dotted(), value);
            }
        }
        match self.task.is_empty() {
            true => Err("config.toml names no task".into()),
            false => Ok(()),
        }
    }

    /// Whether a result is that of the run as it is now.
    fn is_current(&self, result: &RunResult, last: Option<&IterationRow>) -> bool {
        let goes_on = last.is_some_and(|row| row.iteration > result.iterations);
        match result.stopped.as_str() {
            "diverged" => true,
            "iterations" => !goes_on && self.until.is_none_or(|until| result.iterations >= until),
            _ => !goes_on,
        }
    }

    fn take(&mut self, result: RunResult) {
        self.status = if result.stopped == "diverged" { Status::Diverged } else { Status::Finished };
        self.iterations = result.iterations;
        (self.inner_loss, self.outer_loss) = (result.inner_loss, result.outer_loss);
        self.best_outer_loss = result.best_outer_loss;
        self.measures = result.measures;
        self.because = result.because;
    }

    /// Whether a run that has not said that it ended has written something lately.
    fn is_lively(&self, folder: &RunFolder) -> bool {
        let changed = |path: PathBuf| path.metadata().and_then(|data| data.modified()).ok();
        let newest = [folder.metrics_file(), folder.config_file(), provenance::file(folder.path())];
        let newest = newest.into_iter().filter_map(changed).max();
        let pace = self.seconds.unwrap_or(0.0) / f64::from(self.iterations.max(1));
        let patience = SILENCE.max(Duration::try_from_secs_f64(SILENT_ITERATIONS * pace).unwrap_or(SILENCE));
        // A clock that was set back is no reason to call a run dead.
        newest.is_some_and(|newest| SystemTime::now().duration_since(newest).map_or(true, |silent| silent <= patience))
    }

    /// The value of a key: of this list, of the configuration, or of a measure.
    pub fn get(&self, key: &str) -> Option<Value> {
        let text = |text: &str| Some(Value::from(text)).filter(|_| !text.is_empty());
        match key {
            "run" => text(&self.run),
            "task" => text(&self.task),
            "method" => text(&self.method),
            "name" => text(&self.name),
            "note" => text(&self.note),
            "status" => text(self.status.word()),
            "seed" => self.seed.map(Value::from),
            "iterations" => Some(self.iterations.into()),
            "inner_loss" => self.inner_loss.map(Value::from),
            "outer_loss" => self.outer_loss.map(Value::from),
            "best_outer_loss" => self.best_outer_loss.map(Value::from),
            "date" => self.started.as_deref().map(Value::from),
            "duration" => self.seconds.map(Value::from),
            _ => self.settings.get(key).or_else(|| self.measures.get(key)).cloned(),
        }
    }
}

/// The keys that every run has in addition to its configuration and measures.
pub const KEYS: [&str; 14] = [
    "run",
    "task",
    "method",
    "name",
    "note",
    "tag",
    "status",
    "seed",
    "iterations",
    "inner_loss",
    "outer_loss",
    "best_outer_loss",
    "date",
    "duration",
];
