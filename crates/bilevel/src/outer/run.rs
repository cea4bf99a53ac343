//! The loop a driver runs: estimate the hypergradient, step, look whether to stop, save.
//!
//! Iteration k draws only from the seed's key with k folded in. So it can be replayed alone, and a resumed run has the
//! same bits as an uninterrupted one.

use crate::checkpoint::saving::Saving;
use crate::compiled::initial::Initial;
use crate::compiled::key::Key;
use crate::compiled::leaves::Leaves;
use crate::compiled::norms::LazyNorm;
use crate::compiled::session::Session;
use crate::compiled::state::{State, THETA};
use crate::diagnostics::Cause;
use crate::generalisation::guard::{HELD_OUT, Watching};
use crate::health::divergence::{Diagnosis, Sizes};
use crate::health::postmortem::Circumstances;
use crate::health::probe::PreparedMethod;
use crate::hypergradient::loop_use::Output;
use crate::hypergradient::{Method, paths};
use crate::inner::inner_loop::InnerLoop;
use crate::inner::optimizer::{Optimizer, Sgd};
use crate::outer::driver::Settings;
use crate::outer::last_good::LastGood;
use crate::outer::measures::{Gauge, MEASURES, Measures};
use crate::outer::observer::{Beginning, Iteration, Observer};
use crate::outer::progress::{Numbers, Progress};
use crate::outer::step::{OuterStep, StepNorms, zero_slots};
use crate::outer::stopping::{Outcome, StopReason};
use crate::problem::leaf_name;
use crate::{Error, Result};
use bilevel_cpu::Cpu;
use bilevel_graph::{ErrorKind, Executor};
use std::ops::ControlFlow;
use std::time::Instant;

/// Runs until a reason to stop.
pub(crate) fn run(mut driver: Settings) -> Result<Outcome> {
    let began = Instant::now();
    let executor = sharding(driver.executor.take().unwrap_or_else(|| Box::new(Cpu::new())), &driver)?;
    let session = Session::new(&driver.problem, &*executor)?.stopped_by(driver.criteria.signal.clone());
    let mut observers = std::mem::take(&mut driver.observers);
    let mut outer = OuterLoop::prepare(&driver, &session)?;

    let state = outer.first()?;
    let zeros = zero_slots(&*driver.optimizer, &state.lambda, &session)?;
    let mut progress = Progress { state, slots: zeros, best: None, guarded: None, numbers: Numbers::new() };
    let mut notes = outer.notes()?;
    let mut save = Saving::begin(&driver, &mut progress, &session, &mut notes)?;
    session.same_iteration(progress.numbers.iteration)?;
    let spent = progress.numbers.elapsed;
    let mut good = LastGood::new(&progress, driver.fall_back, &session)?;

    let beginning = Beginning {
        method: driver.method.name(),
        optimizer: driver.optimizer.kind(),
        done: progress.numbers.iteration,
        until: driver.criteria.iterations,
        notes: notes.clone(),
    };
    let mut ended = session.on_one_rank(|| ask(&mut observers, |observer| observer.on_start(&beginning)));
    let mut reason = loop {
        let own = ended.take().or_else(|| driver.criteria.reason(&progress.numbers, began.elapsed()));
        if let Some(reason) = agreed(own, &session)? {
            break reason;
        }
        // If the last iteration was suspect, the last good one is further back.
        let suspect = progress.numbers.watch.suspect > 0;
        let before = if suspect && driver.fall_back { Some(progress.duplicate(&session)?) } else { None };
        match outer.iterate(&mut progress) {
            Ok(None) => {}
            Ok(Some(diagnosis)) => {
                notes.extend(good.fall_back(None, &mut progress, &session)?);
                // Before the post-mortem, which may fail or need more memory than there is.
                let unsaved = save.save(good.of(&progress)).err().map(StopReason::Unsaved);
                if let Some(reason) = agreed(unsaved, &session)? {
                    notes.push(format!("before that: {}", StopReason::Diverged(diagnosis)));
                    break reason;
                }
                let diagnosis = match before.as_ref().or(good.held()) {
                    Some(before) => outer.examine(before, diagnosis),
                    None => diagnosis,
                };
                break StopReason::Diverged(diagnosis);
            }
            Err(Error::Graph(error)) if error.kind == ErrorKind::Stopped => {
                notes.extend(good.fall_back(before.as_ref(), &mut progress, &session)?);
                break StopReason::Signal;
            }
            Err(error) => {
                // The error comes first; the finished iterations are saved if possible.
                let _ = save.save_alone(good.held());
                return Err(error);
            }
        }
        let numbers = &mut progress.numbers;
        numbers.elapsed = spent.saturating_add(began.elapsed());
        if let Some(last) = &mut numbers.last {
            last.elapsed = numbers.elapsed;
            let tell = || ask(&mut observers, |observer| observer.on_iteration(last, &progress.state));
            ended = session.on_one_rank(tell);
        }
        good.note(&progress, outer.estimator.tables(), &session)?;
        // A suspect iteration that a checkpoint is due in is no reason to have none: the last good one is saved.
        if save.is_due(progress.numbers.iteration)
            && let Err(error) = save.save(good.of(&progress))
        {
            ended = Some(StopReason::Unsaved(error));
        }
    };
    let unsaved = match &reason {
        StopReason::Unsaved(_) => None,
        _ => save.save(good.of(&progress)).err().map(StopReason::Unsaved),
    };
    if let Some(unsaved) = agreed(unsaved, &session)? {
        notes.push(format!("before that: {reason}"));
        reason = unsaved;
    }
    // Its memory is as large as the state, and the outcome needs some.
    drop(good);
    let elapsed = spent.saturating_add(began.elapsed());
    let outcome = outer.outcome(progress, reason, notes, elapsed)?;
    session.on_one_rank(|| observers.iter_mut().for_each(|observer| observer.on_end(&outcome)));
    Ok(outcome)
}

/// The executor of a run, which shards large tensors if the run is to do so on several ranks.
fn sharding(executor: Box<dyn Executor>, driver: &Settings) -> Result<Box<dyn Executor>> {
    let from = driver.shard_from;
    let sharding = if from > 0 { executor.sharding(from) } else { None };
    let (Some(sharded), Some(link)) = (sharding, executor.link()) else { return Ok(executor) };
    let problem = &driver.problem;
    let leaves = problem.lambda.iter().map(|leaf| ("λ", leaf)).chain(problem.theta.iter().map(|leaf| ("θ", leaf)));
    for (tree, (name, variable)) in leaves {
        let rows = variable.shape.first().copied().unwrap_or(1);
        let numbers = variable.shape.iter().product::<usize>();
        if numbers >= from && rows < link.size() {
            let reason = format!(
                "has {numbers} numbers in {rows} rows, which {} ranks cannot shard; reshape it, take at most {rows} ranks, or set \
                 shard_from above {numbers}",
                link.size()
            );
            return Err(Error::Variable { leaf: leaf_name(tree, name), reason });
        }
    }
    Ok(Box::new(sharded))
}

/// The reason on which all ranks agree: a rank that stopped alone would leave the others waiting.
fn agreed(own: Option<StopReason>, session: &Session) -> Result<Option<StopReason>> {
    let code = StopReason::code(own.as_ref());
    let all = session.largest(code)?;
    // A run that a signal stops is not measured at its end, so either all stop for a signal or none does.
    let keeps = all == code || code > StopReason::code(Some(&StopReason::Signal));
    Ok(if keeps { own } else { StopReason::of_another_rank(all) })
}

/// Notifies all observers, and returns the reason of the first that requests a stop.
fn ask(
    observers: &mut [Box<dyn Observer>],
    mut tell: impl FnMut(&mut dyn Observer) -> ControlFlow<String>,
) -> Option<StopReason> {
    let mut reason = None;
    for observer in observers {
        if let ControlFlow::Break(said) = tell(&mut **observer) {
            reason.get_or_insert(StopReason::Observer(said));
        }
    }
    reason
}

/// A run's parts, prepared for its problem.
pub(super) struct OuterLoop<'a> {
    pub(super) driver: &'a Settings,
    pub(super) session: &'a Session,
    key: Key,
    inner: InnerLoop,
    estimator: PreparedMethod,
    /// The step of λ, compiled when the method's memory is known.
    step: Option<OuterStep>,
    /// Draws of θ, if it starts from scratch in every iteration.
    cold: Option<(Initial, Leaves)>,
    /// The norm of the standard error, for methods that know it.
    error: LazyNorm,
    /// The gauge of a run that is to measure.
    pub(super) gauge: Option<Gauge>,
    /// The guard of a run with held-out rows.
    pub(super) watching: Option<Watching>,
}

impl<'a> OuterLoop<'a> {
    fn prepare(driver: &'a Settings, session: &'a Session) -> Result<Self> {
        let (problem, executor) = (session.problem(), session.executor());
        let inner = driver.inner();
        let estimator = driver.method.prepare_in(session, &inner)?;
        let cold = match driver.cold && !problem.starts_from_lambda() {
            true => {
                let initial = Initial::new("θ", &problem.theta, problem.dtype, executor)?;
                let leaves = initial.leaves(executor)?;
                Some((initial, leaves))
            }
            false => None,
        };
        let (key, error) = (Key::from_seed(driver.seed), LazyNorm::new(executor));
        let gauge = match driver.criteria.measuring.every {
            0 => None,
            _ => Some(Gauge::new(session, key)?),
        };
        let watching = Watching::new(driver.criteria.guard, session, key.fold_in(MEASURES))?;
        Ok(OuterLoop { driver, session, key, inner, estimator, step: None, cold, error, gauge, watching })
    }

    /// The initial state of the run.
    pub(super) fn first(&self) -> Result<State> {
        self.driver.start.place(self.session.state(self.key)?)
    }

    /// Notes on the problem for the user, before the first iteration.
    fn notes(&self) -> Result<Vec<String>> {
        let Settings { problem, method, .. } = self.driver;
        let idle =
            |name: &String| format!("{} cannot influence the outer loss and will not change", leaf_name("λ", name));
        let mut notes: Vec<String> = self.estimator.idle().iter().map(idle).collect();
        notes.extend(paths::overlooked(method.name(), problem, |path| method.sees(path))?);
        notes.extend(problem.untrained()?);
        notes.extend(self.other_steps());
        Ok(notes)
    }

    /// A warning if the method prescribes the step of λ, and this run takes another.
    fn other_steps(&self) -> Option<String> {
        let Settings { method, optimizer, .. } = self.driver;
        let rate = self.driver.schedule().at(1);
        if method.output() != Output::Step || (optimizer.kind() == Sgd.kind() && rate == 1.0) {
            return None;
        }
        Some(format!(
            "{} returns the step of λ itself, for the optimizer sgd at rate 1, but this run uses {} at rate {rate}",
            method.name(),
            optimizer.kind()
        ))
    }

    /// Moves θ to the start of the iteration with this key.
    fn restart(&mut self, state: &mut State, key: Key) -> Result<()> {
        if self.driver.problem.starts_from_lambda() {
            // The methods here start there by themselves; one of a user's own may count on it.
            self.estimator.start(state, key)?;
            let theta = state.theta.clone();
            self.estimator.restart(state, &theta)
        } else if let Some((initial, theta)) = &mut self.cold {
            initial.place(theta, key.fold_in(THETA))?;
            self.estimator.restart(state, theta)
        } else {
            Ok(())
        }
    }

    /// The diagnosis of the iteration after this progress, with its cause looked for.
    fn examine(&mut self, before: &Progress, diagnosis: Diagnosis) -> Diagnosis {
        let key = self.key.fold_in(diagnosis.iteration);
        // θ is moved; λ is only read, and the method's memory is none of the inner loop's.
        let Ok(theta) = before.state.theta.duplicate(self.session.executor()) else { return diagnosis };
        let mut state = State { lambda: before.state.lambda.clone(), theta, memory: Leaves::default() };
        if self.restart(&mut state, key).is_err() {
            return diagnosis;
        }
        let Ok(first) = self.first() else { return diagnosis };
        let last = before.numbers.last.as_ref().map(|last| last.outer_loss);
        let circumstances = Circumstances {
            session: self.session,
            state: &state,
            key,
            inner: InnerLoop { step: self.inner.gamma(diagnosis.iteration), ..self.inner },
            used: self.estimator.used(),
            leap: before.numbers.leapt(),
            least: last.filter(|_| last == before.numbers.best),
            first: &first,
        };
        circumstances.examine(diagnosis)
    }

    /// One iteration. If it fails, returns the diagnosis and leaves the progress undefined.
    fn iterate(&mut self, progress: &mut Progress) -> Result<Option<Diagnosis>> {
        let Settings { method, optimizer, diagnose_every, clip, criteria, .. } = self.driver;
        let Progress { state, slots, numbers, .. } = progress;
        let number = numbers.iteration + 1;
        let key = self.key.fold_in(number);
        let leap = numbers.leapt();
        self.restart(state, key)?;
        let gamma = self.inner.gamma(number);
        let every = *diagnose_every;
        let look = every > 0 && (number == 1 || number.is_multiple_of(every));
        let found = match look {
            true => self.estimator.estimate_with(state, key, gamma),
            false => self.estimator.estimate_only(state, key, gamma),
        };
        let hypergradient = match found {
            Ok(hypergradient) => hypergradient,
            Err(Error::Diverged { seen, cause }) => {
                let memory = state.memory.outside(self.estimator.tables());
                let memory = LazyNorm::new(self.session.executor()).of(&memory)?;
                return Ok(Some(numbers.watch.method_gave_up(number, seen, cause, leap, memory)));
            }
            Err(error) => return Err(error),
        };
        let memory = state.memory.outside(self.estimator.tables());
        if self.step.as_ref().is_none_or(|step| !step.fits(&memory)) {
            self.step = Some(OuterStep::new(self.session, &**optimizer, *clip, &memory)?);
        }
        let Some(step) = &mut self.step else { return Ok(None) };
        let rate = self.driver.schedule().at(number);
        let measured = step.take(state, &memory, &hypergradient.value, slots, (rate, number))?;
        let StepNorms { theta, memory, .. } = measured;
        if let Some((seen, cause)) = hypergradient.fault(method.name(), theta, memory, measured.hypergradient) {
            return Ok(Some(numbers.watch.method_gave_up(number, seen, cause, leap, memory)));
        }
        let sizes = Sizes {
            inner_loss: hypergradient.inner_loss,
            outer_loss: hypergradient.outer_loss,
            hypergradient: measured.hypergradient,
            memory,
            theta,
        };
        if let Some(diagnosis) = numbers.watch.judge(number, sizes, leap) {
            return Ok(Some(diagnosis));
        }
        if !measured.is_finite || !measured.moved.is_finite() {
            let seen = "λ is no longer finite after its step".to_string();
            return Ok(Some(Diagnosis { iteration: number, seen, cause: Cause::OuterStepTooLarge }));
        }
        if look {
            numbers.looked = hypergradient.diagnostics;
        }
        let standard_error = hypergradient.standard_error.as_ref().map(|error| self.error.of(error)).transpose()?;
        numbers.lambda_norm = measured.lambda;
        numbers.oracles += hypergradient.oracles;
        numbers.note_loss(hypergradient.outer_loss, criteria.patience.map_or(0.0, |(_, improvement)| improvement));
        numbers.iteration = number;
        numbers.last = Some(Iteration {
            number,
            inner_loss: hypergradient.inner_loss,
            outer_loss: hypergradient.outer_loss,
            hypergradient_norm: measured.hypergradient,
            standard_error,
            projected_norm: measured.projected,
            step_norm: measured.moved,
            rate,
            diagnostics: hypergradient.diagnostics,
            measures: Measures::default(),
            oracles: numbers.oracles,
            elapsed: numbers.elapsed,
        });
        let done = numbers.oracles;
        let is_due = |watching: &&mut Watching| watching.is_due(number, done, numbers.watched.as_ref());
        if let Some(watching) = self.watching.as_mut().filter(is_due) {
            let (loss, best) = watching.judge((number, done, state), &mut numbers.watched, self.session)?;
            progress.guarded = best.or(progress.guarded.take());
            if let Some(last) = &mut numbers.last {
                last.measures.push(HELD_OUT, loss);
            }
        }
        let measuring = &criteria.measuring;
        if let Some(gauge) = self.gauge.as_mut().filter(|_| number.is_multiple_of(measuring.every)) {
            let measures = gauge.at(state)?;
            progress.note_measures(measures, measuring, self.session)?;
        }
        Ok(None)
    }
}
