//! The problem on which a run learns λ, and the way back: folds and shrinkage change the problem, and a last training
//! ends the run.
//!
//! | switch | the run | the result |
//! |---|---|---|
//! | `held_out.folds = K` | K trainings side by side | λ as the task has it, and θ of one training on all rows |
//! | `held_out.shrinkage = s` | means and offsets of λ | their sums |
//! | `held_out.retrain` | as without | θ of a training on all rows with labels, for which penalties are rescaled |

use super::Config;
use bilevel::graph::Executor;
use bilevel::observers::StopSignal;
use bilevel::splits::{Part, Shrunk};
use bilevel::{Array, Error, InnerLoop, Named, Outcome, Problem, Result};
use std::sync::Arc;

/// The library's complaint about folds, with the key of the configuration.
fn of_held_out(error: Error) -> Error {
    match error {
        Error::Setting { name: "folds", value, must } => Error::Setting { name: "held_out.folds", value, must },
        error => error,
    }
}

/// The problem of a run.
pub(super) struct Learning<'a> {
    config: &'a Config,
    /// As the task has it.
    problem: &'a Problem,
    folded: Option<Problem>,
    shrunk: Option<Shrunk>,
}

impl<'a> Learning<'a> {
    /// On the problem of a task, as the configuration says.
    pub fn of(config: &'a Config, problem: &'a Problem) -> Result<Self> {
        let held_out = &config.held_out;
        let start = &config.start;
        let conflict = |reason: &str| Err(Error::Conflict { reason: reason.into() });
        if held_out.folds > 0 && !start.theta.is_empty() {
            return conflict("start.theta is one θ, but held_out.folds trains several; leave one of them out");
        }
        if held_out.shrinkage > 0.0 && !start.lambda.is_empty() {
            return conflict(
                "held_out.shrinkage learns means and offsets, which start.lambda has none of; leave one of them out",
            );
        }
        let folded = match held_out.folds {
            0 => None,
            folds => Some(problem.folded(folds, held_out.share, config.seed).map_err(of_held_out)?),
        };
        let shrunk = match held_out.shrinkage {
            0.0 => None,
            deviation => Some(folded.as_ref().unwrap_or(problem).shrunk(deviation)?),
        };
        if held_out.retrain && problem.rows_of(Part::Train) == 0 {
            return conflict(
                "held_out.retrain trains on all rows with labels, but this task divides no rows; leave it out",
            );
        }
        Ok(Learning { config, problem, folded, shrunk })
    }

    /// The problem of the run.
    pub fn problem(&self) -> &Problem {
        self.shrunk.as_ref().map(Shrunk::problem).or(self.folded.as_ref()).unwrap_or(self.problem)
    }

    /// λ as the task has it, of the rows that a training of the run sees.
    pub fn found(&self, lambda: &Named<Array>) -> Result<Named<Array>> {
        self.shrunk.as_ref().map_or_else(|| Ok(lambda.clone()), |shrunk| shrunk.lambda(lambda))
    }

    /// The rows that one training of the run sees, as a share of the training rows of the task.
    pub fn share(&self) -> f64 {
        let trained = |problem: &Problem| problem.rows_of(Part::Train) as f64;
        let folds = self.config.held_out.folds.max(1) as f64;
        self.folded.as_ref().map_or(1.0, |folded| trained(folded) / folds / trained(self.problem))
    }

    /// Converts λ of an outcome to the task's, and retrains θ on all rows if there are folds or if the configuration
    /// requests it.
    pub fn finish(
        &self,
        outcome: &mut Outcome,
        last: InnerLoop,
        (executor, signal): (Arc<dyn Executor>, StopSignal),
    ) -> Result<()> {
        outcome.lambda = self.found(&outcome.lambda)?;
        if self.folded.is_none() && !self.config.held_out.retrain {
            return Ok(());
        }
        let (whole, lambda) = self.problem.to_retrain(&self.problem.rescaled(&outcome.lambda, self.share())?)?;
        let training = whole.train(&lambda).inner(last).seed(self.config.seed).executor(executor).stop_signal(signal);
        let trained = training.run()?;
        outcome.measures = trained.measures.iter().map(|(name, value)| (name, *value)).collect();
        outcome.notes.push(format!(
            "θ was retrained on all {} rows with labels; penalties added to a mean were rescaled for them",
            whole.rows_of(Part::Train)
        ));
        (outcome.lambda, outcome.theta) = (lambda, trained.theta);
        Ok(())
    }
}
