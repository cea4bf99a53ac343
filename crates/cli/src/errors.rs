//! What can go wrong with the command, and the exit code each ends with.

use crate::config::errors::ConfigError;
use crate::run::folder::RunFolder;
use crate::terminal::readable::bytes;
use bilevel_graph::ErrorKind;
use bilevel_tasks::Device;
use std::fmt;
use std::path::{Path, PathBuf};

/// Everything went as asked.
pub const DONE: u8 = 0;
/// A check failed, or a run diverged.
pub const FAILED: u8 = 1;
/// Something that was given cannot be used: an argument, a file, a folder.
pub const BAD_INPUT: u8 = 2;
/// Stopped from outside; the run can be resumed.
pub const STOPPED: u8 = 130;

/// Why the command did not do what it was asked.
#[derive(Debug)]
pub enum CliError {
    /// The command line itself: one sentence.
    Usage(String),
    /// A configuration file or `--set`.
    Config(ConfigError),
    /// A task, a method or a checkpoint, refused by the library.
    Library(bilevel::Error),
    /// A file or folder that cannot be read or written.
    File {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// A new run was to go where one already is.
    Occupied(PathBuf),
    /// A folder to resume in which holds no run.
    NoRun(PathBuf),
    /// A folder to resume in which holds what a run leaves that was killed before it began.
    NotBegun(PathBuf),
    /// The configuration in the folder of a run is not the one it was begun with.
    Changed(PathBuf),
    /// The configuration in the folder of a run names another device than the one its checkpoints were made on.
    OtherDevice {
        /// The run's folder.
        path: PathBuf,
        /// Where it was.
        was: Device,
        /// What the configuration says.
        now: Device,
    },
    /// A file in the folder of a run is not its own.
    Foreign {
        /// The run's folder.
        path: PathBuf,
        /// The file's name.
        name: &'static str,
        /// What was found.
        what: String,
        /// What comes of moving it away; may be empty.
        then: &'static str,
    },
    /// A run to resume is past the last iteration asked for.
    Past {
        /// The run's folder.
        path: PathBuf,
        /// Where it is.
        done: u32,
        /// What was asked for.
        asked: u32,
    },
    /// The run ended because its files could not be written.
    Unwritten(String),
    /// The run diverged; the folder holds its last good state.
    Diverged {
        /// The run's folder.
        path: PathBuf,
        /// What was seen, and what to change.
        diagnosis: String,
    },
    /// The run was stopped from outside.
    Stopped {
        /// The run's folder.
        path: PathBuf,
        /// Iterations it has done.
        done: u32,
        /// Iterations it has to do.
        until: u32,
    },
    /// A study was stopped from outside.
    StoppedStudy {
        /// Its folder.
        path: PathBuf,
        /// Items that are done.
        done: usize,
    },
    /// A derivative is wrong.
    CheckFailed(String),
    /// What the command prints cannot be written.
    Output(std::io::Error),
}

impl CliError {
    /// A file or folder that cannot be read or written.
    pub fn file(action: &'static str, path: &Path, error: &std::io::Error) -> Self {
        CliError::File { action, path: path.to_path_buf(), reason: error.to_string() }
    }

    /// A file in the folder of a run that is not its own, as can be seen from this; `then` is what comes of moving it away.
    pub fn foreign(folder: &RunFolder, name: &'static str, what: String, then: &'static str) -> Self {
        CliError::Foreign { path: folder.path().to_path_buf(), name, what, then }
    }

    /// The exit code it ends with.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Diverged { .. } | CliError::CheckFailed(_) => FAILED,
            CliError::Library(bilevel::Error::Diverged { .. }) => FAILED,
            CliError::Stopped { .. } | CliError::StoppedStudy { .. } => STOPPED,
            // Whoever read our output has read enough.
            CliError::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => DONE,
            _ => BAD_INPUT,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CliError::Usage(sentence) => f.write_str(sentence),
            CliError::Config(error) => error.fmt(f),
            // All other settings are checked before a method is prepared.
            CliError::Library(bilevel::Error::Setting { name, value, must }) => {
                write!(f, "method.{name} is {value} but must be {must}")
            }
            CliError::Library(bilevel::Error::Graph(bilevel_graph::Error {
                kind: ErrorKind::OutOfMemory { needed, free },
                ..
            })) => {
                let free = free.map_or(", more than there is".into(), |free| format!(" and {} are free", bytes(free)));
                write!(
                    f,
                    "{} of memory are needed at once{free}; end what else uses it, choose --set dtype=f32, fewer chains, \
                     smaller batches or a method that keeps less ('rmd' with method.storage=checkpoints), or another --device",
                    bytes(*needed)
                )
            }
            CliError::Library(error) => error.fmt(f),
            CliError::File { action, path, reason } => write!(f, "cannot {action} {}: {reason}", path.display()),
            CliError::Occupied(path) => write!(
                f,
                "{0} already holds a run; go on with it by 'bilevel resume {0}', or choose another folder with --out",
                path.display()
            ),
            CliError::NoRun(path) => {
                write!(f, "{} holds no run: there is no config.toml in it", path.display())
            }
            CliError::NotBegun(path) => {
                let path = path.display();
                write!(f, "{path} holds no run that began; begin it with 'bilevel run TASK --out {path}'")
            }
            CliError::Changed(path) => write!(
                f,
                "{0}/config.toml was changed after the run began; change it back, or begin a new run with 'bilevel run \
                 {0}/config.toml'",
                path.display()
            ),
            CliError::OtherDevice { path, was, now } => write!(
                f,
                "the checkpoints in {0} were made on {was}, but {0}/config.toml says {now}; go on where it was with 'bilevel \
                 resume {0} --device {was}', or ask for {now} with --device {now}",
                path.display()
            ),
            CliError::Foreign { path, name, what, then } => write!(
                f,
                "{0}/{name} is not that of the run in {0}: {what}; put the right file back, or move this one away{then}",
                path.display()
            ),
            CliError::Past { path, done, asked } => write!(
                f,
                "{} has done {done} iterations already, so --outer {asked} leaves nothing to do; ask for more than {done}",
                path.display()
            ),
            CliError::Unwritten(reason) => f.write_str(reason),
            CliError::Diverged { path, diagnosis } => {
                write!(f, "the run diverged at {diagnosis}; its last good state is in {}", path.display())
            }
            CliError::Stopped { path, done, until } => {
                write!(f, "stopped after {done} of {until} iterations; go on with 'bilevel resume {}'", path.display())
            }
            CliError::StoppedStudy { path, done } => write!(
                f,
                "stopped; {done} {} done; to go on, give the same command with --out {}",
                if *done == 1 { "item is" } else { "items are" },
                path.display()
            ),
            CliError::CheckFailed(sentence) => f.write_str(sentence),
            CliError::Output(error) => write!(f, "cannot write the answer: {error}"),
        }
    }
}

impl std::error::Error for CliError {}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        CliError::Config(error)
    }
}

impl From<bilevel::Error> for CliError {
    fn from(error: bilevel::Error) -> Self {
        CliError::Library(error)
    }
}

impl From<bilevel_graph::Error> for CliError {
    fn from(error: bilevel_graph::Error) -> Self {
        CliError::Library(error.into())
    }
}

impl From<bilevel_data::Error> for CliError {
    fn from(error: bilevel_data::Error) -> Self {
        CliError::Usage(error.to_string())
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        CliError::Output(error)
    }
}

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, CliError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_said_with_what_was_needed_what_was_free_and_what_to_change() {
        let said = |needed, free| {
            let error = CliError::from(bilevel_graph::Error::new(ErrorKind::OutOfMemory { needed, free }));
            assert_eq!(error.exit_code(), BAD_INPUT);
            error.to_string()
        };
        let change = "end what else uses it, choose --set dtype=f32, fewer chains, smaller batches or a method that keeps less \
                      ('rmd' with method.storage=checkpoints), or another --device";
        let wanted = format!("12.5 GiB of memory are needed at once and 1,024 bytes are free; {change}");
        assert_eq!(said(25 << 29, Some(1024)), wanted);
        let wanted = format!("2048.0 GiB of memory are needed at once, more than there is; {change}");
        assert_eq!(said(2 << 40, None), wanted);
    }
}
