//! The `bilevel` command: one file a command under `commands`, and what they share.

mod advice;
pub mod arguments;
mod board;
mod calm;
pub mod commands;
mod compare;
pub mod config;
pub mod config_entries;
pub mod config_errors;
mod config_keys;
mod config_text;
pub mod device;
mod digits;
mod display;
pub mod errors;
pub mod folder;
#[cfg(doctest)]
mod guide;
mod interrupt;
mod lambda_view;
mod marked_folder;
mod metrics;
mod numbers;
mod outer_settings;
pub mod own_report;
mod readable;
mod reproduction;
pub mod result;
mod run_history;
mod run_plots;
mod run_record;
mod run_report;
pub mod runner;
pub mod schema;
mod side_by_side;
mod spread;
mod tensorboard;
mod tour;

use arguments::{Arguments, Command};
use clap::{CommandFactory, Parser};
use errors::{BAD_INPUT, CliError, DONE, Result};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};

/// Does what the arguments ask for, prints what comes of it, and answers with the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(long) = arguments.iter().find(|argument| argument.len() > LONGEST) {
        complain(&format!("an argument of {} bytes is too long; the longest may have {LONGEST}", long.len()));
        return BAD_INPUT;
    }
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        // Help and version come as errors that are none.
        Err(error) if !error.use_stderr() => {
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            return printed.map_or_else(|error| refuse(&CliError::Output(error)), |()| DONE);
        }
        Err(error) => {
            complain(&arguments::sentence(&error));
            return BAD_INPUT;
        }
    };
    match dispatch(&arguments) {
        Ok(()) => DONE,
        Err(error) => refuse(&error),
    }
}

/// The longest argument and the longest word of a setting, in bytes; no path can be longer.
const LONGEST: usize = 4096;

/// Says what is wrong and answers with its exit code.
fn refuse(error: &CliError) -> u8 {
    let code = error.exit_code();
    if code != DONE {
        complain(&error.to_string());
    }
    code
}

/// Says what is wrong, if there is anybody to hear it: in one line, whatever was given.
fn complain(sentence: &str) {
    let _ = writeln!(std::io::stderr(), "bilevel: {}", readable::one_line(sentence));
}

fn dispatch(arguments: &Arguments) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let quiet = arguments.quiet;
    interrupt::be_quiet(quiet);
    match &arguments.command {
        Some(Command::List(list)) => commands::list::list(list, &mut out),
        Some(Command::Devices(devices)) => commands::devices::devices(devices, &mut out),
        Some(Command::Run(run)) => commands::run::run(run, quiet, &mut out),
        Some(Command::Resume(resume)) => commands::resume::resume(resume, quiet, &mut out),
        Some(Command::Compare(compare)) => commands::compare::compare(compare, quiet, &mut out),
        Some(Command::Digits(digits)) => commands::digits::digits(digits, quiet, &mut out),
        None => commands::digits::digits(&arguments::Digits::default(), quiet, &mut out),
        Some(Command::Check(check)) => commands::check::check(check, quiet, &mut out),
        Some(Command::Report(report)) => commands::report::report(report, quiet, &mut out),
        Some(Command::Reproduce(reproduce)) => commands::reproduce::reproduce(reproduce, quiet, &mut out),
        Some(Command::Schema) => Ok(writeln!(out, "{:#}", schema::schema()?)?),
        Some(Command::Completions { shell }) => {
            let mut script = vec![];
            clap_complete::generate(*shell, &mut Arguments::command(), "bilevel", &mut script);
            out.write_all(&script).map_err(CliError::Output)
        }
        Some(Command::Tour) => {
            let bold = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
            tour::tour(&mut tour::Page::new(&mut out, bold))
        }
    }
}

/// The example in the project's README, compiled and run with the other tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
