//! Packs of studies in a command that is built without them.

use crate::errors::{CliError, Result};
use std::path::Path;

/// Refuses to pack a study.
pub fn pack(_folder: &Path, _to: &Path) -> Result<usize> {
    refuse()
}

/// Refuses to unpack a study.
pub fn unpack(_from: &Path, _folder: &Path) -> Result<usize> {
    refuse()
}

fn refuse<T>() -> Result<T> {
    let sentence = "this command is built without packs of studies; build it with the feature 'packs' of bilevel-cli";
    Err(CliError::Usage(sentence.into()))
}
