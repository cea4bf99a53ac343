//! What learning a penalty for each weight is to be compared with: no penalty, and one for all weights.

use super::race::Ground;
use super::scores::score_rows;
use crate::Row;
use crate::digits::Score;
use crate::price::{Passes, price};
use bilevel::{Oracles, Result};

/// The penalty that is none.
const NONE: f64 = -30.0;
/// Penalties of the grid search for one that all weights share.
const SHARED: [f64; 8] = [-12.0, -11.0, -10.0, -9.0, -8.0, -7.0, -6.0, -5.0];

/// Plain training: without a penalty, and with one for all weights, from a grid at the cost of one run and at a full training
/// for each penalty.
pub(super) fn references(grounds: &[Ground], budget: f64) -> Result<Vec<Row>> {
    let steps = budget as usize;
    let training = |steps: usize| {
        price(Oracles { inner_gradients: steps as u64, losses: 1, ..Oracles::default() }, Passes::Separate)
    };
    let mut none = vec![];
    for ground in grounds {
        none.push(Some(ground.scores(&ground.train(NONE, steps)?)));
    }
    let mut rows = score_rows("no penalty", &format!("{steps} steps"), &none, None);
    for steps in [steps / SHARED.len(), steps] {
        let mut best = vec![];
        for ground in grounds {
            let mut least: Option<[Score; 2]> = None;
            for log_strength in SHARED {
                let scores = ground.scores(&ground.train(log_strength, steps)?);
                if least.is_none_or(|least| scores[0].loss < least[0].loss) {
                    least = Some(scores);
                }
            }
            best.push(least);
        }
        let cost = SHARED.len() as f64 * training(steps);
        let setting = format!("best of {} × {steps} steps, cost {cost}", SHARED.len());
        rows.extend(score_rows("one penalty", &setting, &best, None));
    }
    Ok(rows)
}
