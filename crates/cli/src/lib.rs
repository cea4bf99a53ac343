//! The `bilevel` command, for the tasks, studies, methods and optimizers of a [`Registry`]: its own, or yours.
//!
//! Use it as a library to build a command with your own tasks; `examples/own-task` is a complete one.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     // With your own tasks: bilevel_run::Registry::new().task::<MyTask>()
//!     bilevel_cli::main(&bilevel_cli::everything())
//! }
//! ```
//!
//! `run` executes runs and studies and stores them in folders, `pages` and `terminal` show them, and `commands` has one
//! file per command.

#![forbid(unsafe_code)]

pub mod arguments;
pub mod commands;
mod comparison;
pub mod errors;
mod export;
#[cfg(doctest)]
mod guide;
mod pages;
pub mod run;
mod runs;
#[cfg(feature = "serve")]
mod serve;
mod sweep;
mod terminal;
mod tour;

pub use bilevel_run::config;
pub use pages::own::report_of;

use arguments::{Arguments, Command};
use bilevel_run::Registry;
use bilevel_run::config::MAX_WORD_BYTES;
use clap::{CommandFactory, Parser};
use errors::{BAD_INPUT, CliError, DONE, Result};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};

/// Everything this build has: the library's methods and optimizers, and by its features the tasks and the studies.
pub fn everything() -> Registry {
    let registry = Registry::new();
    #[cfg(feature = "tasks")]
    let registry = bilevel_tasks::register(registry);
    #[cfg(feature = "reproduction")]
    let registry = bilevel_reproduction::register(registry);
    registry
}

/// The whole command, for everything that is registered.
pub fn main(registry: &Registry) -> std::process::ExitCode {
    run_with(registry, std::env::args_os()).into()
}

/// Executes the command of the arguments, prints the result, and returns the exit code.
pub fn run_with(registry: &Registry, arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(long) = arguments.iter().find(|argument| argument.len() > MAX_WORD_BYTES) {
        complain(&format!("an argument of {} bytes is too long; at most {MAX_WORD_BYTES} are allowed", long.len()));
        return BAD_INPUT;
    }
    if let Err(error) = run::ranks::detect() {
        return refuse(&error);
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
    let done = dispatch(registry, &arguments);
    let code = done.as_ref().map_or_else(refuse, |()| DONE);
    run::ranks::end(&done);
    code
}

/// Prints an error and returns its exit code.
fn refuse(error: &CliError) -> u8 {
    let code = error.exit_code();
    if code != DONE {
        complain(&error.to_string());
    }
    code
}

/// Prints an error on one line, ignoring failures to print. With several ranks, only the first prints.
fn complain(sentence: &str) {
    if !run::ranks::follows() {
        say_whatever(sentence);
    }
}

/// Prints a sentence on any rank.
fn say_whatever(sentence: &str) {
    let _ = writeln!(std::io::stderr(), "bilevel: {}", terminal::readable::one_line(sentence));
}

fn dispatch(registry: &Registry, arguments: &Arguments) -> Result<()> {
    let quiet = arguments.quiet || run::ranks::follows();
    let mut out: Box<dyn Write> = match run::ranks::follows() {
        true => Box::new(std::io::sink()),
        false => Box::new(std::io::stdout().lock()),
    };
    share_out(&arguments.command)?;
    terminal::interrupt::be_quiet(quiet);
    match &arguments.command {
        Some(Command::List(list)) => commands::list::list(registry, list, &mut out),
        #[cfg(feature = "cuda")]
        Some(Command::Devices(devices)) => commands::devices::devices(devices, &mut out),
        #[cfg(feature = "download")]
        Some(Command::Data(data)) => commands::data::data(data, quiet, &mut out),
        Some(Command::Run(run)) => commands::run::run(registry, run, quiet, &mut out),
        Some(Command::Resume(resume)) => commands::resume::resume(registry, resume, quiet, &mut out),
        Some(Command::Compare(compare)) => commands::compare::compare(registry, compare, quiet, &mut out),
        None if registry.known_study(commands::reproduce::FIRST_STUDY).is_ok() => {
            commands::reproduce::bare(registry, quiet, &mut out)
        }
        None => Ok(write!(out, "{}", Arguments::command().render_help())?),
        Some(Command::Check(check)) => commands::check::check(registry, check, quiet, &mut out),
        Some(Command::Advise(advise)) => commands::advise::advise(registry, advise, quiet, &mut out),
        Some(Command::Report(report)) => commands::report::report(registry, report, quiet, &mut out),
        Some(Command::Runs(runs)) => commands::runs::runs(runs, quiet, &mut out),
        Some(Command::Export(export)) => commands::export::export(export, quiet, &mut out),
        #[cfg(feature = "serve")]
        Some(Command::Serve(serve)) => commands::serve::serve(registry, serve, quiet, &mut out),
        Some(Command::Reproduce(reproduce)) => commands::reproduce::reproduce(registry, reproduce, quiet, &mut out),
        Some(Command::Schema) => Ok(writeln!(out, "{:#}", config::schema::schema(registry)?)?),
        Some(Command::Completions { shell }) => {
            let mut script = vec![];
            clap_complete::generate(*shell, &mut Arguments::command(), "bilevel", &mut script);
            out.write_all(&script).map_err(CliError::Output)
        }
        Some(Command::Tour) => {
            let bold = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            tour::tour(&mut tour::TourPage::new(&mut out, bold))
        }
    }
}

/// Joins the other ranks, if there are several and they can share the command.
fn share_out(command: &Option<Command>) -> Result<()> {
    let Some(command) = command else { return run::ranks::join() };
    match command {
        Command::Run(_) | Command::Resume(_) | Command::Compare(_) => run::ranks::join(),
        Command::Reproduce(reproduce) if reproduce.study.as_deref() != Some("all") => run::ranks::join(),
        #[cfg(feature = "cuda")]
        Command::Devices(_) => run::ranks::join(),
        Command::Schema | Command::Completions { .. } | Command::List(_) => Ok(()),
        _ => run::ranks::refuse(),
    }
}

/// The example in the project's README, compiled and run with the other tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
