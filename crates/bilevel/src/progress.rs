//! Everything an outer loop carries from one iteration to the next: what a checkpoint has to hold.

use crate::diagnostics::Diagnostics;
use crate::divergence::Watch;
use crate::estimator::{Oracles, State};
use crate::observer::Iteration;
use crate::outer_step::Slots;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Progress {
    /// Iterations done.
    pub iteration: u32,
    pub state: State,
    /// What the optimizer remembers.
    pub slots: Slots,
    pub oracles: Oracles,
    /// The least outer loss, and the one patience measures improvement from.
    pub best: Option<f64>,
    pub mark: Option<f64>,
    /// Iterations since the mark was set.
    pub since_best: u32,
    pub last: Option<Iteration>,
    /// What was seen when the last hypergradient was looked into.
    pub looked: Diagnostics,
    pub watch: Watch,
    pub elapsed: Duration,
}

impl Progress {
    /// Before the first iteration.
    pub fn new(state: State, slots: Slots) -> Self {
        Progress {
            iteration: 0,
            state,
            slots,
            oracles: Oracles::default(),
            best: None,
            mark: None,
            since_best: 0,
            last: None,
            looked: Diagnostics::default(),
            watch: Watch::default(),
            elapsed: Duration::ZERO,
        }
    }

    /// Takes in an outer loss; only one below the mark by `improvement` sets a new mark.
    pub fn note_loss(&mut self, loss: f64, improvement: f64) {
        self.best = Some(self.best.map_or(loss, |best| best.min(loss)));
        if self.mark.is_none_or(|mark| loss < mark - improvement) {
            self.mark = Some(loss);
            self.since_best = 0;
        } else {
            self.since_best = self.since_best.saturating_add(1);
        }
    }
}
