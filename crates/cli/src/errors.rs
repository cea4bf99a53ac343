//! Errors of the command, and their exit codes.

use crate::config::errors::ConfigError;
use crate::run::folder::RunFolder;
use crate::terminal::readable::bytes;
use bilevel_graph::ErrorKind;
use bilevel_run::Device;
use std::path::{Path, PathBuf};

/// Everything went as asked.
pub const DONE: u8 = 0;
/// A check failed, or a run diverged.
pub const FAILED: u8 = 1;
/// Something that was given cannot be used: an argument, a file, a folder.
pub const BAD_INPUT: u8 = 2;
/// Stopped from outside; the run can be resumed.
pub const STOPPED: u8 = 130;

/// The reason why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line itself: one sentence.
    #[error("{0}")]
    Usage(String),
    /// A configuration file or `--set`.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A task, a method or a checkpoint, refused by the library.
    #[error("{}", in_words(.0))]
    Library(#[from] bilevel::Error),
    /// A file or folder that cannot be read or written.
    #[error("cannot {action} {}: {reason}", path.display())]
    File {
        /// The action that failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// The folder for a new run already holds one.
    #[error(
        "{path} already holds a run; continue it with 'bilevel resume {path}', or choose another folder with --out",
        path = .0.display()
    )]
    Occupied(PathBuf),
    /// A folder to resume in which holds no run.
    #[error("{} holds no run: there is no config.toml in it", .0.display())]
    NoRun(PathBuf),
    /// A folder to resume in that holds only the traces of a run that was killed before it started.
    #[error("the run in {path} never started; start it with 'bilevel run TASK --out {path}'", path = .0.display())]
    NotBegun(PathBuf),
    /// The configuration in the folder of a run is not the one it was begun with.
    #[error(
        "{path}/config.toml was changed after the run started; change it back, or start a new run with 'bilevel run \
         {path}/config.toml'",
        path = .0.display()
    )]
    Changed(PathBuf),
    /// The configuration in the folder of a run names another device than the one its checkpoints were made on.
    #[error(
        "the checkpoints in {folder} were made on {was}, but {folder}/config.toml has {now}; continue on {was} with \
         'bilevel resume {folder} --device {was}', or on {now} with --device {now}",
        folder = path.display()
    )]
    OtherDevice {
        /// The run's folder.
        path: PathBuf,
        /// The device of the earlier process.
        was: Device,
        /// The device of the configuration.
        now: Device,
    },
    /// A file in the folder of a run is not its own.
    #[error(
        "{folder}/{name} does not belong to the run in {folder}: {what}; put the right file back, or move this one \
         away{then}",
        folder = path.display()
    )]
    Foreign {
        /// The run's folder.
        path: PathBuf,
        /// The file's name.
        name: &'static str,
        /// The contents that the folder has.
        what: String,
        /// The effect of moving it away; may be empty.
        then: &'static str,
    },
    /// A run to resume is past the last requested iteration.
    #[error(
        "{} has already done {done} iterations, so --iterations {asked} leaves nothing to do; choose more than {done}",
        path.display()
    )]
    Past {
        /// The run's folder.
        path: PathBuf,
        /// The iterations that are done.
        done: u32,
        /// The iterations that were requested.
        asked: u32,
    },
    /// The run ended because its files could not be written.
    #[error("{0}")]
    Unwritten(String),
    /// The run diverged; the folder holds its last good state.
    #[error("the run diverged at {diagnosis}; its last good state is in {}", path.display())]
    Diverged {
        /// The run's folder.
        path: PathBuf,
        /// The symptom, and the settings to change.
        diagnosis: String,
    },
    /// The run was stopped from outside.
    #[error("stopped after {done} of {until} iterations; continue with 'bilevel resume {}'", path.display())]
    Stopped {
        /// The run's folder.
        path: PathBuf,
        /// Iterations it has done.
        done: u32,
        /// Iterations it has to do.
        until: u32,
    },
    /// A study was stopped from outside.
    #[error(
        "stopped; {done} {} done; to continue, give the same command with --out {}",
        if *done == 1 { "item is" } else { "items are" },
        path.display()
    )]
    StoppedStudy {
        /// Its folder.
        path: PathBuf,
        /// Items that are done.
        done: usize,
    },
    /// An item of a study failed, and with it the study.
    #[error(
        "{item} failed: {error}. Finished items are kept; fix the problem and rerun the same command with --out {}",
        path.display()
    )]
    Item {
        /// The item.
        item: String,
        /// Why.
        error: Box<CliError>,
        /// Items that were stopped for it, or not begun.
        missing: Vec<String>,
        /// The folder of the study.
        path: PathBuf,
    },
    /// An item of a study failed on another rank.
    #[error("on rank {rank}: {sentence}")]
    OnRank {
        /// The rank.
        rank: usize,
        /// Why.
        sentence: String,
        /// The exit code that the error has there.
        code: u8,
        /// It is a refusal there.
        is_refusal: bool,
    },
    /// A derivative is wrong, a dataset is damaged, a comparison has no result.
    #[error("{0}")]
    CheckFailed(String),
    /// The output of the command cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
}

/// The library's complaint, with the keys and flags of the command.
fn in_words(error: &bilevel::Error) -> String {
    match error {
        // All other settings are checked before a method is prepared, or have their table in their name.
        bilevel::Error::Setting { name, value, must } if !name.contains('.') => {
            format!("method.{name} is {value} but must be {must}")
        }
        bilevel::Error::Graph(bilevel_graph::Error { kind: ErrorKind::OutOfMemory { needed, free }, .. }) => {
            let free = free
                .map_or(", more than there is in total".into(), |free| format!(", but only {} are free", bytes(free)));
            format!(
                "this needs {} of memory at once{free}; use --set dtype=f32, fewer chains, smaller batches, \
                 another --device, or a method that stores less, such as rmd with method.storage=checkpoints",
                bytes(*needed)
            )
        }
        error => error.to_string(),
    }
}

impl CliError {
    /// A file or folder that cannot be read or written.
    pub fn file(action: &'static str, path: &Path, error: &std::io::Error) -> Self {
        CliError::File { action, path: path.to_path_buf(), reason: error.to_string() }
    }

    /// A file in the folder of a run that belongs to another run, with the evidence; `then` is the effect of moving it
    /// away.
    pub fn foreign(folder: &RunFolder, name: &'static str, what: String, then: &'static str) -> Self {
        CliError::Foreign { path: folder.path().to_path_buf(), name, what, then }
    }

    /// Returns true if it was stopped from outside.
    pub fn is_a_stop(&self) -> bool {
        matches!(self, CliError::Stopped { .. } | CliError::StoppedStudy { .. })
    }

    /// Returns true if the request conflicts with existing files, and nothing was done.
    pub fn is_a_refusal(&self) -> bool {
        use CliError::{Changed, Config, Foreign, OtherDevice, Usage};
        let is_refused_elsewhere = matches!(self, CliError::OnRank { is_refusal: true, .. });
        is_refused_elsewhere || matches!(self, Usage(_) | Config(_) | Foreign { .. } | Changed(_) | OtherDevice { .. })
    }

    /// The same of a study that is one of several in this folder.
    pub fn in_folder(self, path: PathBuf) -> Self {
        match self {
            CliError::StoppedStudy { done, .. } => CliError::StoppedStudy { path, done },
            CliError::Item { item, error, missing, .. } => CliError::Item { item, error, missing, path },
            error => error,
        }
    }

    /// The exit code it ends with.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Diverged { .. } | CliError::CheckFailed(_) => FAILED,
            CliError::Library(bilevel::Error::Diverged { .. }) => FAILED,
            error if error.is_a_stop() => STOPPED,
            CliError::Item { error, .. } => error.exit_code(),
            CliError::OnRank { code, .. } => *code,
            // The reader of our output has read enough.
            CliError::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => DONE,
            _ => BAD_INPUT,
        }
    }
}

impl From<bilevel_graph::Error> for CliError {
    fn from(error: bilevel_graph::Error) -> Self {
        CliError::Library(error.into())
    }
}

#[cfg(feature = "download")]
impl From<bilevel_data::Error> for CliError {
    fn from(error: bilevel_data::Error) -> Self {
        CliError::Usage(error.to_string())
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
        let change = "use --set dtype=f32, fewer chains, smaller batches, another --device, or a method that stores \
        less, such as rmd with method.storage=checkpoints";
        let wanted = format!("this needs 12.5 GiB of memory at once, but only 1,024 bytes are free; {change}");
        assert_eq!(said(25 << 29, Some(1024)), wanted);
        let wanted = format!("this needs 2048.0 GiB of memory at once, more than there is in total; {change}");
        assert_eq!(said(2 << 40, None), wanted);
    }
}
