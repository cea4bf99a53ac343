//! Errors of a model's config.

use std::fmt;

/// The result of building a model.
pub type Result<T> = std::result::Result<T, ModelError>;

/// Why a model could not be built.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelError {
    /// These sizes do not form a model.
    Config {
        /// The model.
        model: &'static str,
        /// The mistake, and valid values.
        reason: String,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelError::Config { model, reason } => write!(f, "{model}: {reason}"),
        }
    }
}

impl std::error::Error for ModelError {}

impl From<ModelError> for bilevel::Error {
    fn from(error: ModelError) -> Self {
        bilevel::Error::other(error)
    }
}

/// Refuses a config that violates a condition.
pub(crate) fn require(model: &'static str, holds: bool, reason: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(ModelError::Config { model, reason: reason() }) }
}

/// Refuses a size of 0, and one so large that a product of three would overflow.
pub(crate) fn sizes(model: &'static str, named: &[(&str, usize)]) -> Result<()> {
    named.iter().try_for_each(|(name, size)| {
        require(model, (1..=1 << 20).contains(size), || format!("{name} is {size}; it must be between 1 and 2^20"))
    })
}
