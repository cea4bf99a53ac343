//! The `bilevel` command.

use bilevel_cli::{Command, Page, help, parse, tour, version};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned());
    let command = match parse(arguments) {
        Ok(command) => command,
        Err(sentence) => {
            eprintln!("{sentence}");
            return ExitCode::from(2);
        }
    };
    let mut out = io::stdout().lock();
    let bold = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let done = match command {
        Command::Help => write!(out, "{}", help()).map_err(Into::into),
        Command::Version => writeln!(out, "{}", version()).map_err(Into::into),
        Command::Tour => tour(&mut Page::new(&mut out, bold)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has read enough.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bilevel: {error}");
            ExitCode::FAILURE
        }
    }
}
