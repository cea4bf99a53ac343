//! The outcome of a run, assembled when its loop has ended.

use crate::Result;
use crate::compiled::state::State;
use crate::generalisation::guard::GuardReport;
use crate::hypergradient::loop_use::Output;
use crate::outer::measures::Measures;
use crate::outer::progress::Progress;
use crate::outer::run::OuterLoop;
use crate::outer::stopping::{Outcome, StopReason};
use std::time::Duration;

impl OuterLoop<'_> {
    /// The outcome of a run that has ended for this reason. It has λ and θ of the best iteration if the guard keeps them.
    pub(super) fn outcome(
        &mut self,
        mut progress: Progress,
        reason: StopReason,
        mut notes: Vec<String>,
        elapsed: Duration,
    ) -> Result<Outcome> {
        let stopped = matches!(reason, StopReason::Signal);
        let guard = self.guarded(&progress);
        let kept = guard.filter(|guard| guard.kept_best);
        let returned = kept.and_then(|_| progress.guarded.take()).map(|best| best.state);
        notes.extend(kept.map(|guard| guard.to_string()));
        let measures = match stopped {
            true => Measures::default(),
            false => self.measures(&progress, returned.as_ref()).unwrap_or_else(|error| {
                notes.push(format!("the metrics could not be evaluated at the end: {error}"));
                Measures::default()
            }),
        };
        if let (Some(best), Some(gauge), false) = (&mut progress.best, &mut self.gauge, stopped) {
            match gauge.at(&best.state) {
                Ok(measured) => best.measures = measured.own,
                Err(error) => notes.push(format!("the metrics could not be evaluated at the best state: {error}")),
            }
        }
        let warnings = progress.numbers.looked.warnings();
        notes.extend(warnings.iter().map(|warning| format!("in the last diagnosis, {warning}")));
        notes.extend(self.without_movement(&progress)?);
        let Progress { state, numbers, best, .. } = progress;
        let problem = self.session.problem();
        let returned = returned.as_ref().unwrap_or(&state);
        Ok(Outcome {
            reason,
            lambda: problem.named_lambda(&returned.lambda)?,
            theta: problem.named_theta(&returned.theta)?,
            iterations: numbers.iteration,
            output: self.driver.method.output(),
            last: numbers.last,
            best_outer_loss: numbers.best,
            measures,
            best,
            guard,
            oracles: numbers.oracles,
            elapsed,
            state,
            notes,
        })
    }

    /// The reason, if λ has not moved.
    fn without_movement(&self, progress: &Progress) -> Result<Option<String>> {
        let is_zero = progress.numbers.last.as_ref().is_some_and(|last| last.hypergradient_norm == 0.0);
        if !is_zero || progress.state.lambda.arrays()? != self.first()?.lambda.arrays()? {
            return Ok(None);
        }
        Ok(Some(match self.driver.method.output() {
            // Normal at first: these methods move θ alone while that is enough to lower the outer loss.
            Output::Direction { .. } => format!(
                "λ has not changed yet: {} has moved only θ so far, and its direction of λ was exactly 0; run more \
                    iterations",
                self.driver.method.name()
            ),
            output => format!(
                "λ has not changed, because every {output} was exactly 0; start λ or θ elsewhere, or check for flat \
                    losses (an inactive ReLU, a comparison, a rounded number)"
            ),
        }))
    }

    /// The report of the guard so far.
    fn guarded(&self, progress: &Progress) -> Option<GuardReport> {
        let (watching, best) = (self.watching.as_ref()?, progress.guarded.as_ref()?);
        Some(watching.report(progress.numbers.watched.as_ref()?, best))
    }

    /// The measures at the state of this progress, or at another state, if the run is to measure.
    fn measures(&mut self, progress: &Progress, other: Option<&State>) -> Result<Measures> {
        let Some(gauge) = &mut self.gauge else { return Ok(Measures::default()) };
        let measured = progress.numbers.iteration.is_multiple_of(self.driver.criteria.measuring.every);
        match (other, &progress.numbers.last) {
            (Some(state), _) => Ok(gauge.at(state)?.own),
            (None, Some(last)) if measured => Ok(last.measures.clone()),
            _ => Ok(gauge.at(&progress.state)?.own),
        }
    }
}
