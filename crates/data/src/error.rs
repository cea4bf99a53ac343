//! Errors of data: each is a sentence with its kind, place and remedy.

use std::io;
use std::path::Path;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why data could not be read, prepared or fetched.
///
/// ```
/// use bilevel_data::{Error, readers::idx};
/// assert!(matches!(idx::read("no/such/file"), Err(Error::Io { .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("cannot {doing} {place}: {source}")]
    Io {
        /// The file or folder.
        place: String,
        /// The action that failed: `read`, `write`, `open` and so on.
        doing: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// A file that is truncated, damaged, or of another format.
    #[error("{place} {reason}")]
    Damaged {
        /// The file.
        place: String,
        /// The damage.
        reason: String,
    },
    /// A file that needs more than the limits allow.
    #[error("{place} {reason}; raise Limits::{limit} if this size is intended")]
    TooLarge {
        /// The file.
        place: String,
        /// The size that is too large, with both numbers.
        reason: String,
        /// The field of [`Limits`](crate::Limits) that refused it.
        limit: &'static str,
    },
    /// A request that makes no sense for these data.
    #[error("{0}")]
    Request(String),
    /// No dataset has this name.
    #[error("there is no dataset '{name}'{}", crate::registry::suggestion(.name))]
    UnknownDataset {
        /// The name given.
        name: String,
    },
    /// A dataset that can only be downloaded by hand.
    #[error("'{name}' has to be downloaded by hand: {how}")]
    ByHand {
        /// The dataset.
        name: &'static str,
        /// Its source, the terms to accept, and the place to put it.
        how: &'static str,
    },
    /// A download that failed.
    #[error("cannot download {url}: {reason}")]
    Download {
        /// The requested address.
        url: String,
        /// The failure.
        reason: String,
    },
    /// An error of the engine: arrays that do not fit together.
    #[error(transparent)]
    Engine(#[from] bilevel::Error),
}

/// A problem without its data cannot be built: its error is this sentence.
impl From<Error> for bilevel::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Engine(error) => error,
            other => bilevel::Error::other(other),
        }
    }
}

impl From<bilevel::graph::Error> for Error {
    fn from(error: bilevel::graph::Error) -> Self {
        Error::Engine(error.into())
    }
}

impl Error {
    pub(crate) fn damaged(place: &str, reason: impl Into<String>) -> Self {
        Error::Damaged { place: place.into(), reason: reason.into() }
    }

    pub(crate) fn request(reason: impl Into<String>) -> Self {
        Error::Request(reason.into())
    }

    /// Converts an error of the system about a path, for `map_err`.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + Clone {
        let place = path.display().to_string();
        move |source| Error::Io { place: place.clone(), doing, source }
    }

    /// A decoder's error: refusals by the system and limits are kept, everything else is damage.
    pub(crate) fn decoding(place: &str, error: io::Error) -> Self {
        if let Some(over) = find_over_limit(&error) {
            return over.clone().at(place);
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::damaged(place, "ends too early: it is truncated"),
            _ if error.raw_os_error().is_some() => Error::Io { place: place.into(), doing: "read", source: error },
            _ => Error::damaged(place, format!("cannot be decoded: {error}")),
        }
    }
}

/// A limit reached in the middle of a stream; it travels inside an [`io::Error`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct OverLimit {
    pub reason: String,
    pub limit: &'static str,
}

impl OverLimit {
    pub fn at(self, place: &str) -> Error {
        Error::TooLarge { place: place.into(), reason: self.reason, limit: self.limit }
    }
}

/// Decoders wrap the errors of their source, some of them more than once.
fn find_over_limit(error: &io::Error) -> Option<&OverLimit> {
    let mut inner: &(dyn std::error::Error + 'static) = error.get_ref()?;
    loop {
        if let Some(over) = inner.downcast_ref::<OverLimit>() {
            return Some(over);
        }
        inner = match inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(deeper) => deeper,
            None => inner.source()?,
        };
    }
}
