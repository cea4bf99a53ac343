//! All that is known of a run from its folder, whether it is finished, stopped or still going.

use crate::errors::{CliError, Result};
use crate::run::folder::RunFolder;
use crate::run::result::{check_is_of, of_file, read_result};
use crate::terminal::readable::sentence;
use bilevel::checkpoints::Checkpoints;
use bilevel::files::whole_file::open_regular;
use bilevel::methods::Oracles;
use bilevel_run::run::{Damage, History, IterationRow, LeafSummary, RunResult, read_lambda};
use bilevel_run::{AnyTask, Config, LambdaLeaf, Picture, Registry};
use std::io::BufReader;
use std::path::Path;

/// All that is known of a run.
#[derive(Debug)]
pub struct RunRecord {
    /// The folder of the run.
    pub folder: RunFolder,
    /// Its configuration.
    pub config: Config,
    /// Its task.
    pub task: Box<dyn AnyTask>,
    /// Its metrics.
    pub history: History,
    /// Its result, if it is finished.
    pub result: Option<RunResult>,
    /// The hyperparameters: those found, or those of the last checkpoint.
    pub lambda: Vec<LambdaLeaf>,
}

impl RunRecord {
    /// Reads the run in this folder.
    pub fn read(folder: &RunFolder, registry: &Registry) -> Result<Self> {
        let config = folder.config(registry)?;
        let task = registry.read_task(&config.task)?;
        let result = if is_there(&folder.result_file()) { Some(read_result(folder)?) } else { None };
        match &result {
            Some(result) => check_is_of(result, &config, folder)?,
            None => folder.check_unchanged(&config)?,
        }
        let history = match is_there(&folder.metrics_file()) {
            // Without its metrics a finished run has no curves, but still has its results.
            false if result.is_some() => History::default(),
            _ => read_history(folder, &config, result.as_ref())?,
        };
        let result = result.filter(|result| is_current(result, &history, config.outer.iterations));
        if history.rows.is_empty() && result.is_none() {
            return Err(CliError::File {
                action: "draw",
                path: folder.path().to_path_buf(),
                reason: "no iteration of its run has finished yet".into(),
            });
        }
        let lambda = match &result {
            Some(result) => found_lambda(&folder.lambda_file(), result)?,
            None => saved_lambda(folder),
        };
        Ok(RunRecord { folder: folder.clone(), config, task, history, result, lambda })
    }

    /// Names of hyperparameters that cannot influence the outer loss.
    fn idle(&self) -> &[String] {
        self.result.as_ref().map_or(&[], |result| &result.idle)
    }

    /// Its method's name.
    pub fn method(&self) -> &str {
        self.config.method.name()
    }

    /// Iterations done; of a run that diverged, those up to its last good state.
    pub fn iterations(&self) -> u32 {
        self.at_end(|result| Some(result.iterations), |row| Some(row.iteration)).unwrap_or(0)
    }

    /// A number as the run found it, or as it is in the last iteration so far.
    fn at_end<T>(
        &self,
        found: impl FnOnce(&RunResult) -> Option<T>,
        so_far: impl FnOnce(&IterationRow) -> Option<T>,
    ) -> Option<T> {
        match &self.result {
            Some(result) => found(result),
            None => self.history.last().and_then(so_far),
        }
    }

    /// The outer loss at the end.
    pub fn outer_loss(&self) -> Option<f64> {
        self.at_end(|result| result.outer_loss, |row| row.outer_loss)
    }

    /// The lowest outer loss.
    pub fn best_outer_loss(&self) -> Option<f64> {
        match &self.result {
            Some(result) => result.best_outer_loss,
            None => self.history.best_outer_loss(),
        }
    }

    /// The inner loss at the end.
    pub fn inner_loss(&self) -> Option<f64> {
        self.at_end(|result| result.inner_loss, |row| row.inner_loss)
    }

    /// Norm of the last hypergradient.
    pub fn hypergradient_norm(&self) -> Option<f64> {
        self.at_end(|result| result.hypergradient_norm, |row| row.hypergradient_norm)
    }

    /// Norm of its standard error, if measured.
    pub fn standard_error(&self) -> Option<f64> {
        let last = self.iterations();
        self.history.rows.iter().rev().find(|row| row.iteration == last)?.standard_error
    }

    /// How often each kind of derivative was computed.
    pub fn oracles(&self) -> Oracles {
        self.at_end(|result| Some(result.oracles), |row| Some(row.oracles)).unwrap_or_default()
    }

    /// How long it took.
    pub fn seconds(&self) -> Option<f64> {
        self.history.last()?.seconds
    }

    /// The reason why it stopped, or its progress.
    pub fn state(&self) -> String {
        match &self.result {
            // The divergence; its diagnosis is among the warnings.
            Some(result) if result.stopped == "diverged" => {
                result.because.split(':').next().unwrap_or("diverged").to_string()
            }
            Some(result) => result.because.clone(),
            None => format!("not finished: {} of {} iterations", self.iterations(), self.config.outer.iterations),
        }
    }

    /// The same in a word or two.
    pub fn state_word(&self) -> &'static str {
        match self.result.as_ref().map(|result| result.stopped.as_str()) {
            Some("iterations") => "finished",
            Some("time") => "time limit",
            Some("tolerance") => "converged",
            Some("patience") => "no better",
            Some("guard") => "guarded",
            Some("diverged") => "diverged",
            Some(_) => "stopped",
            None => "unfinished",
        }
    }

    /// A measure at the end, or when it was last taken.
    pub fn measure(&self, name: &str) -> Option<f64> {
        let last = self.result.as_ref().and_then(|result| result.measures.get(name)?.as_f64());
        last.or_else(|| self.history.last_measure(name))
    }

    /// Names of its measures.
    pub fn measures(&self) -> Vec<&str> {
        match &self.result {
            Some(result) => result.measures.keys().map(String::as_str).collect(),
            None => self.history.measures(),
        }
    }

    /// λ as images, if its task defines them.
    pub fn picture(&self) -> Option<(Picture, &LambdaLeaf)> {
        let picture = self.task.picture()?;
        let pixels = picture.panels.checked_mul(picture.rows)?.checked_mul(picture.columns)?;
        let leaf = self.lambda.iter().find(|leaf| leaf.name == picture.leaf)?;
        (leaf.values.len() == pixels).then_some((picture, leaf))
    }

    /// Warnings for the top of the page.
    pub fn warnings(&self) -> Vec<String> {
        let mut all = vec![];
        match &self.result {
            Some(result) if result.stopped == "diverged" => {
                all.push(format!("The run {}. This page shows its last good state.", result.because));
            }
            Some(_) => {}
            None => all.push(format!(
                "The run is not finished: {} of {} iterations are done. `bilevel resume {}` continues it.",
                self.iterations(),
                self.config.outer.iterations,
                self.folder.path().display()
            )),
        }
        if let Some(result) = &self.result {
            let beaten = result.baselines.as_ref().filter(|baselines| !baselines.wins());
            all.extend(beaten.map(|baselines| sentence(&baselines.sentence()) + "."));
            let kept = result.guard.filter(|guard| guard.kept_best);
            all.extend(kept.map(|guard| sentence(&guard.to_string()) + "."));
        }
        let done = self.iterations();
        let lacking =
            done as usize - self.history.rows.iter().filter(|row| row.iteration <= done).count().min(done as usize);
        if lacking > 0 {
            all.push(format!(
                "{lacking} of the {done} iterations are missing in `metrics.jsonl`: the curves have a \
            gap."
            ));
        }
        for name in self.idle() {
            let name = if name.is_empty() { String::new() } else { format!(".{name}") };
            all.push(format!("`λ{name}` cannot influence the outer loss: the run does not change it."));
        }
        // The last warning of each kind: problems of the beginning alone have passed.
        let looked = self.history.rows.iter().rev().filter(|row| row.diagnostics.curvature.is_some()).take(LAST_LOOKS);
        let mut kinds = vec![];
        for row in looked {
            for warning in row.diagnostics.warnings() {
                let kind = std::mem::discriminant(&warning);
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                    all.push(format!("Iteration {}: {warning}.", row.iteration));
                }
            }
        }
        all
    }
}

/// Returns true if something exists there, even a broken link.
fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// The metrics of a run, which must match its configuration and its result.
fn read_history(folder: &RunFolder, config: &Config, result: Option<&RunResult>) -> Result<History> {
    let path = folder.metrics_file();
    let file = open_regular(&path).map_err(|error| CliError::file("read", &path, &error))?;
    let history = History::parse(BufReader::new(file)).map_err(|damage| CliError::File {
        action: "read",
        path: path.clone(),
        reason: match damage {
            Damage::Unread(error) => error.to_string(),
            Damage::Line(..) => format!("{damage}; remove that line to draw the rest"),
        },
    })?;
    let other_losses = |result: &RunResult| {
        let expected = [result.inner_loss, result.outer_loss, result.hypergradient_norm];
        history.other_losses(result.iterations, expected, "result.json")
    };
    if let Some(what) = history.foreign_line(&config.path_hash()).or_else(|| result.and_then(other_losses)) {
        return Err(CliError::foreign(folder, "metrics.jsonl", what, ""));
    }
    Ok(history)
}

/// Whether a result belongs to the run in its present state. A run with more requested iterations is unfinished. A
/// diverged run returned to its last good state, while its metrics kept the later iterations.
fn is_current(result: &RunResult, history: &History, asked: u32) -> bool {
    let goes_on = history.last().is_some_and(|row| row.iteration > result.iterations);
    match result.stopped.as_str() {
        "diverged" => true,
        "iterations" => result.iterations >= asked && !goes_on,
        _ => !goes_on,
    }
}

/// The diagnosis is read in this many of the last iterations that have one.
const LAST_LOOKS: usize = 10;

/// The leaves in a file, in the order of the result.
pub(crate) fn found_lambda(path: &Path, result: &RunResult) -> Result<Vec<LambdaLeaf>> {
    if std::fs::metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(vec![]);
    }
    let names: Vec<&str> = result.lambda.iter().map(|leaf| leaf.name.as_str()).collect();
    let found = read_lambda(path, &names).map_err(|error| of_file("read", path, error))?;
    let checked = |(summary, leaf): (&LeafSummary, Option<LambdaLeaf>)| {
        let same = |leaf: &LambdaLeaf| summary.is_of(&LeafSummary::new(&leaf.name, &leaf.shape, leaf.values.clone()));
        leaf.filter(same).ok_or_else(|| {
            let name = if summary.name.is_empty() { "lambda" } else { &summary.name };
            let reason =
                format!("damaged: {name} does not match result.json; put the right file back, or move it away");
            CliError::File { action: "read", path: path.to_path_buf(), reason }
        })
    };
    result.lambda.iter().zip(found).map(checked).collect()
}

/// The leaves in the newest checkpoint, if there is one that can be read. It has their names, so no data is needed.
pub(crate) fn saved_lambda(folder: &RunFolder) -> Vec<LambdaLeaf> {
    let Ok(Some(newest)) = Checkpoints::new(folder.checkpoints()).newest() else { return vec![] };
    let checkpoint = &newest.checkpoint;
    let leaves = checkpoint.problem().lambda_names().zip(&checkpoint.state().lambda);
    leaves.map(|(name, array)| LambdaLeaf::new(name, array)).collect()
}
