//! An inner step that is reduced until a hypergradient exists.
//!
//! If the sensitivities of a hypergradient grow without end, or burst within it, it is discarded. The run restores θ
//! and the method's memory, and reduces the inner step, at least by half, to one without growth. Then the hypergradient
//! is estimated again. The step stays reduced; its factor is part of the state, so that a resumed run continues with
//! it.

use crate::health::final_losses::FinalLosses;
use crate::hypergradient::vocabulary::*;
use bilevel_graph::{Buffer, Executor, Meta};

/// The step is not reduced below this share of the configured one.
const LEAST: f64 = 1.0 / 1024.0;
/// The largest factor of one reduction.
const AT_MOST: f64 = 0.5;

/// An estimator whose γ may be reduced, for any method (`shrink` of the inner loop).
pub(crate) struct Shrinking {
    estimator: FinalLosses,
    session: Session,
    /// The state before the hypergradient.
    before: Option<State>,
}

impl Shrinking {
    /// Around this estimator.
    pub fn new(estimator: FinalLosses, session: &Session) -> Self {
        Shrinking { estimator, session: session.clone(), before: None }
    }

    /// The estimator's own state, and the share of the step, which is the last leaf of the memory.
    fn open(&self, state: &State) -> Result<(State, Buffer, f64)> {
        let executor = self.session.executor();
        let (share, memory, factor) = match state.memory.split_last() {
            Some((share, memory)) => (share.clone(), memory.iter().cloned().collect(), share.item()?),
            None => (share_leaf(executor)?, Default::default(), 1.0),
        };
        Ok((State { lambda: state.lambda.clone(), theta: state.theta.clone(), memory }, share, factor))
    }

    fn remember(&mut self, state: &State) -> Result<()> {
        let executor = self.session.executor();
        match &mut self.before {
            Some(before) => before.copy_from(state, executor),
            None => {
                self.before = Some(state.duplicate(executor)?);
                Ok(())
            }
        }
    }
}

/// Puts the share behind the memory again.
fn close(state: &mut State, within: State, share: Buffer) {
    state.memory = within.memory.iter().cloned().chain([share]).collect();
}

fn share_leaf(executor: &dyn Executor) -> Result<Buffer> {
    Ok(executor.buffer(&Meta { dtype: DType::F64, shape: vec![] })?)
}

impl Estimator for Shrinking {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let (mut within, share, mut factor) = self.open(state)?;
        self.remember(&within)?;
        let mut oracles = Oracles::default();
        loop {
            let step = gamma * factor;
            let mut found = self.estimator.estimate(&mut within, key, step)?;
            oracles += found.oracles;
            // If θ itself diverged, nothing could be measured.
            let calm = match found.diagnostics.burst() {
                true => found.diagnostics.calm_step.unwrap_or(step * AT_MOST),
                false if !found.inner_loss.is_finite() => step * AT_MOST,
                false => step,
            };
            if calm < step && factor > LEAST {
                factor *= (calm / step).min(AT_MOST);
                if let Some(before) = &self.before {
                    within.copy_from(before, self.session.executor())?;
                }
                continue;
            }
            found.oracles = oracles;
            found.diagnostics.reduced_step = (factor < 1.0).then_some(step);
            share.set_item(factor)?;
            close(state, within, share);
            return Ok(found);
        }
    }

    fn restart(&mut self, state: &mut State, theta: &Leaves) -> Result<()> {
        let (mut within, share, factor) = self.open(state)?;
        self.estimator.restart(&mut within, theta)?;
        share.set_item(factor)?;
        close(state, within, share);
        Ok(())
    }

    fn tables(&self) -> &[MemoryTable] {
        self.estimator.tables()
    }
}
