//! `bilevel resume`: continues with a run; its result is that of a run that was never stopped, byte for byte.

use super::run::tell;
use crate::arguments::Resume;
use crate::config::entries::{Entry, Given};
use crate::errors::{CliError, Result};
use crate::run::device::{asked, settled};
use crate::run::execute::execute_and_draw;
use crate::run::folder::RunFolder;
use crate::run::metrics::look_at;
use crate::terminal::interrupt::stop_run_on_interrupt;
use crate::terminal::progress::RunProgress;
use bilevel::Precision;
use bilevel::checkpoints::Checkpoints;
use bilevel_run::{Config, Registry};
use std::io::Write;

/// Runs the command.
pub fn resume(registry: &Registry, arguments: &Resume, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let folder = RunFolder::of_run(&arguments.folder)?;
    let mut entries = folder.entries(registry)?;
    let newest = Checkpoints::new(folder.checkpoints()).newest()?;
    if let Some(asked) = arguments.iterations {
        let done = newest.as_ref().map_or(0, |newest| newest.checkpoint.iteration());
        if asked < done {
            return Err(CliError::Past { path: arguments.folder.clone(), done, asked });
        }
        let text = format!("--iterations {asked}");
        entries.push(Entry::argument(&["outer", "iterations"], Given::Whole(asked as i64), text));
    }
    let mut config = crate::config::resolve(registry, &entries)?;
    let asked = asked(arguments.device.as_deref())?;
    if let Some(asked) = &arguments.precision {
        let precision =
            asked.parse::<Precision>().map_err(|reason| CliError::Usage(format!("--precision: {reason}")))?;
        if precision != config.precision {
            return Err(CliError::Usage(format!(
                "{0} was started with precision {1} and cannot continue with {precision}; start a new run with \
                 'bilevel run {0}/config.toml --precision {precision} --out DIR'",
                folder.path().display(),
                config.precision
            )));
        }
    }
    config.metrics.tensorboard |= arguments.tensorboard;
    // With a device on the command line, the change is intended.
    let was = folder.device().filter(|_| asked.is_some()).unwrap_or(config.device);
    folder.check_unchanged(&Config { device: was, ..config.clone() })?;
    config.device = settled(asked.unwrap_or(was), quiet)?;
    if config.device != was && !quiet {
        let _ = writeln!(
            std::io::stderr(),
            "the run was on {was} until now; on {} its numbers may differ in the last bits",
            config.device
        );
    }
    match newest.map(|newest| newest.checkpoint.iteration()) {
        None => {
            let lost = nothing_is_lost(&folder, &config)?;
            if lost > 0 && !quiet {
                let _ = writeln!(std::io::stderr(), "no checkpoint was finished in {lost} iterations; starting again");
            }
        }
        Some(done) if config.outer.iterations < done => {
            return Err(CliError::Usage(format!(
                "{0} has already done {done} iterations, so outer.iterations = {1} in {0}/config.toml leaves nothing \
                 to do; choose more than {done}",
                folder.path().display(),
                config.outer.iterations
            )));
        }
        Some(_) => {}
    }
    let display = (!quiet).then(RunProgress::stderr);
    let signal = stop_run_on_interrupt(folder.path())?;
    let result = execute_and_draw(&config, registry, &folder, true, display, signal)?;
    tell(&result, &folder, arguments.json, quiet, out)
}

/// Refuses to overwrite iterations whose checkpoint is gone. A run that was killed before its first checkpoint, which
/// follows the metrics of its iteration, starts from its beginning. Returns the number of iterations to repeat.
fn nothing_is_lost(folder: &RunFolder, config: &Config) -> Result<usize> {
    let done = look_at(folder, config, None)?;
    let finished = folder.result_file().exists();
    let none_was_written = !finished && folder.path_hash_file().exists() && done <= config.checkpoint.every as usize;
    if none_was_written || !finished && done == 0 {
        return Ok(done);
    }
    let there = match done {
        0 => "there is a result.json".to_string(),
        1 => "metrics.jsonl has 1 iteration".to_string(),
        done => format!("metrics.jsonl has {done} iterations"),
    };
    Err(CliError::Usage(format!(
        "there is no checkpoint in {0}, but {there}; start again with 'bilevel run {0}/config.toml --out DIR'",
        folder.path().display()
    )))
}
