//! The metrics of a run as TensorBoard shows them, written while it runs.

use crate::errors::{CliError, Result};
use crate::run::folder::RunFolder;
use bilevel_report::events::{EventFile, now};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// TensorBoard reads every few seconds, so events are flushed about as often.
const PAUSE: Duration = Duration::from_secs(1);

/// The event file of one run, or of one part of it: each resumption begins a new file, and TensorBoard joins them.
pub struct TensorBoard {
    file: EventFile,
    path: PathBuf,
    flushed: Instant,
}

impl TensorBoard {
    /// A new file in the folder of the run. Files of a run that starts again are removed.
    pub fn new(folder: &RunFolder, done: u32) -> Result<Self> {
        let path = folder.tensorboard();
        let failed = |error: std::io::Error| CliError::file("write", &path, &error);
        if done == 0 && path.is_dir() {
            for entry in std::fs::read_dir(&path).map_err(failed)? {
                let old = entry.map_err(failed)?.path();
                if old.file_name().is_some_and(|name| name.to_string_lossy().starts_with("events.out.tfevents.")) {
                    std::fs::remove_file(&old).map_err(failed)?;
                }
            }
        }
        let file = EventFile::create(&path, "bilevel").map_err(failed)?;
        Ok(TensorBoard { file, path, flushed: Instant::now() })
    }

    /// The numbers of an iteration, as they stand in a line of metrics.
    pub fn write(&mut self, iteration: u32, line: &Map<String, Value>) -> Result<()> {
        self.try_write(iteration.into(), line).map_err(|error| CliError::file("write", &self.path, &error))
    }

    fn try_write(&mut self, step: u64, line: &Map<String, Value>) -> std::io::Result<()> {
        let time = now();
        for (tag, number) in scalars(line) {
            self.file.scalar(&tag, step, number, time)?;
        }
        if self.flushed.elapsed() >= PAUSE {
            self.file.flush()?;
            self.flushed = Instant::now();
        }
        Ok(())
    }
}

/// All numbers of an iteration with their names in TensorBoard, in which a slash separates groups.
fn scalars(line: &Map<String, Value>) -> Vec<(String, f64)> {
    let own = TAGS.iter().filter_map(|(name, tag)| Some((tag.to_string(), line.get(*name)?.as_f64()?)));
    let grouped = ["measures", "diagnostics"].into_iter().flat_map(|group| {
        let inside = line.get(group).and_then(Value::as_object).into_iter().flatten();
        inside.filter_map(move |(name, value)| Some((format!("{group}/{name}"), value.as_f64()?)))
    });
    own.chain(grouped).collect()
}

/// The name of each number in TensorBoard.
const TAGS: &[(&str, &str)] = &[
    ("outer_loss", "loss/outer"),
    ("inner_loss", "loss/inner"),
    ("hypergradient_norm", "hypergradient/norm"),
    ("standard_error", "hypergradient/standard_error"),
    ("step_norm", "step/norm"),
    ("rate", "step/rate"),
];
