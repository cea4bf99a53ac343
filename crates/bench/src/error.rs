//! Errors of a benchmark, each with a remedy.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a benchmark could not be run or is not worth anything.
#[derive(Debug)]
pub enum BenchError {
    /// The engine refused a program or a run.
    Engine(bilevel_graph::Error),
    /// The library refused a problem or a run.
    Library(bilevel::Error),
    /// The sizes of a case make no model.
    Model(bilevel_models::ModelError),
    /// A file could not be read or written.
    File {
        /// Which.
        path: PathBuf,
        /// The error of the system.
        cause: std::io::Error,
    },
    /// A file is not an array this program reads.
    Array {
        /// Which.
        path: PathBuf,
        /// The damage.
        reason: String,
    },
    /// A peer's program is missing or failed; the sentence has its name and the remedy.
    Peer(String),
    /// A result that cannot be right, so that its time means nothing.
    Wrong {
        /// The case.
        case: String,
        /// The observation.
        what: String,
    },
}

impl BenchError {
    /// For `map_err` on file operations.
    pub fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |cause| BenchError::File { path, cause }
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Engine(error) => error.fmt(f),
            BenchError::Library(error) => error.fmt(f),
            BenchError::Model(error) => error.fmt(f),
            BenchError::File { path, cause } => write!(f, "{}: {cause}", path.display()),
            BenchError::Array { path, reason } => write!(f, "{}: {reason}", path.display()),
            BenchError::Peer(sentence) => f.write_str(sentence),
            BenchError::Wrong { case, what } => write!(f, "{case}: {what}"),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<bilevel::Error> for BenchError {
    fn from(error: bilevel::Error) -> Self {
        BenchError::Library(error)
    }
}

impl From<bilevel_models::ModelError> for BenchError {
    fn from(error: bilevel_models::ModelError) -> Self {
        BenchError::Model(error)
    }
}

impl From<bilevel_graph::Error> for BenchError {
    fn from(error: bilevel_graph::Error) -> Self {
        BenchError::Engine(error)
    }
}

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, BenchError>;
