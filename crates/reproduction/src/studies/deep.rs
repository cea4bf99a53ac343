//! Shared parts of the studies of networks.

use bilevel::{Precision, Problem, Result};
use bilevel_run::run::LambdaLeaf;
use bilevel_run::{Config, Device};
use serde::Serialize;

/// Products are rounded on devices on which that makes them faster.
pub(super) fn precision_on(device: Device) -> Precision {
    if device == Device::Cpu { Precision::Full } else { Precision::Tf32 }
}

/// The λ of another item that a measurement takes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LearnedLambda {
    #[serde(skip)]
    path: String,
    /// Its contents count, not its place.
    checksum: String,
}

impl LearnedLambda {
    /// The one that a configuration starts from.
    pub fn of(config: &Config) -> Self {
        LearnedLambda { path: config.start.lambda.clone(), checksum: config.start.checksum.clone() }
    }

    /// Its leaves, as those of a problem; `None` if there is no such λ.
    pub fn read(&self, problem: &Problem) -> Result<Option<Vec<LambdaLeaf>>> {
        let is_there = !self.path.is_empty();
        is_there.then(|| Ok(LambdaLeaf::all(&problem.load_lambda(&self.path)?))).transpose()
    }
}
