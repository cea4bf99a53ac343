//! The progress of an outer loop: everything that it carries between iterations, and that a checkpoint holds.

use crate::Result;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::generalisation::guard::Watched;
use crate::health::diagnostics::Diagnostics;
use crate::health::divergence::Watch;
use crate::hypergradient::{MemoryTable, Oracles};
use crate::outer::measures::{Best, Followed, Measured, Measuring};
use crate::outer::observer::Iteration;
use crate::outer::step::Slots;
use std::time::Duration;

/// The tensors, on their device, and the numbers.
pub(crate) struct Progress {
    pub state: State,
    /// The state of the optimizer.
    pub slots: Slots,
    /// The state at which the measure to keep the best of was best; never modified.
    pub best: Option<Best>,
    /// The state at which held-out rows were best; never modified.
    pub guarded: Option<Best>,
    pub numbers: Numbers,
}

/// The numbers of a run so far.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Numbers {
    /// Iterations done.
    pub iteration: u32,
    pub oracles: Oracles,
    /// The lowest outer loss, and the one patience measures improvement from.
    pub best: Option<f64>,
    pub mark: Option<f64>,
    /// Iterations since the mark was set.
    pub since_best: u32,
    /// The measure that patience follows.
    pub followed: Option<Followed>,
    /// The state of the guard.
    pub watched: Option<Watched>,
    pub last: Option<Iteration>,
    /// ‖λ‖ after the last of them.
    pub lambda_norm: f64,
    /// The diagnostics of the last examined hypergradient.
    pub looked: Diagnostics,
    pub watch: Watch,
    pub elapsed: Duration,
}

impl Progress {
    /// A copy in separate memory, made without the host.
    pub fn duplicate(&self, session: &Session) -> Result<Self> {
        let executor = session.executor();
        let slots = self.slots.iter().map(|slot| slot.duplicate(executor)).collect::<Result<_>>()?;
        let [best, guarded] = [&self.best, &self.guarded].map(|best| best.as_ref().map(Best::handle));
        Ok(Progress { state: self.state.duplicate(executor)?, slots, best, guarded, numbers: self.numbers.clone() })
    }

    /// Copies another progress of the same run, without the host.
    pub fn copy_from(&mut self, other: &Progress, session: &Session) -> Result<()> {
        self.copy_changes_from(other, &[], session)
    }

    /// As [`copy_from`](Self::copy_from), if the tables in the method's memory differ only in these rows.
    pub fn copy_changes_from(&mut self, other: &Progress, tables: &[MemoryTable], session: &Session) -> Result<()> {
        self.state.copy_changes_from(&other.state, tables, session.executor())?;
        self.slots.iter().zip(&other.slots).try_for_each(|(slot, other)| slot.copy_from(other))?;
        self.best = other.best.as_ref().map(Best::handle);
        self.guarded = other.guarded.as_ref().map(Best::handle);
        self.numbers.clone_from(&other.numbers);
        Ok(())
    }

    /// Takes in the measures after the last iteration.
    pub fn note_measures(&mut self, measures: Measured, measuring: &Measuring, session: &Session) -> Result<()> {
        let Progress { state, numbers, best, .. } = self;
        if let Some((aim, _, improvement)) = &measuring.patience {
            numbers.followed.get_or_insert_with(|| Followed::new(aim)).note(&measures, *improvement);
        }
        if let Some(aim) = &measuring.keep
            && let Some(better) = Best::of(aim, best.as_ref(), (numbers.iteration, &measures), state, session)?
        {
            *best = Some(better);
        }
        if let Some(last) = &mut numbers.last {
            // The guard may have measured already.
            let held_out = std::mem::replace(&mut last.measures, measures.own);
            held_out.iter().for_each(|(name, value)| last.measures.push(name, value));
        }
        Ok(())
    }
}

impl Numbers {
    /// Before the first iteration.
    pub fn new() -> Self {
        Numbers {
            iteration: 0,
            oracles: Oracles::default(),
            best: None,
            mark: None,
            since_best: 0,
            followed: None,
            watched: None,
            last: None,
            lambda_norm: 0.0,
            looked: Diagnostics::default(),
            watch: Watch::default(),
            elapsed: Duration::ZERO,
        }
    }

    /// The last step of λ was larger than 1 and than half of λ.
    pub fn leapt(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.step_norm > 1.0_f64.max(0.5 * self.lambda_norm))
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
