//! The files of a run while it goes: its configuration at the beginning, one line of metrics per iteration.

use crate::config::text::to_toml;
use crate::errors::{CliError, Result};
use crate::run::folder::{RunFolder, write_whole};
use crate::run::provenance::{self, Provenance};
use crate::run::result::read_result;
use crate::run::tensorboard::TensorBoard;
use bilevel::State;
use bilevel::files::whole_file::{open_regular, refuse_irregular};
use bilevel::observers::{Beginning, Iteration, JsonLines, Observer, iteration_fields};
use bilevel_run::run::{Damage, History};
use bilevel_run::{Config, Registry};
use std::io::BufReader;
use std::ops::ControlFlow;

/// Checks the metrics of a run that continues after this iteration, or from its beginning. Lines that are not its own
/// are refused, so that none of them is written over. Returns the number of lines, of any iterations.
pub fn look_at(folder: &RunFolder, config: &Config, last: Option<&Iteration>) -> Result<usize> {
    let path = folder.metrics_file();
    // It will be rewritten, so it must be a regular file.
    refuse_irregular(&path).map_err(|error| CliError::file("write", &path, &error))?;
    let file = match open_regular(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(CliError::file("read", &path, &error)),
    };
    let foreign = |what: String| CliError::foreign(folder, "metrics.jsonl", what, " and the run continues without it");
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
    provenance: Provenance,
    lines: JsonLines,
    events: Option<TensorBoard>,
}

impl Recorder {
    /// Into this folder.
    pub fn new(folder: &RunFolder, config: &Config, registry: &Registry, provenance: &Provenance) -> Self {
        let lines = JsonLines::new(folder.metrics_file()).tagged("run", config.path_hash());
        let text = format!(
            "# Written by bilevel {}; provenance.json has the details.\n{}",
            provenance::VERSION,
            to_toml(registry, config)
        );
        let (folder, config, provenance) = (folder.clone(), config.clone(), provenance.clone());
        Recorder { folder, config, text, provenance, lines, events: None }
    }

    /// Writes everything that a resume needs before the first iteration, after this many finished ones.
    pub fn begin(&mut self, done: u32) -> Result<()> {
        self.folder.clean()?;
        // Files that cannot be written are better refused now than at the end.
        for path in [self.folder.result_file(), self.folder.lambda_file()] {
            refuse_irregular(&path).map_err(|error| CliError::file("write", &path, &error))?;
        }
        self.folder.mark(&self.config)?;
        write_whole(&self.folder.config_file(), self.text.as_bytes())?;
        self.provenance.resumed_after = Some(done);
        provenance::write(self.folder.path(), &self.provenance)?;
        // Results of other requests, and results and lines of iterations that will be repeated, are not kept.
        let had = read_result(&self.folder).ok();
        if had.is_some_and(|had| had.config_hash != self.config.hash() || had.iterations > done) {
            let path = self.folder.result_file();
            std::fs::remove_file(&path).map_err(|error| CliError::file("remove", &path, &error))?;
        }
        let path = self.folder.metrics_file();
        let kept = self.lines.begin(done).map_err(|error| CliError::file("write", &path, &error))?;
        if self.config.metrics.tensorboard {
            self.events = Some(TensorBoard::new(&self.folder, done)?);
        }
        let lacking = (done as usize).saturating_sub(kept);
        if lacking > 0 {
            crate::complain(&format!(
                "{lacking} of the {done} finished iterations are missing in {}; the run continues, but its curves have \
                 a gap",
                path.display()
            ));
        }
        Ok(())
    }

    fn write(&mut self, iteration: &Iteration) -> Result<()> {
        if let Some(events) = &mut self.events {
            events.write(iteration.number, &iteration_fields(iteration))?;
        }
        let path = self.folder.metrics_file();
        self.lines.write(iteration).map_err(|error| CliError::file("write", &path, &error))
    }
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
