//! What the command can be asked for.

/// A request on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Show the tour of the engine.
    Tour,
    /// Say how the command is used.
    Help,
    /// Say which version this is.
    Version,
}

/// Reads the arguments that follow the command's name; the error is one sentence for the person who typed them.
///
/// ```
/// use bilevel_cli::{Command, parse};
/// assert_eq!(parse([]), Ok(Command::Tour));
/// assert_eq!(parse(["--version".to_string()]), Ok(Command::Version));
/// assert!(parse(["--fast".to_string()]).unwrap_err().contains("'--fast'"));
/// ```
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command, String> {
    let mut command = Command::Tour;
    for argument in arguments {
        command = match argument.as_str() {
            "-h" | "--help" => Command::Help,
            "-V" | "--version" if command != Command::Help => Command::Version,
            "-V" | "--version" => command,
            _ => {
                return Err(format!("bilevel: '{argument}' is not an argument it knows; 'bilevel --help' lists them."));
            }
        };
    }
    Ok(command)
}

/// Name and version.
pub fn version() -> String {
    format!("bilevel {}", env!("CARGO_PKG_VERSION"))
}

/// How the command is used.
pub fn help() -> String {
    format!(
        "{}
Learns hyperparameters by differentiating through training. Today the engine exists; this command shows it at work.

Usage: bilevel [--help | --version]

Without an argument it runs a tour of a few seconds:
  1. a loss, its graph, and its derivatives next to central differences
  2. a bi-level problem in one dimension, each outer iteration one call of a program
  3. a small network: time and memory of a gradient with a Hessian product

  -h, --help     print this
  -V, --version  print the version

Exit codes: 0 done, 1 the tour failed, 2 an argument was not understood.
",
        version()
    )
}
