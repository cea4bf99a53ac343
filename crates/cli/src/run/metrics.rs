//! The files of a run while it goes: its configuration at the beginning, one line of metrics per iteration.

use crate::config::text::to_toml;
use crate::errors::{CliError, Result};
use crate::run::folder::{RunFolder, write_whole};
use crate::run::result::read_result;
use crate::run::tensorboard::TensorBoard;
use bilevel::whole_file::{open_regular, refuse_irregular};
use bilevel::{Beginning, Iteration, Observer, State};
use bilevel_tasks::run::{Damage, History, LONGEST_LINE, numbers};
use bilevel_tasks::{Config, Registry};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;

/// Looks at the metrics of a run that goes on after this iteration, or from its beginning. Lines that are not its own are
/// refused, so that none of them is written over. The answer is how many lines there are, whatever iteration they are of.
pub fn look_at(folder: &RunFolder, config: &Config, last: Option<&Iteration>) -> Result<usize> {
    let path = folder.metrics_file();
    // It will be written again, which nothing but a regular file allows.
    refuse_irregular(&path).map_err(|error| CliError::file("write", &path, &error))?;
    let file = match open_regular(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(CliError::file("read", &path, &error)),
    };
    let foreign = |what: String| CliError::foreign(folder, "metrics.jsonl", what, " and the run goes on without it");
    let history = match History::parse(BufReader::new(file)) {
        Ok(history) => history,
        Err(Damage::Unread(error)) => return Err(CliError::file("read", &path, &error)),
        Err(damage) => return Err(foreign(damage.to_string())),
    };
    let other_losses = |last: &Iteration| {
        let expected = [last.inner_loss, last.outer_loss, last.hypergradient_norm].map(Some);
        history.other_losses(last.number, expected, "the checkpoint")
    };
    if let Some(what) = history.foreign_line(&config.path_hash()).or_else(|| last.and_then(other_losses)) {
        return Err(foreign(what));
    }
    Ok(history.rows.len())
}

/// Writes `config.toml` when a run begins and a line of `metrics.jsonl` after every iteration.
pub struct Recorder {
    folder: RunFolder,
    config: Config,
    text: String,
    file: Option<File>,
    events: Option<TensorBoard>,
}

impl Recorder {
    /// Into this folder.
    pub fn new(folder: &RunFolder, config: &Config, registry: &Registry) -> Self {
        let text = to_toml(registry, config);
        Recorder { folder: folder.clone(), config: config.clone(), text, file: None, events: None }
    }

    fn begin(&mut self, done: u32) -> Result<()> {
        self.folder.clean()?;
        // What cannot be written at the end is better known at the beginning.
        for path in [self.folder.result_file(), self.folder.lambda_file()] {
            refuse_irregular(&path).map_err(|error| CliError::file("write", &path, &error))?;
        }
        self.folder.mark(&self.config)?;
        write_whole(&self.folder.config_file(), self.text.as_bytes())?;
        let path = self.folder.metrics_file();
        let failed = |error: std::io::Error| CliError::file("write", &path, &error);
        // What is to be found again is not kept: the result of another wish or of iterations that will be done again, their
        // lines, and a line torn by a crash.
        let has_result = read_result(&self.folder).ok();
        if has_result.is_some_and(|had| had.config_hash != self.config.hash() || had.iterations > done) {
            let path = self.folder.result_file();
            std::fs::remove_file(&path).map_err(|error| CliError::file("remove", &path, &error))?;
        }
        let kept = if done == 0 { vec![] } else { whole_lines(&path, done).map_err(failed)? };
        write_whole(&path, &kept)?;
        self.file = Some(OpenOptions::new().append(true).open(&path).map_err(failed)?);
        if self.config.metrics.tensorboard {
            self.events = Some(TensorBoard::new(&self.folder, done)?);
        }
        let lacking = (done as usize).saturating_sub(kept.iter().filter(|byte| **byte == b'\n').count());
        if lacking > 0 {
            crate::complain(&format!(
                "{} lacks {lacking} of the {done} iterations that are done; the run goes on, but its curves have a gap",
                path.display()
            ));
        }
        Ok(())
    }

    fn write(&mut self, iteration: &Iteration) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut line = numbers(iteration);
        line.insert("run".into(), self.config.path_hash().into());
        if let Some(events) = &mut self.events {
            events.write(iteration.number, &line)?;
        }
        let text = format!("{}\n", Value::Object(line));
        let path = self.folder.metrics_file();
        file.write_all(text.as_bytes()).map_err(|error| CliError::file("write", &path, &error))
    }
}

/// The lines of the first `done` iterations.
fn whole_lines(path: &std::path::Path, done: u32) -> std::io::Result<Vec<u8>> {
    let mut kept = vec![];
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(kept),
        Err(error) => return Err(error),
    };
    let mut reader = BufReader::new(file);
    let mut line = vec![];
    while reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? > 0 {
        if line.len() as u64 == LONGEST_LINE && !line.ends_with(b"\n") {
            return Err(std::io::Error::other("it has a line that is too long to be the metrics of an iteration"));
        }
        let number = line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice::<Value>(line).ok());
        if number.and_then(|value| value.get("iteration")?.as_u64()).is_some_and(|n| n <= done as u64) {
            kept.extend_from_slice(&line);
        }
        line.clear();
    }
    Ok(kept)
}

fn answer(done: Result<()>) -> ControlFlow<String> {
    match done {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error.to_string()),
    }
}

impl Observer for Recorder {
    fn on_start(&mut self, beginning: &Beginning) -> ControlFlow<String> {
        answer(self.begin(beginning.done))
    }

    fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
        answer(self.write(iteration))
    }
}
