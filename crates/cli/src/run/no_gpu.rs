//! The answer to a request for a GPU without the feature `cuda`.

use crate::errors::{CliError, Result};
use bilevel_graph::Executor;
use std::sync::Arc;

/// Refuses a GPU.
pub fn executor(_number: usize) -> Result<Arc<dyn Executor>> {
    Err(absent())
}

/// Refuses a GPU.
pub fn name(_number: usize) -> Result<String> {
    Err(absent())
}

fn absent() -> CliError {
    CliError::Usage(
        "there is no support for GPUs in this program; build it with the feature 'cuda' of bilevel-cli".into(),
    )
}
