//! The settings of an outer loop.
//!
//! A run is a function of the problem, the settings and the seed. Iteration k draws only from fold_in(seed_key(seed),
//! k). So it can be replayed alone, and a resumed run has the same bits as an uninterrupted one.

use crate::Result;
#[cfg(feature = "checkpoints")]
use crate::checkpoint::fingerprint::{Fingerprint, Identity};
#[cfg(feature = "checkpoints")]
use crate::checkpoint::folder::Checkpoints;
use crate::compiled::state::State;
use crate::error::require;
use crate::generalisation::guard::Guard;
use crate::hypergradient::Method;
#[cfg(feature = "checkpoints")]
use crate::hypergradient::settings::SettingsRecord;
use crate::inner::inner_loop::InnerLoop;
use crate::inner::optimizer::{Optimizer, Sgd};
use crate::outer::measures::{Aim, Measuring};
use crate::outer::observer::{Answer, Iteration, Observer, OnIteration};
use crate::outer::run;
use crate::outer::schedule::Schedule;
use crate::outer::stopping::{Criteria, Outcome, StopSignal};
use crate::problem::AnyProblem;
use crate::problem::given::Given;
use crate::problem::named::Named;
use crate::problem::typed::Problem;
use crate::problem::variable::Variable;
use bilevel_graph::{Array, Executor, Tree};
use std::time::Duration;

/// Runs the outer loop. Configure it by chaining, then [`run`](Self::run).
///
/// ```
/// use bilevel::prelude::*;
/// // Which weight decay makes θ, trained towards 2, end at 1? Both pull equally where λ = 1.
/// let problem = Problem::builder(
///     Leaf(Variable::constant([], 0.1).at_least(0.0)),
///     Leaf(Variable::constant([], 0.0)),
/// )
/// .inner(|_, l, t| (t.0 - 2.0).square() + l.0 * t.0.square())
/// .outer(|_, _, t| (t.0 - 1.0).square())
/// .build()?;
///
/// let (method, inner) = (LangevinAdjoint::default(), InnerLoop::new(0.1, 100));
/// let outcome = Driver::new(&problem, method).inner(inner)
///     .optimizer(Adam::default())
///     .schedule(Schedule::cosine(0.1, 200, 0.001))
///     .iterations(1000)
///     .tolerance(1e-4)
///     .run()?;
/// assert_eq!(outcome.reason, StopReason::Tolerance);
/// assert!((outcome.lambda.0.item().unwrap() - 1.0).abs() < 1e-2);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct Driver<L = Named<Variable>, T = Named<Variable>> {
    settings: Settings,
    problem: Problem<L, T>,
}

/// Everything except the structs of the problem.
pub(crate) struct Settings {
    pub problem: AnyProblem,
    pub method: Box<dyn Method>,
    pub executor: Option<Box<dyn Executor>>,
    /// The least number of elements of a sharded tensor; 0 shards none.
    pub shard_from: usize,
    pub optimizer: Box<dyn Optimizer>,
    /// The outer rate; that of the method's output if there is none.
    pub schedule: Option<Schedule>,
    /// The inner loop; the method's usual one if there is none.
    pub inner: Option<InnerLoop>,
    pub diagnose_every: u32,
    pub clip: Option<f64>,
    pub seed: u64,
    pub cold: bool,
    pub start: Given,
    pub fall_back: bool,
    pub criteria: Criteria,
    pub observers: Vec<Box<dyn Observer>>,
    #[cfg(feature = "checkpoints")]
    pub checkpoints: Option<Checkpoints>,
}

impl<L, T> Driver<L, T>
where
    L: Tree<Leaf = Variable> + Clone,
    T: Tree<Leaf = Variable> + Clone,
{
    /// A run of this method on this problem: 100 iterations of plain descent at rate 0.01 on the CPU, seed 0, θ warm, with the method's
    /// usual inner loop ([`Method::usual_loop`]). A method that prescribes the step of λ ([`Output`](crate::methods::Output)) has the rate that
    /// follows from it.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// let outcome = Driver::new(&problem, HpoSgld::default()).run()?;
    /// assert_eq!(outcome.iterations, 100);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn new(problem: &Problem<L, T>, method: impl Method + 'static) -> Self {
        let settings = Settings {
            problem: AnyProblem::clone(problem),
            method: Box::new(method),
            executor: None,
            shard_from: 0,
            optimizer: Box::new(Sgd),
            schedule: None,
            inner: None,
            diagnose_every: 10,
            clip: None,
            seed: 0,
            cold: false,
            start: Given::default(),
            fall_back: true,
            criteria: Criteria {
                iterations: 100,
                time: None,
                tolerance: None,
                patience: None,
                measuring: Measuring::default(),
                guard: Guard::default(),
                signal: StopSignal::new(),
            },
            observers: vec![],
            #[cfg(feature = "checkpoints")]
            checkpoints: None,
        };
        Driver { settings, problem: problem.clone() }
    }

    /// Runs on this device instead of on all cores.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// use bilevel::graph::{self, Buffer, Executor, Meta, Program, Runnable};
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use std::sync::Arc;
    /// /// One thread, and a count of the programs it compiles.
    /// #[derive(Clone)]
    /// struct Counting(Cpu, Arc<AtomicUsize>);
    /// impl Executor for Counting {
    ///     fn compile(&self, program: &Program) -> graph::Result<Box<dyn Runnable>> {
    ///         self.1.fetch_add(1, Ordering::Relaxed);
    ///         self.0.compile(program)
    ///     }
    ///     fn buffer(&self, meta: &Meta) -> graph::Result<Buffer> {
    ///         self.0.buffer(meta)
    ///     }
    ///     fn share(&self) -> Arc<dyn Executor> {
    ///         Arc::new(self.clone())
    ///     }
    /// }
    /// let programs = Arc::new(AtomicUsize::new(0));
    /// driver.executor(Counting(Cpu::with_threads(1), programs.clone())).run()?;
    /// assert!(programs.load(Ordering::Relaxed) > 0);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn executor(self, executor: impl Executor + 'static) -> Self {
        self.boxed_executor(Box::new(executor))
    }

    /// Like [`executor`](Self::executor), which has an example, for an executor chosen at run time.
    pub fn boxed_executor(mut self, executor: Box<dyn Executor>) -> Self {
        self.settings.executor = Some(executor);
        self
    }

    /// On several ranks, gives each only a part of every tensor of at least this many numbers: of λ, of θ, and of the
    /// states of method and optimizer. So R ranks have R times the memory. By default, and if this is 0, all tensors are
    /// whole on every rank. On one rank it has no effect.
    ///
    /// Every rank has some rows of a sharded tensor, so a leaf with fewer rows than there are ranks is refused. Steps
    /// that work element by element need no other rank; a tensor is gathered for operations that need all of it. At
    /// the end every rank has all of λ and θ in its [`Outcome`]. Before that, an observer cannot read sharded leaves.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// // This process has no other ranks, whose memory could be used.
    /// let run = |from| Driver::new(&problem, HpoSgld::default()).shard_from(from).iterations(3).run();
    /// assert_eq!(run(1)?.lambda, run(0)?.lambda);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn shard_from(mut self, numbers: usize) -> Self {
        self.settings.shard_from = numbers;
        self
    }

    /// Moves λ with this optimizer.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let outcome = driver.optimizer(Adam { beta1: 0.5, ..Adam::default() }).rate(0.1).iterations(1).run()?;
    /// // Adam's first step is the rate, whatever the size of the hypergradient.
    /// let last = outcome.last.unwrap();
    /// assert!((last.step_norm - 0.1).abs() < 1e-6 && (last.hypergradient_norm - 1.0).abs() > 0.1);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn optimizer(mut self, optimizer: impl Optimizer + 'static) -> Self {
        self.settings.optimizer = Box::new(optimizer);
        self
    }

    /// The outer learning rate, iteration by iteration.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let outcome = driver.schedule(Schedule::step_decay(0.1, 50, 0.5)).run()?;
    /// assert_eq!(outcome.last.unwrap().rate, 0.05);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.settings.schedule = Some(schedule);
        self
    }

    /// A constant outer learning rate.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let outcome = driver.rate(0.02).run()?;
    /// assert_eq!(outcome.last.unwrap().rate, 0.02);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn rate(self, rate: f64) -> Self {
        self.schedule(Schedule::constant(rate))
    }

    /// Trains with this inner loop.
    ///
    /// ```
    /// # use bilevel::optimizers::Shape;
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// let schedule = Shape::Step { every: 50, factor: 0.1 }.into();
    /// let inner = InnerLoop { schedule, ..InnerLoop::new(0.05, 100) };
    /// let outcome = Driver::new(&problem, Rmd::default()).inner(inner).run()?;
    /// // γ is 0.05 × 0.1 now, and the curvature 2.
    /// assert!((outcome.last.unwrap().diagnostics.step_curvature.unwrap() - 0.01).abs() < 1e-12);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn inner(mut self, inner: InnerLoop) -> Self {
        self.settings.inner = Some(inner);
        self
    }

    /// Diagnoses the hypergradient in the first iteration and then every n iterations; 10 by default, and 0 means
    /// never. A diagnosis costs an outer gradient, a Hessian product and an inner loss.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let outcome = driver.diagnose_every(0).run()?;
    /// assert_eq!(outcome.last.unwrap().diagnostics.curvature, None);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn diagnose_every(mut self, iterations: u32) -> Self {
        self.settings.diagnose_every = iterations;
        self
    }

    /// Limits the norm of a hypergradient to this.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let outcome = driver.rate(1.0).clip_norm(1e-3).run()?;
    /// assert!(outcome.last.unwrap().step_norm <= 1.001e-3);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn clip_norm(mut self, limit: f64) -> Self {
        self.settings.clip = Some(limit);
        self
    }

    /// The seed of everything random.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// let (noisy, noisy_loop) = (HpoSgld::default(), InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100).at_temperature(0.01) });
    /// let found = |seed| Driver::new(&problem, noisy).inner(noisy_loop).seed(seed).iterations(3).run().map(|outcome| outcome.lambda.0);
    /// assert_eq!(found(7)?, found(7)?);
    /// assert_ne!(found(7)?, found(8)?);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Starts θ from scratch in every iteration, with that iteration's draws, instead of from the last one. A
    /// problem whose θ starts from λ always does so.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// // θ starts at 0, and one step of 0.25 brings it half of the way to λ, which hardly moves from 1.
    /// let driver = || Driver::new(&problem, Rmd::default()).inner(InnerLoop::new(0.25, 1)).rate(1e-9);
    /// let (cold, warm) = (driver().cold(true).run()?, driver().run()?);
    /// assert!((cold.theta.0.item().unwrap() - 0.5).abs() < 1e-6);
    /// assert!((warm.theta.0.item().unwrap() - 1.0).abs() < 1e-6);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn cold(mut self, cold: bool) -> Self {
        self.settings.cold = cold;
        self
    }

    /// Whether a run holds a copy of its last good state, as it does by default. Without one it saves the memory of λ,
    /// θ, and the states of method and optimizer. But a run that diverges, or is stopped in the middle of an iteration,
    /// then ends with the λ and θ of that iteration. The last checkpoint is the only good state. The results are
    /// otherwise the same.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// // A rate at which λ leaves the floating-point numbers.
    /// let driver = || Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::default() }).rate(1e200);
    /// let (with, without) = (driver().run()?, driver().fall_back(false).run()?);
    /// assert!(matches!(with.reason, StopReason::Diverged(_)) && matches!(without.reason, StopReason::Diverged(_)));
    /// assert_ne!(with.theta.0, without.theta.0);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn fall_back(mut self, fall_back: bool) -> Self {
        self.settings.fall_back = fall_back;
        self
    }

    /// Starts from this λ instead of the problem's: the result of another run, or values from a file or chosen by hand.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let (method, inner) = (HpoSgld::default(), InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let coarse = Driver::new(&problem, method).inner(inner).optimizer(Adam::default()).rate(0.1).iterations(20).run()?;
    /// let fine = Driver::new(&problem, method).inner(inner).start_from(&coarse.lambda).theta(&coarse.theta).rate(0.01).run()?;
    /// assert!(fine.last.unwrap().outer_loss < coarse.last.unwrap().outer_loss);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn start_from(mut self, lambda: &L::With<Array>) -> Self {
        let given = self.problem.given_lambda(lambda);
        let within = |lambda: Vec<Array>| self.problem.within_bounds(&lambda).map(|()| lambda);
        self.settings.start.lambda = Some(given.and_then(within));
        self
    }

    /// Starts from this θ. This is an error if θ starts from scratch in every iteration.
    ///
    /// See [`start_from`](Self::start_from) for an example.
    pub fn theta(mut self, theta: &T::With<Array>) -> Self {
        self.settings.start.theta = Some(self.problem.given_theta(theta));
        self
    }

    /// Stops after this many iterations, including those before a resumption.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let outcome = driver.iterations(5).run()?;
    /// assert_eq!(outcome.iterations, 5);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn iterations(mut self, iterations: u32) -> Self {
        self.settings.criteria.iterations = iterations;
        self
    }

    /// Stops after this time, not counting the time before a resumption.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let outcome = driver.time_limit(std::time::Duration::ZERO).run()?;
    /// assert_eq!(outcome.reason, StopReason::Time);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.settings.criteria.time = Some(limit);
        self
    }

    /// Stops when the norm of the hypergradient is at most this, without the part that the bounds of λ remove.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let outcome = driver.rate(0.1).tolerance(0.1).run()?;
    /// assert_eq!(outcome.reason, StopReason::Tolerance);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn tolerance(mut self, norm: f64) -> Self {
        self.settings.criteria.tolerance = Some(norm);
        self
    }

    /// Stops when the outer loss has not improved by more than `improvement` for this many iterations.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let outcome = driver.rate(0.1).patience(10, 0.01).run()?;
    /// assert_eq!(outcome.reason, StopReason::Patience);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn patience(mut self, iterations: u32, improvement: f64) -> Self {
        self.settings.criteria.patience = Some((iterations, improvement));
        self
    }

    /// Evaluates the problem's metrics after every n iterations; 0, the default, means never. They are in
    /// [`Iteration::measures`] for observers and in the file of [`JsonLines`](crate::observers::JsonLines). Their
    /// random numbers come from a separate key, the same each time. So their values are comparable, and they do not
    /// change the run.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    ///     .inner(|_, l, t| (t.0 - l.0).square())
    ///     .outer(|_, _, t| (t.0 - 1.0).square())
    ///     .measure("distance", |_, l, _| (l.0 - 1.0).abs())
    ///     .build()?;
    /// let outcome = Driver::new(&problem, HpoSgld::default()).rate(0.1).measure_every(10).run()?;
    /// assert!(outcome.measures.get("distance").unwrap() < 0.1);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn measure_every(mut self, iterations: u32) -> Self {
        self.settings.criteria.measuring.every = iterations;
        self
    }

    /// Stops when a metric has not improved by more than `improvement` for this many evaluations in a row.
    ///
    /// ```
    /// # use bilevel::observers::Aim;
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square())
    /// #     .measure("distance", |_, l, _| (l.0 - 1.0).abs()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let outcome = driver.rate(0.1).measure_every(5).patience_on(Aim::lowest("distance"), 3, 0.001).iterations(500).run()?;
    /// assert_eq!(outcome.reason, StopReason::MeasurePatience("distance".into()));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn patience_on(mut self, aim: Aim, measurements: u32, improvement: f64) -> Self {
        self.settings.criteria.measuring.patience = Some((aim, measurements, improvement));
        self
    }

    /// Keeps λ and θ of the best evaluation of a metric or a loss, in [`Outcome::best`] and in checkpoints.
    ///
    /// ```
    /// # use bilevel::observers::Aim;
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square())
    /// #     .measure("distance from 0.5", |_, l, _| (l.0 - 0.5).abs()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// // λ passes 0.5 on its way to 1.
    /// let outcome = driver.rate(0.1).measure_every(1).keep_best(Aim::lowest("distance from 0.5")).run()?;
    /// let best = outcome.best.unwrap();
    /// assert!(best.iteration < outcome.iterations);
    /// assert_eq!((best.state.lambda[0].item()? - 0.5).abs(), best.value);
    /// assert!(best.value < outcome.measures.get("distance from 0.5").unwrap());
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn keep_best(mut self, aim: Aim) -> Self {
        self.settings.criteria.measuring.keep = Some(aim);
        self
    }

    /// Configures the guard on the held-out rows of the problem's tables; by default, it evaluates every fifth
    /// iteration and does not stop early. No method sees these rows. If their loss has risen at the end, the run
    /// returns λ and θ of the iteration with the lowest held-out loss: see [`GuardReport`](crate::splits::GuardReport).
    ///
    /// ```
    /// # use bilevel::methods::IftCg;
    /// # use bilevel::splits::{Guard, Rows};
    /// # use bilevel::{Array, Driver, InnerLoop, Leaf, Problem, StopReason, Variable};
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .table("y", Array::from_f64([4], vec![1.0, 0.2, 0.9, 0.8])?, &Rows::given([0], [1]).with_held_out([2, 3]))
    /// #     .inner(|s, l, t| (s.data("y") - t.0).square().mean_all() + l.0.exp() * t.0.square())
    /// #     .outer(|s, _, t| (s.data("y") - t.0).square().mean_all()).build()?;
    /// # let driver = Driver::new(&problem, IftCg::default()).inner(InnerLoop::new(0.1, 100)).rate(0.5);
    /// let outcome = driver.guard(Guard { every: 1, patience: 3 }).iterations(500).run()?;
    /// assert_eq!(outcome.reason, StopReason::Guard);
    /// assert_eq!(outcome.iterations, outcome.guard.unwrap().iteration + 3);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn guard(mut self, guard: Guard) -> Self {
        self.settings.criteria.guard = guard;
        self
    }

    /// Stops within a fraction of a second when this is set, even in the middle of a long hypergradient.
    ///
    /// ```
    /// # use bilevel::observers::StopSignal;
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let signal = StopSignal::new();
    /// signal.stop(); // from a handler of Ctrl-C, or another thread
    /// let outcome = driver.stop_signal(signal).run()?;
    /// assert_eq!(outcome.reason, StopReason::Signal);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn stop_signal(mut self, signal: StopSignal) -> Self {
        self.settings.criteria.signal = signal;
        self
    }

    /// The signal that stops the run, to share with other work that should stop with it.
    pub fn signal(&self) -> StopSignal {
        self.settings.criteria.signal.clone()
    }

    /// Reports the run to this observer; there may be several.
    ///
    /// ```
    /// # use bilevel::observers::{ProgressLine, Recorder};
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let recorder = Recorder::new();
    /// driver.observe(ProgressLine::stderr()).observe(recorder.clone()).run()?;
    /// assert_eq!(recorder.iterations().len(), 100);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn observe(mut self, observer: impl Observer + 'static) -> Self {
        self.settings.observers.push(Box::new(observer));
        self
    }

    /// Calls this after each iteration, with λ after its step; it returns nothing, or a
    /// [`ControlFlow`](std::ops::ControlFlow) that may end the run with a reason.
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// use std::ops::ControlFlow;
    /// let outcome = driver
    ///     .on_iteration(|iteration, _| println!("{}: {}", iteration.number, iteration.outer_loss))
    ///     .on_iteration(|iteration, _| match iteration.number {
    ///         7 => ControlFlow::Break("seven are enough"),
    ///         _ => ControlFlow::Continue(()),
    ///     })
    ///     .run()?;
    /// assert_eq!(outcome.reason, StopReason::Observer("seven are enough".into()));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn on_iteration<A, F>(self, closure: F) -> Self
    where
        A: Answer,
        F: FnMut(&Iteration, &State) -> A + Send + 'static,
    {
        self.observe(OnIteration(closure))
    }

    /// Saves checkpoints, and continues from them if configured to.
    ///
    /// ```
    /// # use bilevel::checkpoints::Checkpoints;
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let folder = std::env::temp_dir().join(format!("bilevel-doc-driver-{}", std::process::id()));
    /// driver.checkpoints(Checkpoints::new(&folder).every(50).resume(true)).run()?;
    /// assert_eq!(Checkpoints::new(&folder).newest()?.unwrap().checkpoint.iteration(), 100);
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    #[cfg(feature = "checkpoints")]
    pub fn checkpoints(mut self, checkpoints: Checkpoints) -> Self {
        self.settings.checkpoints = Some(checkpoints);
        self
    }

    /// The identity of the run, for tests.
    #[cfg(test)]
    pub(crate) fn identity(&self) -> Identity {
        self.settings.identity()
    }

    /// Runs until there is a reason to stop. An error means that the run could not start, or that its parts do not fit.
    /// Divergence or a failed checkpoint is no error: the outcome has the reason and the last good state, unless the
    /// run keeps [none](Self::fall_back).
    ///
    /// ```
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let driver = Driver::new(&problem, HpoSgld::default()).inner(InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 100) });
    /// let outcome = driver.run()?;
    /// assert_eq!(outcome.reason, StopReason::Iterations);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn run(self) -> Result<Outcome<L, T>> {
        self.settings.check()?;
        run::run(self.settings)?.typed(self.problem.trees())
    }
}

impl Settings {
    /// The inner loop of the run.
    pub(crate) fn inner(&self) -> InnerLoop {
        self.inner.unwrap_or_else(|| self.method.usual_loop())
    }

    /// The outer rate of the run.
    pub(crate) fn schedule(&self) -> Schedule {
        self.schedule.unwrap_or_else(|| Schedule::constant(self.method.output().rate(0.01, &self.inner())))
    }

    fn check(&self) -> Result<()> {
        self.criteria.check()?;
        self.criteria.measuring.check(&self.problem.measure_names())?;
        self.schedule().check()?;
        self.inner().check()?;
        self.optimizer.check()?;
        if let Some(limit) = self.clip {
            require(limit > 0.0 && limit.is_finite(), "clip_norm", limit, "above 0")?;
        }
        self.start.check(self.cold || self.problem.starts_from_lambda())?;
        #[cfg(feature = "checkpoints")]
        self.checkpoints.as_ref().map_or(Ok(()), Checkpoints::check)?;
        Ok(())
    }

    #[cfg(feature = "checkpoints")]
    pub(crate) fn identity(&self) -> Identity {
        Identity {
            method: self.method.settings(),
            optimizer: self.optimizer.settings(),
            inner: SettingsRecord::of("", &self.inner()),
            schedule: SettingsRecord::of("", &self.schedule()),
            clip: self.clip,
            seed: self.seed,
            cold: self.cold || self.problem.starts_from_lambda(),
            start: self.start.checksum(),
            problem: Fingerprint::of(&self.problem),
        }
    }
}
