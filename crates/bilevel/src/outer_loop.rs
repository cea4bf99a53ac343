//! The loop a driver runs: estimate the hypergradient, step, look whether to stop, save.
//!
//! Iteration k draws from fold_in(seed_key(seed), k) and from nothing else, so it can be replayed alone, and a resumed run has
//! the bits of an uninterrupted one.

use crate::checkpoint::Checkpoint;
use crate::checkpoint_error::CheckpointError;
use crate::checkpoint_folder::Folder;
use crate::divergence::{Diagnosis, Sizes};
use crate::driver::Driver;
use crate::estimator::{Estimator, Method, State};
use crate::fingerprint::Identity;
use crate::observer::{Beginning, Iteration, Observer};
use crate::optimizer::Optimizer;
use crate::outer_step::{OuterStep, all_finite, norm, projected_norm, zero_slots};
use crate::paths;
use crate::postmortem::Circumstances;
use crate::probe::Probed;
use crate::problem::leaf_name;
use crate::progress::Progress;
use crate::stoppable::Stoppable;
use crate::stopping::{Outcome, StopReason};
use crate::{Cause, Error, Result};
use bilevel_cpu::Cpu;
use bilevel_graph::random::{fold_in, seed_key};
use bilevel_graph::{ErrorKind, Executor};
use std::ops::ControlFlow;
use std::time::Instant;

/// Runs until a reason to stop.
pub(crate) fn run(mut driver: Driver) -> Result<Outcome> {
    let began = Instant::now();
    let executor = driver.executor.take().unwrap_or_else(|| Box::new(Cpu::new()));
    let executor = Stoppable { executor: &*executor, signal: driver.criteria.signal.clone() };
    let mut observers = std::mem::take(&mut driver.observers);
    let mut outer = OuterLoop::prepare(&driver, &executor)?;
    let slots = driver.optimizer.slots();

    let state = State::initial(&driver.problem, outer.key)?;
    let zeros = zero_slots(&*driver.optimizer, &state.lambda);
    let mut progress = Progress::new(state, zeros);
    let mut notes = outer.notes()?;
    let mut save = Saving { identity: driver.identity(), slots, folder: None, saved: None };
    if let Some(settings) = &driver.checkpoints {
        let (folder, newest) = Folder::open(settings, &save.identity, slots)?;
        save.folder = Some(folder);
        if let Some(newest) = newest {
            notes.extend(newest.refused.iter().map(|error| format!("{error}; going on from the one before it")));
            progress = newest.checkpoint.into_progress();
            save.saved = Some(progress.iteration);
        }
    }
    let spent = progress.elapsed;
    // What the run falls back on: the progress after the last iteration that gave no cause for suspicion. It is also
    // what is saved, so a run that is resumed meets the suspicious iterations again and judges them alike.
    let mut good = progress.clone();

    let beginning = Beginning {
        method: driver.method.name(),
        optimizer: driver.optimizer.kind(),
        done: progress.iteration,
        until: driver.criteria.iterations,
        notes: notes.clone(),
    };
    let mut asked = ask(&mut observers, |observer| observer.on_start(&beginning));
    let mut reason = loop {
        if let Some(reason) = asked.take() {
            break StopReason::Observer(reason);
        }
        if let Some(reason) = driver.criteria.reason(&progress, began.elapsed()) {
            break reason;
        }
        // Where the last iteration was suspect, the good one lies further back.
        let before = (progress.watch.suspect > 0).then(|| progress.clone());
        match outer.iterate(&mut progress) {
            Ok(None) => {}
            Ok(Some(diagnosis)) => {
                let diagnosis = outer.examine(before.as_ref().unwrap_or(&good), diagnosis);
                progress = good.clone();
                break StopReason::Diverged(diagnosis);
            }
            Err(Error::Graph(error)) if error.kind == ErrorKind::Stopped => {
                progress = before.unwrap_or_else(|| good.clone());
                break StopReason::Signal;
            }
            Err(error) => {
                // The error comes first; what was done so far is saved if it can be.
                let _ = save.save(&good);
                return Err(error);
            }
        }
        progress.elapsed = spent.saturating_add(began.elapsed());
        if let Some(last) = &mut progress.last {
            last.elapsed = progress.elapsed;
            asked = ask(&mut observers, |observer| observer.on_iteration(last, &progress.state));
        }
        if progress.watch.suspect == 0 {
            good.clone_from(&progress);
            if driver.checkpoints.as_ref().is_some_and(|c| c.is_due(good.iteration))
                && let Err(error) = save.save(&good)
            {
                break StopReason::Unsaved(error);
            }
        }
    };
    if !matches!(reason, StopReason::Unsaved(_))
        && let Err(error) = save.save(&good)
    {
        notes.push(format!("before that: {reason}"));
        reason = StopReason::Unsaved(error);
    }
    let warnings = progress.looked.warnings();
    notes.extend(warnings.iter().map(|warning| format!("when last looked into, {warning}")));
    if progress.last.is_some_and(|last| last.hypergradient_norm == 0.0)
        && progress.state.lambda == driver.problem.initial_lambda(outer.key)?
    {
        let note = "λ is where it started, for every hypergradient was exactly 0: start λ or θ elsewhere, or see whether the \
                    losses are flat there (a ReLU that is off, a comparison, a rounded number)";
        notes.push(note.into());
    }
    let outcome = Outcome {
        reason,
        iterations: progress.iteration,
        last: progress.last,
        best_outer_loss: progress.best,
        oracles: progress.oracles,
        elapsed: spent.saturating_add(began.elapsed()),
        state: progress.state,
        notes,
    };
    observers.iter_mut().for_each(|observer| observer.on_end(&outcome));
    Ok(outcome)
}

/// The last step of λ was larger than 1 and than half of λ.
fn leap(progress: &Progress) -> bool {
    progress.last.is_some_and(|last| last.step_norm > 1.0_f64.max(0.5 * norm(&progress.state.lambda)))
}

/// Tells all observers; the reason of the first that asks to stop.
fn ask(
    observers: &mut [Box<dyn Observer>],
    mut tell: impl FnMut(&mut dyn Observer) -> ControlFlow<String>,
) -> Option<String> {
    let mut reason = None;
    for observer in observers {
        if let ControlFlow::Break(said) = tell(&mut **observer) {
            reason.get_or_insert(said);
        }
    }
    reason
}

/// Where a run is saved, if it is.
struct Saving<'a> {
    identity: Identity,
    slots: &'a [&'a str],
    folder: Option<Folder>,
    /// The iteration of the newest checkpoint.
    saved: Option<u32>,
}

impl Saving<'_> {
    fn save(&mut self, progress: &Progress) -> std::result::Result<(), CheckpointError> {
        if let Some(folder) = &self.folder
            && self.saved != Some(progress.iteration)
        {
            folder.save(&Checkpoint::new(&self.identity, progress, self.slots))?;
            self.saved = Some(progress.iteration);
        }
        Ok(())
    }
}

/// A run's parts, prepared for its problem.
struct OuterLoop<'a> {
    driver: &'a Driver,
    key: [i32; 2],
    executor: &'a dyn Executor,
    estimator: Probed,
}

impl<'a> OuterLoop<'a> {
    fn prepare(driver: &'a Driver, executor: &'a dyn Executor) -> Result<Self> {
        let estimator = Probed::new(&driver.method, &driver.problem, executor)?;
        Ok(OuterLoop { driver, key: seed_key(driver.seed), executor, estimator })
    }

    /// What a person should know of the problem before the first iteration.
    fn notes(&self) -> Result<Vec<String>> {
        let Driver { problem, method, .. } = self.driver;
        let idle = |name: &String| {
            format!("{} cannot influence the outer loss and will stay where it is", leaf_name("λ", name))
        };
        let mut notes: Vec<String> = self.estimator.idle().iter().map(idle).collect();
        notes.extend(paths::overlooked(method.name(), problem, |path| method.sees(path))?);
        notes.extend(problem.untrained()?);
        Ok(notes)
    }

    /// Puts θ where the iteration of this key starts.
    fn restart(&mut self, state: &mut State, key: [i32; 2]) -> Result<()> {
        let problem = &self.driver.problem;
        if problem.starts_from_lambda() {
            // The methods here start there by themselves; one of a user's own may count on it.
            let theta = self.estimator.start(state, key)?;
            self.estimator.restart(state, &theta)
        } else if self.driver.cold {
            self.estimator.restart(state, &problem.initial_theta(key)?)
        } else {
            Ok(())
        }
    }

    /// The diagnosis of the iteration after this progress, with its cause looked for.
    fn examine(&mut self, before: &Progress, diagnosis: Diagnosis) -> Diagnosis {
        let key = fold_in(self.key, diagnosis.iteration);
        let mut state = before.state.clone();
        if self.restart(&mut state, key).is_err() {
            return diagnosis;
        }
        let last = before.last.map(|last| last.outer_loss);
        let circumstances = Circumstances {
            problem: &self.driver.problem,
            executor: self.executor,
            state: &state,
            key,
            time: self.estimator.time(),
            leap: leap(before),
            least: last.filter(|_| last == before.best),
            run_key: self.key,
        };
        circumstances.examine(diagnosis)
    }

    /// One iteration; the diagnosis where it has to be given up, with the progress in no particular state.
    fn iterate(&mut self, progress: &mut Progress) -> Result<Option<Diagnosis>> {
        let Driver { problem, optimizer, schedule, inner_schedule, diagnose_every, clip, criteria, .. } = self.driver;
        let number = progress.iteration + 1;
        let key = fold_in(self.key, number);
        let leap = leap(progress);
        let state = &mut progress.state;
        self.restart(state, key)?;
        if let Some(schedule) = inner_schedule {
            self.estimator.scale_step(schedule.at(number))?;
        }
        let every = *diagnose_every;
        let look = every > 0 && (number == 1 || number.is_multiple_of(every));
        let found = match look {
            true => self.estimator.estimate(state, key),
            false => self.estimator.estimate_only(state, key),
        };
        let hypergradient = match found {
            Ok(hypergradient) => hypergradient,
            Err(Error::Diverged { seen, cause }) => {
                let memory = norm(&state.memory);
                return Ok(Some(progress.watch.method_gave_up(number, seen, cause, leap, memory)));
            }
            Err(error) => return Err(error),
        };
        let hypergradient_norm = norm(&hypergradient.value);
        let sizes = Sizes {
            inner_loss: hypergradient.inner_loss,
            outer_loss: hypergradient.outer_loss,
            hypergradient: hypergradient_norm,
            memory: norm(&state.memory),
            theta: norm(&state.theta),
        };
        if let Some(diagnosis) = progress.watch.judge(number, sizes, leap) {
            return Ok(Some(diagnosis));
        }
        let rate = schedule.at(number);
        let step = OuterStep { problem, optimizer: &**optimizer, clip: *clip, rate, iteration: number };
        let (lambda, step_norm) =
            step.take(&state.lambda, &hypergradient.value, hypergradient_norm, &mut progress.slots)?;
        if !all_finite(&lambda) || !progress.slots.iter().all(|slot| all_finite(slot)) || !step_norm.is_finite() {
            let seen = "λ is no longer finite after its step".to_string();
            return Ok(Some(Diagnosis { iteration: number, seen, cause: Cause::OuterStepTooLarge }));
        }
        let projected_norm = projected_norm(problem, &state.lambda, &hypergradient.value, hypergradient_norm);
        state.lambda = lambda;
        if look {
            progress.looked = hypergradient.diagnostics;
        }
        progress.oracles += hypergradient.oracles;
        progress.note_loss(hypergradient.outer_loss, criteria.patience.map_or(0.0, |(_, improvement)| improvement));
        progress.iteration = number;
        progress.last = Some(Iteration {
            number,
            inner_loss: hypergradient.inner_loss,
            outer_loss: hypergradient.outer_loss,
            hypergradient_norm,
            standard_error: hypergradient.standard_error.as_deref().map(norm),
            projected_norm,
            step_norm,
            rate,
            diagnostics: hypergradient.diagnostics,
            oracles: progress.oracles,
            elapsed: progress.elapsed,
        });
        Ok(None)
    }
}
