//! One run, from a configuration to a folder with a result: what `run` and `resume` share.

use crate::config::Config;
use crate::errors::{CliError, Result};
use crate::folder::{RunFolder, write_report};
use crate::metrics::{Recorder, look_at};
use crate::result::{RunResult, write_result};
use bilevel::{Checkpoints, Observer, StopReason, StopSignal};

/// Draws a run. A report can be drawn again, and what was found is kept already: that it cannot be drawn is only said.
pub fn report(folder: &RunFolder) {
    if let Err(error) = write_report(folder) {
        crate::complain(&format!("the run has no report: {error}"));
    }
}

/// Runs a configuration in its folder, from the beginning or from where it stopped. A run that is stopped, diverges or cannot
/// be written is an error that says what to do; its folder is left so that it can be resumed.
pub fn execute(
    config: &Config,
    folder: &RunFolder,
    resume: bool,
    display: Option<impl Observer + 'static>,
    signal: StopSignal,
) -> Result<RunResult> {
    if resume && let Some(newest) = Checkpoints::new(folder.checkpoints()).newest()? {
        look_at(folder, config, newest.checkpoint.last())?;
    }
    let setup = config.setup()?;
    let recorder = Recorder::new(folder, config);
    let checkpoints = Checkpoints::new(folder.checkpoints()).every(config.checkpoint.every).resume(resume);
    let driver = config.driver(&setup)?.measure_every(config.metrics.every).checkpoints(checkpoints);
    let mut driver = driver.stop_signal(signal).observe(recorder);
    if let Some(display) = display {
        driver = driver.observe(display);
    }
    let outcome = driver.run()?;
    let path = folder.path().to_path_buf();
    let result = RunResult::new(config, &setup.problem, &outcome)?;
    if let Some(result) = &result {
        write_result(folder, &setup.problem, &outcome, result)?;
    }
    // A run whose files can no longer be written has said so already.
    if (result.is_some() || outcome.iterations > 0)
        && !matches!(outcome.reason, StopReason::Unsaved(_) | StopReason::Observer(_))
    {
        report(folder);
    }
    match (outcome.reason, result) {
        (StopReason::Diverged(diagnosis), _) => Err(CliError::Diverged { path, diagnosis: diagnosis.to_string() }),
        (_, Some(result)) => Ok(result),
        (StopReason::Unsaved(error), _) => Err(CliError::Library(bilevel::Error::Checkpoint(error))),
        (StopReason::Observer(reason), _) => Err(CliError::Unwritten(reason)),
        _ => Err(CliError::Stopped { path, done: outcome.iterations, until: config.outer.iterations }),
    }
}
