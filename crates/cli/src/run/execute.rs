//! One run, from a configuration to a folder with a result, shared by `run`, `resume` and studies.

use crate::config::errors::ConfigError;
use crate::config::text::to_toml;
use crate::errors::{CliError, Result};
use crate::pages;
use crate::run::device::executor;
use crate::run::folder::RunFolder;
use crate::run::metrics::{Recorder, look_at};
use crate::run::provenance::{self, Provenance};
use crate::run::ranks;
use crate::run::result::write_result;
use bilevel::checkpoints::Checkpoints;
use bilevel::observers::{Observer, StopSignal};
use bilevel::{Driver, Problem, StopReason};
use bilevel_graph::Executor;
use bilevel_run::run::RunResult;
use bilevel_run::{Config, Registry};
use std::sync::Arc;

/// The problem of a configuration; a setting that makes none is named with its key.
pub fn problem(config: &Config, registry: &Registry) -> Result<Problem> {
    config.problem(registry).map_err(with_key)
}

fn with_key(error: bilevel::Error) -> CliError {
    match error {
        bilevel::Error::Setting { name, value, must } => {
            ConfigError::range(&format!("task.{name}"), value, must).into()
        }
        other => other.into(),
    }
}

/// Draws the report of a run. A failure is only a warning, because the results are on disk and a report can be drawn
/// again.
pub fn report(folder: &RunFolder, registry: &Registry) {
    if let Err(error) = pages::run::write_one(folder, registry) {
        crate::complain(&format!("the run has no report: {error}"));
    }
}

/// Runs a configuration in its folder on this rank alone, from the beginning or from its last checkpoint. A run that is stopped, diverges
/// or cannot be written is an error with a remedy; its folder can be resumed.
pub fn execute(
    config: &Config,
    registry: &Registry,
    folder: &RunFolder,
    resume: bool,
    display: Option<impl Observer + 'static>,
    signal: StopSignal,
) -> Result<RunResult> {
    execute_on(executor(config.device, config.threads)?, config, registry, folder, resume, display, signal)
}

/// The same on an executor.
fn execute_on(
    executor: Arc<dyn Executor>,
    config: &Config,
    registry: &Registry,
    folder: &RunFolder,
    resume: bool,
    display: Option<impl Observer + 'static>,
    signal: StopSignal,
) -> Result<RunResult> {
    let mut done = 0;
    if resume && let Some(newest) = Checkpoints::new(folder.checkpoints()).newest()? {
        look_at(folder, config, newest.checkpoint.last())?;
        done = newest.checkpoint.iteration();
    }
    let path = folder.path().to_path_buf();
    let provenance = Provenance::begin(config.device, config.threads, Some(done));
    let mut recorder = Recorder::new(folder, config, registry, &provenance);
    let problem = match config.problem_on(registry, &executor, &signal) {
        Err(_) if signal.is_set() => {
            let saved = folder.checkpoints();
            std::fs::create_dir_all(&saved).map_err(|error| CliError::file("make the folder", &saved, &error))?;
            recorder.begin(done)?;
            return Err(CliError::Stopped { path, done, until: config.outer.iterations });
        }
        built => built.map_err(with_key)?,
    };
    let checkpoints = Checkpoints::new(folder.checkpoints()).every(config.checkpoint.every).resume(resume);
    let (outcome, result) = config.run_on(registry, &problem, Box::new(executor), |driver| {
        let driver = driver.checkpoints(checkpoints).stop_signal(signal).observe(recorder);
        match display {
            Some(display) => driver.observe(display),
            None => driver,
        }
    })?;
    provenance::end(folder.path(), provenance);
    if let Some(result) = &result {
        write_result(folder, config, &outcome, result)?;
    }
    match (outcome.reason, result) {
        (StopReason::Diverged(diagnosis), _) => Err(CliError::Diverged { path, diagnosis: diagnosis.to_string() }),
        (_, Some(result)) => Ok(result),
        (StopReason::Unsaved(error), _) => Err(CliError::Library(bilevel::Error::Checkpoint(error))),
        (StopReason::Observer(reason), _) => Err(CliError::Unwritten(reason)),
        _ => Err(CliError::Stopped { path, done: outcome.iterations, until: config.outer.iterations }),
    }
}

/// The part of a rank that writes nothing: rank 0 keeps the folder, from whose checkpoints all resume.
fn follow(
    config: &Config,
    registry: &Registry,
    folder: &RunFolder,
    resume: bool,
    signal: StopSignal,
) -> Result<RunResult> {
    let (path, until) = (folder.path().to_path_buf(), config.outer.iterations);
    let executor = ranks::together(executor(config.device, config.threads)?);
    let problem = match config.problem_on(registry, &executor, &signal) {
        Err(_) if signal.is_set() => return Err(CliError::Stopped { path, done: 0, until }),
        built => built.map_err(with_key)?,
    };
    let checkpoints = Checkpoints::new(folder.checkpoints()).every(config.checkpoint.every).resume(resume);
    let with_checkpoints = |driver: Driver| driver.checkpoints(checkpoints).stop_signal(signal);
    let (outcome, result) = config.run_on(registry, &problem, Box::new(executor), with_checkpoints)?;
    match (outcome.reason, result) {
        (StopReason::Diverged(diagnosis), _) => Err(CliError::Diverged { path, diagnosis: diagnosis.to_string() }),
        (_, Some(result)) => Ok(result),
        _ => Err(CliError::Stopped { path, done: outcome.iterations, until }),
    }
}

/// Runs a configuration on all ranks together, and draws the run however it ended, unless its files could no longer be
/// written.
pub fn execute_and_draw(
    config: &Config,
    registry: &Registry,
    folder: &RunFolder,
    resume: bool,
    display: Option<impl Observer + 'static>,
    signal: StopSignal,
) -> Result<RunResult> {
    ranks::agree_on(&to_toml(registry, config))?;
    if ranks::follows() {
        return follow(config, registry, folder, resume, signal);
    }
    let executor = ranks::together(executor(config.device, config.threads)?);
    let result = execute_on(executor, config, registry, folder, resume, display, signal);
    match &result {
        Ok(_) | Err(CliError::Diverged { .. }) => report(folder, registry),
        Err(CliError::Stopped { done, .. }) if *done > 0 => report(folder, registry),
        Err(_) => {}
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::progress::RunProgress;

    #[test]
    fn a_run_that_is_stopped_while_its_network_is_warmed_up_can_be_resumed() {
        let (registry, scratch) = (crate::everything(), tempfile::tempdir().unwrap());
        let mut config = registry.usual("l1-regularisation").unwrap();
        config.outer.iterations = 3;
        let folder = RunFolder::at(&scratch.path().join("run"));
        let go = |resume: bool, signal: StopSignal| {
            execute(&config, &registry, &folder, resume, None::<RunProgress>, signal)
        };
        let stop = StopSignal::new();
        stop.stop();
        let stopped = go(false, stop);
        assert!(matches!(stopped, Err(CliError::Stopped { done: 0, until: 3, .. })), "{stopped:?}");
        let begun = RunFolder::of_run(folder.path()).unwrap();
        assert!(begun.entries(&registry).is_ok());
        assert_eq!(go(true, StopSignal::new()).unwrap().iterations, 3);
    }
}
