//! Parquet in a build without the feature `parquet`: an error.

use super::Metrics;
use crate::errors::{CliError, Result};

/// Refuses.
pub fn parquet(_: &Metrics) -> Result<Vec<u8>> {
    Err(CliError::Usage("this build writes no Parquet; build it with the feature 'parquet', or use --csv".into()))
}
