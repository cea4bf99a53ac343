//! Errors of a checkpoint or its folder.

use crate::errors::IoError;
use std::fmt;
use std::path::{Path, PathBuf};

/// The reason why a checkpoint was not read or written.
///
/// ```
/// use bilevel::checkpoints::{Checkpoint, CheckpointError};
/// let error = Checkpoint::decode(b"something else").unwrap_err();
/// assert!(matches!(error, CheckpointError::NotACheckpoint { .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The system refused to read or write.
    Io {
        /// The action that failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: IoError,
    },
    /// It lacks the header of a checkpoint.
    NotACheckpoint {
        /// The file.
        path: PathBuf,
    },
    /// It is a damaged checkpoint: truncated, altered, or inconsistent.
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage that was found.
        reason: String,
    },
    /// A newer version of the library wrote it.
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// An older version of the library wrote it.
    OlderVersion {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format known here.
        known: u32,
    },
    /// It belongs to another problem, method, optimizer or seed.
    Foreign {
        /// The file.
        path: PathBuf,
        /// The difference between the two.
        difference: String,
    },
    /// A run that does not resume was given a folder with checkpoints in it.
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// Another run writes to the folder.
    Busy {
        /// The folder.
        path: PathBuf,
    },
}

impl CheckpointError {
    #[cfg(feature = "checkpoints")]
    pub(crate) fn io(action: &'static str, path: &Path, error: std::io::Error) -> Self {
        CheckpointError::Io { action, path: path.to_path_buf(), source: error.into() }
    }

    #[cfg(feature = "checkpoints")]
    pub(crate) fn damaged(reason: impl Into<String>) -> Self {
        CheckpointError::Damaged { path: PathBuf::new(), reason: reason.into() }
    }

    /// The file or folder it is about; empty if the decoded bytes came from no file.
    ///
    /// ```
    /// use bilevel::checkpoints::Checkpoint;
    /// let error = Checkpoint::read("no/such/file").unwrap_err();
    /// assert_eq!(error.path(), std::path::Path::new("no/such/file"));
    /// ```
    pub fn path(&self) -> &Path {
        match self {
            CheckpointError::Io { path, .. }
            | CheckpointError::NotACheckpoint { path }
            | CheckpointError::Damaged { path, .. }
            | CheckpointError::NewerVersion { path, .. }
            | CheckpointError::OlderVersion { path, .. }
            | CheckpointError::Foreign { path, .. }
            | CheckpointError::Occupied { path }
            | CheckpointError::Busy { path } => path,
        }
    }

    /// The same about this file.
    #[cfg(feature = "checkpoints")]
    pub(crate) fn at(mut self, file: &Path) -> Self {
        match &mut self {
            CheckpointError::Io { path, .. }
            | CheckpointError::NotACheckpoint { path }
            | CheckpointError::Damaged { path, .. }
            | CheckpointError::NewerVersion { path, .. }
            | CheckpointError::OlderVersion { path, .. }
            | CheckpointError::Foreign { path, .. }
            | CheckpointError::Occupied { path }
            | CheckpointError::Busy { path } => *path = file.to_path_buf(),
        }
        self
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path().display();
        match self {
            CheckpointError::Io { action, source, .. } => write!(f, "cannot {action} {path}: {source}"),
            CheckpointError::NotACheckpoint { .. } => write!(f, "{path} is not a checkpoint"),
            CheckpointError::Damaged { reason, .. } => write!(f, "checkpoint {path} is damaged: {reason}"),
            CheckpointError::NewerVersion { found, known, .. } => write!(
                f,
                "checkpoint {path} has format {found}, and this version reads up to {known}; use a newer version"
            ),
            CheckpointError::OlderVersion { found, known, .. } => write!(
                f,
                "checkpoint {path} has format {found}, and this version reads only format {known}; finish the run \
                    with the version that started it, or start again"
            ),
            CheckpointError::Foreign { difference, .. } => {
                write!(f, "checkpoint {path} belongs to another run: {difference}")
            }
            CheckpointError::Occupied { .. } => {
                write!(f, "{path} already holds checkpoints; resume from them, or choose another folder")
            }
            CheckpointError::Busy { .. } => {
                write!(f, "another run writes checkpoints to {path}; wait for it, or choose another folder")
            }
        }
    }
}

impl std::error::Error for CheckpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CheckpointError::Io { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
