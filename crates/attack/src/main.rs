//! An attack on everything a user can reach: the command `bilevel`, the files of its runs, and the engine.

#[cfg(unix)]
mod arguments;
#[cfg(unix)]
mod attack;
#[cfg(unix)]
mod error;

use std::process::ExitCode;

/// Attacks as the command line says; exit status 1 if anything fails.
#[cfg(unix)]
fn main() -> ExitCode {
    use clap::Parser;
    match attack::run(&arguments::Arguments::parse().plan()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    eprintln!("the attack sends signals, so it needs a Unix system");
    ExitCode::FAILURE
}
