//! What a regularisation weight for every parameter is worth: none, one tuned weight, and 640 learned ones, on several splits.
//!
//! A linear classifier is trained on few digits, so that regularisation matters. On every split:
//!
//!   1. it is trained without regularisation;
//!   2. it is trained once for each weight of a grid that all parameters share; the best on the validation digits is kept;
//!   3. from that weight on, each method learns a weight for every parameter by the validation loss, within one budget of
//!      gradients and with the same inner loop;
//!   4. with each λ found, a classifier is trained afresh for as many steps as in 1 and 2, and that one is judged.
//!
//! Test digits are looked at by nobody but the judge.

mod methods;
mod trial;

pub use methods::{METHODS, Setting};
pub use trial::{Point, Scores, Trial, trial, trials};

use super::{Digits, Split};
use std::sync::Arc;

/// The name under which the classifier without regularisation appears.
pub const NONE: &str = "no regularisation";
/// The name under which the best shared weight appears.
pub const SHARED: &str = "one tuned weight";
/// The name of the reference that trains on the validation digits too.
pub const BOTH: &str = "one tuned weight, trained on validation digits too";

/// How much is done. The settings of the methods are in [`METHODS`].
///
/// ```
/// use bilevel_tasks::digits::study::Plan;
/// assert!(Plan::quick().budget < Plan::full().budget);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Seeds of the splits.
    pub splits: Vec<u64>,
    /// Digits to train on.
    pub train: usize,
    /// Steps of a training from weights 0.
    pub steps: usize,
    /// Logarithms of the shared weights that are tried.
    pub grid: Vec<f64>,
    /// Inner steps of one hypergradient.
    pub inner_steps: usize,
    /// What a method may spend on hypergradients, in gradients.
    pub budget: f64,
}

impl Plan {
    /// What the bare command runs: a few seconds.
    ///
    /// 200 digits, about 20 of each class, are few enough that regularisation matters: with all 599 digits of a third, one
    /// tuned weight and none do equally well, and 640 learned ones soon fit the validation digits at the cost of the test
    /// digits. The budget is about where the test loss stops falling while the validation loss still falls. Both were chosen
    /// looking at validation and test losses on the splits 101 to 103, which are not among those here.
    pub fn full() -> Self {
        Plan {
            splits: (1..=5).collect(),
            train: 200,
            steps: 2000,
            grid: (-12..=-5).map(f64::from).collect(),
            inner_steps: 20,
            budget: 10_000.0,
        }
    }

    /// Enough to see that everything works.
    pub fn quick() -> Self {
        Plan { splits: vec![1, 2], steps: 200, grid: vec![-10.0, -8.0, -6.0], budget: 800.0, ..Self::full() }
    }

    /// The price of all that is done on one split, in gradients.
    pub fn price_of_split(&self) -> f64 {
        let methods = METHODS.len() as f64;
        // One training without regularisation, those of the grid, one more on all digits, and one for each λ found.
        (2.0 + self.grid.len() as f64 + methods) * self.steps as f64 + methods * self.budget
    }

    /// The digits of a split: few to train on, a third of all to choose by, a third to judge by.
    pub fn split(&self, seed: u64) -> Split {
        let split = Split::new(seed);
        Split { train: split.train.first(self.train), ..split }
    }

    /// The same with the validation digits among those to train on.
    fn split_of_both(&self, seed: u64) -> Split {
        let split = self.split(seed);
        let Digits { mut pixels, mut labels } = split.train;
        pixels.extend_from_slice(&split.validation.pixels);
        labels.extend_from_slice(&split.validation.labels);
        Split { train: Digits { pixels, labels }, ..split }
    }
}

/// What is being done, for a display.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The row it is for.
    pub name: &'static str,
    /// The split.
    pub split: u64,
    /// Gradients computed since the last report.
    pub gradients: f64,
}

/// Who is told.
pub type Watch = Arc<dyn Fn(Progress) + Send + Sync>;
