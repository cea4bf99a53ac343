//! Errors of other libraries, shared so that ours can be cloned and compared.

use std::error::Error as StdError;
use std::sync::Arc;
use std::{fmt, io};

/// An error of the system. Two are equal if their kinds and messages are.
///
/// ```
/// use bilevel::errors::IoError;
/// use std::io::{Error, ErrorKind};
/// let full = || IoError::from(Error::new(ErrorKind::StorageFull, "no space left"));
/// assert_eq!(full(), full());
/// assert_eq!(full().kind(), ErrorKind::StorageFull);
/// ```
#[derive(Clone, Debug)]
pub struct IoError(Arc<io::Error>);

impl From<io::Error> for IoError {
    fn from(error: io::Error) -> Self {
        IoError(Arc::new(error))
    }
}

impl std::ops::Deref for IoError {
    type Target = io::Error;

    fn deref(&self) -> &io::Error {
        &self.0
    }
}

impl PartialEq for IoError {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.to_string() == other.to_string()
    }
}

impl Eq for IoError {}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An error that is not this library's. Two are equal if their messages are.
#[derive(Clone, Debug)]
pub struct OtherError(Arc<dyn StdError + Send + Sync>);

impl OtherError {
    /// Wraps an error, or a message.
    pub(super) fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        OtherError(Arc::from(error.into()))
    }

    /// The error itself: `error.get().downcast_ref::<E>()` gives it in its own type.
    pub fn get(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.0
    }
}

impl PartialEq for OtherError {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl fmt::Display for OtherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
