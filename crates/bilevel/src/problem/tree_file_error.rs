//! Errors of a file of λ or θ.

use crate::errors::IoError;
use std::fmt;
use std::path::PathBuf;

/// The reason why a tree could not be saved or loaded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TreeFileError {
    /// The system refused.
    Io {
        /// The file.
        path: PathBuf,
        /// The action that failed: `read` or `write`.
        doing: &'static str,
        /// The system's error.
        source: IoError,
    },
    /// The file is not a safetensors file of floats or 32-bit integers.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The damage.
        reason: String,
    },
    /// The arrays in it are not those of the tree.
    Unlike {
        /// The file.
        path: PathBuf,
        /// Leaves of the tree that it lacks.
        missing: Vec<String>,
        /// Arrays in it that the tree has no leaf for.
        extra: Vec<String>,
        /// Leaves with another shape or type than the tree's, each with a sentence on both.
        misshapen: Vec<(String, String)>,
    },
}

impl fmt::Display for TreeFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeFileError::Io { path, doing, source } => write!(f, "cannot {doing} {}: {source}", path.display()),
            TreeFileError::Unreadable { path, reason } => write!(f, "{} cannot be read: {reason}", path.display()),
            TreeFileError::Unlike { path, missing, extra, misshapen } => {
                write!(f, "{} does not match the problem", path.display())?;
                // A tree that is one single leaf has no name for it.
                let named = |name: &String| if name.is_empty() { "its one array".into() } else { format!("'{name}'") };
                let quoted = |names: &[String]| names.iter().map(named).collect::<Vec<_>>().join(", ");
                if !missing.is_empty() {
                    write!(f, "; it is missing {}", quoted(missing))?;
                }
                if !extra.is_empty() {
                    write!(f, "; it has {}, which the problem does not have", quoted(extra))?;
                }
                misshapen.iter().try_for_each(|(name, how)| write!(f, "; {} {how}", named(name)))
            }
        }
    }
}

impl std::error::Error for TreeFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TreeFileError::Io { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
