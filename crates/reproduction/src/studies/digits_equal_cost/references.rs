//! Baselines for a learned penalty per weight: no penalty, and one for all weights.

use super::race::Ground;
use super::scores::score_rows;
use bilevel::Result;
use bilevel::methods::Oracles;
use bilevel_run::price::{Passes, price};
use bilevel_run::{Config, Measure, Place, Row};
use bilevel_tasks::digits::Score;
use serde::{Deserialize, Serialize};

/// The penalty that is none.
const NONE: f64 = -30.0;
/// Penalties of the grid search for one that all weights share.
const SHARED: [f64; 8] = [-12.0, -11.0, -10.0, -9.0, -8.0, -7.0, -6.0, -5.0];

/// Plain training on one split.
#[derive(Serialize)]
pub(super) struct References {
    pub config: Config,
    /// Steps of a training that costs as much as a run.
    pub steps: usize,
}

/// Scores of plain training: without a penalty, and with one for all weights, from a grid at the cost of one run and at a full
/// training for each penalty.
#[derive(Serialize, Deserialize)]
pub(super) struct Plain {
    none: [Score; 2],
    shared: [[Score; 2]; 2],
}

impl References {
    fn shares(steps: usize) -> [usize; 2] {
        [steps / SHARED.len(), steps]
    }
}

impl Measure for References {
    type Found = Plain;

    fn take(&self, place: &Place) -> Result<Plain> {
        let ground = Ground::new(&self.config, place)?;
        let score = |log_strength: f64, steps: usize| -> Result<[Score; 2]> {
            Ok(ground.scores(&ground.train(log_strength, steps)?))
        };
        let best = |steps: usize| -> Result<[Score; 2]> {
            let mut best = score(SHARED[0], steps)?;
            for log_strength in &SHARED[1..] {
                let scores: [Score; 2] = score(*log_strength, steps)?;
                if scores[0].loss < best[0].loss {
                    best = scores;
                }
            }
            Ok(best)
        };
        let [part, whole] = Self::shares(self.steps);
        Ok(Plain { none: score(NONE, self.steps)?, shared: [best(part)?, best(whole)?] })
    }
}

/// Rows of plain training on all splits.
pub(super) fn references(found: &[Plain], steps: usize) -> Vec<Row> {
    let training = |steps: usize| {
        price(Oracles { inner_gradients: steps as u64, losses: 1, ..Oracles::default() }, Passes::Separate)
    };
    let none: Vec<_> = found.iter().map(|plain| Some(plain.none)).collect();
    let mut rows = score_rows("no penalty", &format!("{steps} steps"), &none, (None, training(steps)));
    for (number, steps) in References::shares(steps).into_iter().enumerate() {
        let best: Vec<_> = found.iter().map(|plain| Some(plain.shared[number])).collect();
        let cost = SHARED.len() as f64 * training(steps);
        let setting = format!("best of {} × {steps} steps", SHARED.len());
        rows.extend(score_rows("one penalty", &setting, &best, (None, cost)));
    }
    rows
}
