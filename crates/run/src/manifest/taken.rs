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
    /// The end of a run that missed its target, such as "are not within 0.1"; empty otherwise.
    #[serde(default)]
    pub missed: String,
    /// Pictures for the page.
    #[serde(default)]
    pub pictures: Vec<TakenPicture>,
}

/// A picture in a grid to which every row of a table contributes a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TakenPicture {
    /// The title of the grid.
    pub grid: String,
    /// The line, if it is not that of the row: all rows have the same one, which is shown once.
    pub row: String,
    /// The column.
    pub column: String,
    /// The caption below it.
    pub caption: String,
    /// Pixels in a row.
    pub side: usize,
    /// Red, green and blue for every pixel; otherwise one level.
    pub colours: bool,
    /// From 0 to 255, row by row.
    pub levels: Vec<u8>,
}
