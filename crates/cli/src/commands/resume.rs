//! `bilevel resume`: goes on with a run; its result is that of a run that was never stopped, byte for byte.

use super::run::tell;
use crate::arguments::Resume;
use crate::config::Config;
use crate::config_entries::{Entry, Given};
use crate::display::Display;
use crate::errors::{CliError, Result};
use crate::folder::RunFolder;
use crate::interrupt::stop_run_on_interrupt;
use crate::runner::execute;
use bilevel::Checkpoints;
use std::io::Write;

/// Runs the command.
pub fn resume(arguments: &Resume, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let folder = RunFolder::of_run(&arguments.folder)?;
    let mut entries = folder.entries()?;
    if let Some(asked) = arguments.outer {
        let done = Checkpoints::new(folder.checkpoints()).newest()?.map_or(0, |newest| newest.checkpoint.iteration());
        if asked < done {
            return Err(CliError::Past { path: arguments.folder.clone(), done, asked });
        }
        entries.push(Entry::argument(&["outer", "iterations"], Given::Whole(asked as i64), format!("--outer {asked}")));
    }
    let mut config = Config::resolve(&entries)?;
    config.metrics.tensorboard |= arguments.tensorboard;
    folder.check_unchanged(&config)?;
    let display = (!quiet).then(Display::stderr);
    let result = execute(&config, &folder, true, display, stop_run_on_interrupt(folder.path())?)?;
    tell(&result, &folder, arguments.json, quiet, out)
}
