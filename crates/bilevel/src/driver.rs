//! The outer loop: estimate the hypergradient, step, look whether to stop, save.
//!
//! A run is a function of the problem, the settings and the seed: iteration k draws from fold_in(seed_key(seed), k) and from
//! nothing else, so it can be replayed alone, and a resumed run has the bits of an uninterrupted one.

use crate::checkpoint::Checkpoint;
use crate::checkpoint_error::CheckpointError;
use crate::checkpoint_folder::{Checkpoints, Folder};
use crate::diagnostics::{Diagnosis, Sizes};
use crate::error::require;
use crate::estimator::{Estimator, Method, State};
use crate::estimators::inner_loop::Start;
use crate::fingerprint::{Fingerprint, Identity};
use crate::observer::{Beginning, Iteration, Observer};
use crate::optimizer::{Optimizer, Sgd};
use crate::outer_step::{OuterStep, all_finite, norm, zero_slots};
use crate::probe::{InnerTime, Probed};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::schedule::Schedule;
use crate::stopping::{Criteria, Outcome, StopReason, StopSignal};
use crate::{Cause, Error, Result};
use bilevel_cpu::Cpu;
use bilevel_graph::Executor;
use bilevel_graph::random::{fold_in, seed_key};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Runs the outer loop. Configure it by chaining, then [`run`](Self::run).
///
/// ```
/// use bilevel::{Adam, Driver, LangevinAdjoint, Leaf, Problem, Schedule, StopReason, Variable};
/// // Which weight decay makes θ, trained towards 2, end at 1? That which equals the pull: λ = 1.
/// let problem = Problem::new(
///     Leaf(Variable::constant([], 0.1).at_least(0.0)),
///     Leaf(Variable::constant([], 0.0)),
/// )
/// .inner(|_, l, t| (t.0 - 2.0).square() + l.0 * t.0.square())
/// .outer(|_, _, t| (t.0 - 1.0).square())
/// .build()?;
///
/// let method = LangevinAdjoint { temperature: 0.0, step: 0.1, ..LangevinAdjoint::default() };
/// let outcome = Driver::new(&problem, method)
///     .optimizer(Adam::default())
///     .schedule(Schedule::cosine(0.1, 200, 0.001))
///     .iterations(1000)
///     .tolerance(1e-4)
///     .run()?;
/// assert_eq!(outcome.reason, StopReason::Tolerance);
/// assert!((outcome.state.lambda[0].item().unwrap() - 1.0).abs() < 1e-2);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct Driver {
    problem: Problem,
    method: Box<dyn Method>,
    executor: Option<Box<dyn Executor>>,
    optimizer: Box<dyn Optimizer>,
    schedule: Schedule,
    inner_schedule: Option<Schedule>,
    diagnose_every: u32,
    clip: Option<f64>,
    seed: u64,
    cold: bool,
    criteria: Criteria,
    observers: Vec<Box<dyn Observer>>,
    checkpoints: Option<Checkpoints>,
}

impl Method for Box<dyn Method> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn compile(&self, problem: &Problem, executor: &dyn Executor) -> Result<Box<dyn Estimator>> {
        (**self).compile(problem, executor)
    }

    fn inner_time(&self) -> Option<InnerTime> {
        (**self).inner_time()
    }
}

impl Driver {
    /// A run of this method on this problem: 100 iterations of plain descent at rate 0.01 on the CPU, seed 0, θ warm.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// let outcome = Driver::new(&problem, HpoSgld::default()).run()?;
    /// assert_eq!(outcome.iterations, 100);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn new(problem: &Problem, method: impl Method + 'static) -> Self {
        Driver {
            problem: problem.clone(),
            method: Box::new(method),
            executor: None,
            optimizer: Box::new(Sgd),
            schedule: Schedule::constant(0.01),
            inner_schedule: None,
            diagnose_every: 1,
            clip: None,
            seed: 0,
            cold: false,
            criteria: Criteria {
                iterations: 100,
                time: None,
                tolerance: None,
                patience: None,
                signal: StopSignal::new(),
            },
            observers: vec![],
            checkpoints: None,
        }
    }

    /// Runs on this device instead of on all cores.
    ///
    /// ```
    /// # use bilevel::{Cpu, Driver, HpoSgld, Leaf, Problem, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.executor(Cpu::with_threads(1)).run()?;
    /// # assert_eq!(outcome.iterations, 100);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn executor(self, executor: impl Executor + 'static) -> Self {
        self.boxed_executor(Box::new(executor))
    }

    /// As [`executor`](Self::executor), for one chosen at run time.
    ///
    /// ```
    /// # use bilevel::{Cpu, Driver, HpoSgld, Leaf, Problem, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let device: Box<dyn bilevel::graph::Executor> = Box::new(Cpu::new());
    /// let outcome = driver.boxed_executor(device).run()?;
    /// # assert_eq!(outcome.iterations, 100);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn boxed_executor(mut self, executor: Box<dyn Executor>) -> Self {
        self.executor = Some(executor);
        self
    }

    /// Moves λ with this optimizer.
    ///
    /// ```
    /// # use bilevel::{Adam, Driver, HpoSgld, Leaf, Problem, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.optimizer(Adam { beta1: 0.5, ..Adam::default() }).run()?;
    /// # assert_eq!(outcome.iterations, 100);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn optimizer(mut self, optimizer: impl Optimizer + 'static) -> Self {
        self.optimizer = Box::new(optimizer);
        self
    }

    /// The outer learning rate, iteration by iteration.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, Schedule, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.schedule(Schedule::step_decay(0.1, 50, 0.5)).run()?;
    /// assert_eq!(outcome.last.unwrap().rate, 0.05);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// The same outer learning rate always.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.rate(0.02).run()?;
    /// assert_eq!(outcome.last.unwrap().rate, 0.02);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn rate(self, rate: f64) -> Self {
        self.schedule(Schedule::constant(rate))
    }

    /// Multiplies the method's inner step by this, iteration by iteration, and its noise by the root: with a factor that
    /// falls, the chain cools its discretisation error as the run settles.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, Schedule, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.inner_schedule(Schedule::step_decay(1.0, 50, 0.1)).run()?;
    /// // The step is .05 × .1 now, and the curvature 2.
    /// assert!((outcome.last.unwrap().diagnostics.step_curvature.unwrap() - 0.01).abs() < 1e-12);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn inner_schedule(mut self, factor: Schedule) -> Self {
        self.inner_schedule = Some(factor);
        self
    }

    /// Takes the diagnosis of a hypergradient, an outer gradient and a Hessian product, at every so many iterations only;
    /// 0 is never.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.diagnose_every(0).run()?;
    /// assert_eq!(outcome.last.unwrap().diagnostics.curvature, None);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn diagnose_every(mut self, iterations: u32) -> Self {
        self.diagnose_every = iterations;
        self
    }

    /// Scales a hypergradient whose norm is above this down to it.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.rate(1.0).clip_norm(1e-3).run()?;
    /// assert!(outcome.last.unwrap().step_norm <= 1.001e-3);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn clip_norm(mut self, limit: f64) -> Self {
        self.clip = Some(limit);
        self
    }

    /// Everything random follows from this.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.seed(7).run()?;
    /// # assert_eq!(outcome.iterations, 100);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Starts θ anew in every iteration, by draws of that iteration, instead of where the last one left it. A problem whose
    /// θ starts from λ always does so.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.cold(true).run()?;
    /// # assert_eq!(outcome.iterations, 100);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn cold(mut self, cold: bool) -> Self {
        self.cold = cold;
        self
    }

    /// Stops after so many iterations, those before a resumption included.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.iterations(5).run()?;
    /// assert_eq!(outcome.iterations, 5);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn iterations(mut self, iterations: u32) -> Self {
        self.criteria.iterations = iterations;
        self
    }

    /// Stops when this run, not counting what came before a resumption, has taken so long.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, StopReason, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.time_limit(std::time::Duration::ZERO).run()?;
    /// assert_eq!(outcome.reason, StopReason::Time);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.criteria.time = Some(limit);
        self
    }

    /// Stops when the hypergradient's norm is at most this.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, StopReason, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.rate(0.1).tolerance(0.1).run()?;
    /// assert_eq!(outcome.reason, StopReason::Tolerance);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn tolerance(mut self, norm: f64) -> Self {
        self.criteria.tolerance = Some(norm);
        self
    }

    /// Stops when the outer loss has not improved by more than `improvement` for so many iterations.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, StopReason, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.rate(0.1).patience(10, 0.01).run()?;
    /// assert_eq!(outcome.reason, StopReason::Patience);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn patience(mut self, iterations: u32, improvement: f64) -> Self {
        self.criteria.patience = Some((iterations, improvement));
        self
    }

    /// Stops when this is set.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, StopReason, StopSignal, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let signal = StopSignal::new();
    /// signal.stop(); // from a handler of Ctrl-C, or another thread
    /// let outcome = driver.stop_signal(signal).run()?;
    /// assert_eq!(outcome.reason, StopReason::Signal);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn stop_signal(mut self, signal: StopSignal) -> Self {
        self.criteria.signal = signal;
        self
    }

    /// Tells this observer how the run goes; there may be several.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, ProgressLine, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.observe(ProgressLine::stderr()).run()?;
    /// # assert_eq!(outcome.iterations, 100);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn observe(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    /// Saves checkpoints, and goes on from them if asked to.
    ///
    /// ```
    /// # use bilevel::{Checkpoints, Driver, HpoSgld, Leaf, Problem, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let folder = std::env::temp_dir().join(format!("bilevel-doc-driver-{}", std::process::id()));
    /// let outcome = driver.checkpoints(Checkpoints::new(&folder).every(50).resume(true)).run()?;
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # assert_eq!(outcome.iterations, 100);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn checkpoints(mut self, checkpoints: Checkpoints) -> Self {
        self.checkpoints = Some(checkpoints);
        self
    }

    fn check(&self) -> Result<()> {
        self.criteria.check()?;
        self.schedule.check()?;
        self.inner_schedule.map_or(Ok(()), |schedule| schedule.check())?;
        self.optimizer.check()?;
        if let Some(limit) = self.clip {
            require(limit > 0.0 && limit.is_finite(), "clip_norm", limit, "above 0")?;
        }
        self.checkpoints.as_ref().map_or(Ok(()), Checkpoints::check)
    }

    fn identity(&self) -> Identity {
        Identity {
            method: format!("{:?}", self.method),
            optimizer: format!("{:?}", self.optimizer),
            seed: self.seed,
            cold: self.cold || self.problem.starts_from_lambda(),
            problem: Fingerprint::of(&self.problem),
        }
    }

    /// Runs until a reason to stop. An error is a run that could not begin, or whose parts do not fit; a run that diverges
    /// or cannot be saved ends with an outcome that says so and holds the last good state.
    ///
    /// ```
    /// # use bilevel::{Driver, HpoSgld, Leaf, Problem, StopReason, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld { step: 0.05, temperature: 0.0, ..HpoSgld::default() });
    /// let outcome = driver.run()?;
    /// assert_eq!(outcome.reason, StopReason::Iterations);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn run(mut self) -> Result<Outcome> {
        self.check()?;
        let began = Instant::now();
        let executor = self.executor.take().unwrap_or_else(|| Box::new(Cpu::new()));
        let mut observers = std::mem::take(&mut self.observers);
        let mut outer = OuterLoop::prepare(&self, &*executor)?;
        let slots = self.optimizer.slots();

        let state = State::initial(&self.problem, outer.key)?;
        let zeros = zero_slots(&*self.optimizer, &state.lambda);
        let mut progress = Progress::new(state, zeros);
        let warn = |name: &String| format!("λ.{name} cannot influence the outer loss and will stay where it is");
        let mut notes: Vec<String> = outer.estimator.idle().iter().map(warn).collect();
        let mut save = Saving { identity: self.identity(), slots, folder: None, saved: None };
        if let Some(settings) = &self.checkpoints {
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
            method: self.method.name(),
            optimizer: self.optimizer.kind(),
            done: progress.iteration,
            until: self.criteria.iterations,
            notes: notes.clone(),
        };
        let mut asked = ask(&mut observers, |observer| observer.on_start(&beginning));
        let mut reason = loop {
            if let Some(reason) = asked.take() {
                break StopReason::Observer(reason);
            }
            if let Some(reason) = self.criteria.reason(&progress, began.elapsed()) {
                break reason;
            }
            match outer.iterate(&mut progress) {
                Ok(None) => {}
                Ok(Some(diagnosis)) => {
                    progress = good.clone();
                    break StopReason::Diverged(diagnosis);
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
                if self.checkpoints.as_ref().is_some_and(|c| c.is_due(good.iteration))
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
        let warnings = progress.last.map_or(vec![], |last| last.diagnostics.warnings());
        notes.extend(warnings.iter().map(|warning| format!("in the last iteration {warning}")));
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
    estimator: Probed,
    /// θ⁰(λ), where the problem has it.
    start: Start,
}

impl<'a> OuterLoop<'a> {
    fn prepare(driver: &'a Driver, executor: &dyn Executor) -> Result<Self> {
        let problem = &driver.problem;
        Ok(OuterLoop {
            driver,
            key: seed_key(driver.seed),
            estimator: Probed::new(&driver.method, problem, executor)?,
            start: Start::new(problem, executor)?,
        })
    }

    /// One iteration; the diagnosis where it has to be given up, with the progress in no particular state.
    fn iterate(&mut self, progress: &mut Progress) -> Result<Option<Diagnosis>> {
        let Driver { problem, optimizer, schedule, inner_schedule, diagnose_every, clip, criteria, .. } = self.driver;
        let number = progress.iteration + 1;
        let key = fold_in(self.key, number);
        let leap = progress.last.is_some_and(|last| last.step_norm > 1.0_f64.max(0.5 * norm(&progress.state.lambda)));
        let state = &mut progress.state;
        if problem.starts_from_lambda() {
            state.theta = self.start.theta(&state.lambda, &state.theta, key)?;
        } else if self.driver.cold {
            state.theta = problem.initial_theta(key)?;
        }
        if let Some(schedule) = inner_schedule {
            self.estimator.scale_step(schedule.at(number))?;
        }
        let look = *diagnose_every > 0 && (number - 1).is_multiple_of(*diagnose_every);
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
        state.lambda = lambda;
        progress.oracles += hypergradient.oracles;
        progress.note_loss(hypergradient.outer_loss, criteria.patience.map_or(0.0, |(_, improvement)| improvement));
        progress.iteration = number;
        progress.last = Some(Iteration {
            number,
            inner_loss: hypergradient.inner_loss,
            outer_loss: hypergradient.outer_loss,
            hypergradient_norm,
            standard_error: hypergradient.standard_error.as_deref().map(norm),
            step_norm,
            rate,
            diagnostics: hypergradient.diagnostics,
            oracles: progress.oracles,
            elapsed: progress.elapsed,
        });
        Ok(None)
    }
}
