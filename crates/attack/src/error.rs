//! Errors that end an attack, each with a remedy.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why an attack cannot continue.
#[derive(Debug)]
pub enum AttackError {
    /// The engine refused a program.
    Engine(bilevel_graph::Error),
    /// A file could not be read or written.
    File {
        /// Which.
        path: PathBuf,
        /// The error of the system.
        cause: std::io::Error,
    },
    /// The command cannot be attacked; the sentence has the reason and the remedy.
    Command(String),
}

impl AttackError {
    /// For `map_err` on file operations.
    pub fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |cause| AttackError::File { path, cause }
    }
}

impl fmt::Display for AttackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttackError::Engine(error) => error.fmt(f),
            AttackError::File { path, cause } => write!(f, "{}: {cause}", path.display()),
            AttackError::Command(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for AttackError {}

impl From<bilevel_graph::Error> for AttackError {
    fn from(error: bilevel_graph::Error) -> Self {
        AttackError::Engine(error)
    }
}

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, AttackError>;
