//! The result of a measure that a manifest names, in the form of a run's.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of a measure, for the rows of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// Numbers by name: one, or one for each of several runs.
    pub numbers: BTreeMap<String, Vec<f64>>,
    /// Numbers by name over outer iterations.
    pub way: BTreeMap<String, Vec<(f64, f64)>>,
    /// The name of the leaf of λ that is shown.
    pub leaf: String,
    /// λ at the end.
    pub lambda: Vec<f64>,
    /// Its cost, in gradients.
    pub cost: Option<f64>,
    /// Runs that diverged.
    pub diverged: u32,
}
