//! Training alone: θ at a fixed λ,
//!
//!   θᵗ⁺¹ = θᵗ − γ·direction(∇θL_T(λ, θᵗ)) + √(2τγ)·ξᵗ,   t = 0 … T−1.

use crate::Result;
use crate::compiled::key::Key;
use crate::compiled::norms::LazyNorm;
use crate::compiled::session::Session;
use crate::error::Error;
use crate::hypergradient::lost_theta;
use crate::inner::inner_loop::InnerLoop;
use crate::inner::optimizer::InnerOptimizer;
use crate::inner::trainer::Trainer;
use crate::outer::stopping::StopSignal;
use crate::problem::named::Named;
use crate::problem::typed::Problem;
use crate::problem::variable::Variable;
use bilevel_cpu::Cpu;
use bilevel_graph::{Array, Executor, Tree};
use std::fmt;

/// Training of θ at a given λ. Configure it by chaining, then [`run`](Self::run).
///
/// ```
/// use bilevel::prelude::*;
/// #[derive(Clone, Tree)]
/// struct Line<T> { slope: T, offset: T }
/// let one = || Variable::constant([], 1.0);
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Line { slope: one(), offset: one() })
///     .inner(|_, l, t| (t.slope - 3.0).square() + l.0.exp() * t.offset.square())
///     .outer(|_, _, t| t.offset.square())
///     .build()?;
/// let lambda = Leaf(Array::from_f64([], vec![-1.0])?);
/// let trained = problem.train(&lambda).step(0.1).steps(500).run()?;
/// assert!((trained.theta.slope.item().unwrap() - 3.0).abs() < 1e-6 && trained.outer_loss < 1e-6);
///
/// // On from there, with another optimizer; the loss at every tenth step is kept.
/// let further = problem.train(&lambda).theta(&trained.theta).optimizer(Adam::default()).steps(50).record_every(10).run()?;
/// assert_eq!(further.losses.len(), 5);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct Training<'p, L: Tree, T: Tree> {
    problem: &'p Problem<L, T>,
    lambda: &'p L::With<Array>,
    theta: Option<&'p T::With<Array>>,
    inner: InnerLoop,
    seed: u64,
    executor: Option<Box<dyn Executor>>,
    signal: StopSignal,
    every: u32,
}

/// The result of training.
#[non_exhaustive]
pub struct Trained<T: Tree> {
    /// θ after the last step, frozen leaves included.
    pub theta: T::With<Array>,
    /// The inner loss there.
    pub inner_loss: f64,
    /// The outer loss there.
    pub outer_loss: f64,
    /// The problem's measures there, by name.
    pub measures: Named<f64>,
    /// Numbers of steps, from 1, each with the inner loss at the θ it started from: those requested with
    /// [`record_every`](Training::record_every).
    pub losses: Vec<(u32, f64)>,
}

/// The structs of a problem need not be `Debug`; their leaves have names.
impl<T: Tree> fmt::Debug for Trained<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trained")
            .field("theta", &Named::of(&self.theta))
            .field("inner_loss", &self.inner_loss)
            .field("outer_loss", &self.outer_loss)
            .field("measures", &self.measures)
            .field("losses", &self.losses)
            .finish()
    }
}

impl<L: Tree<Leaf = Variable>, T: Tree<Leaf = Variable>> Problem<L, T> {
    /// Training of θ at this λ: 100 steps of plain descent of size 0.01 on the CPU, seed 0, from the start of θ. The
    /// bounds of λ apply only to an outer loop.
    ///
    /// See [`Training`] for an example.
    pub fn train<'p>(&'p self, lambda: &'p L::With<Array>) -> Training<'p, L, T> {
        Training {
            problem: self,
            lambda,
            theta: None,
            inner: InnerLoop::default(),
            seed: 0,
            executor: None,
            signal: StopSignal::new(),
            every: 0,
        }
    }
}

impl<'p, L: Tree<Leaf = Variable>, T: Tree<Leaf = Variable>> Training<'p, L, T> {
    /// The whole inner loop at once.
    pub fn inner(mut self, inner: InnerLoop) -> Self {
        self.inner = inner;
        self
    }

    /// The inner step γ.
    pub fn step(mut self, step: f64) -> Self {
        self.inner.step = step;
        self
    }

    /// The number of steps T.
    pub fn steps(mut self, steps: usize) -> Self {
        self.inner.steps = steps;
        self
    }

    /// Trains with this optimizer.
    pub fn optimizer(mut self, optimizer: impl Into<InnerOptimizer>) -> Self {
        self.inner.optimizer = optimizer.into();
        self
    }

    /// Adds Langevin noise of this temperature; only for plain descent.
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.inner.temperature = temperature;
        self
    }

    /// The seed of all random draws: the start of θ, minibatches, noise. The first iteration of a run with the same
    /// seed uses the same draws.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Starts from this θ instead of the problem's.
    pub fn theta(mut self, theta: &'p T::With<Array>) -> Self {
        self.theta = Some(theta);
        self
    }

    /// Trains on this device instead of on all cores.
    pub fn executor(mut self, executor: impl Executor + 'static) -> Self {
        self.executor = Some(Box::new(executor));
        self
    }

    /// Stops when this is set, with an error of the kind [`Stopped`](bilevel_graph::ErrorKind::Stopped).
    pub fn stop_signal(mut self, signal: StopSignal) -> Self {
        self.signal = signal;
        self
    }

    /// Keeps the inner loss once every this many steps; 0 means never.
    pub fn record_every(mut self, steps: u32) -> Self {
        self.every = steps;
        self
    }

    /// Trains. A θ that is no longer finite is an error that names the settings to change.
    pub fn run(self) -> Result<Trained<T>> {
        let Training { problem, inner, .. } = self;
        let lambda = problem.given_lambda(self.lambda)?;
        let theta = self.theta.map(|theta| problem.given_theta(theta)).transpose()?;
        let executor = self.executor.unwrap_or_else(|| Box::new(Cpu::new()));
        let session = Session::new(problem, &*executor)?.stopped_by(self.signal);
        let mut trainer = Trainer::new(&session, inner)?;

        let run = Key::from_seed(self.seed);
        // Its start and its draws are those of a run's first iteration.
        let (state, key) = (session.state(run)?, run.fold_in(1));
        state.lambda.write(&lambda)?;
        match &theta {
            Some(theta) => state.theta.write(theta)?,
            None => trainer.place(&state, key)?,
        }
        trainer.begin(&state, key)?;
        let mut losses = vec![];
        let (mut done, steps) = (0, inner.steps as u32);
        let mut norm = LazyNorm::new(session.executor());
        while done < steps {
            let until = if self.every == 0 { steps } else { done.saturating_add(self.every).min(steps) };
            let loss = trainer.steps(done..until)?;
            if self.every > 0 && until.is_multiple_of(self.every) {
                losses.push((until, loss));
            }
            done = until;
            if !norm.of(&state.theta)?.is_finite() {
                let (seen, cause) = lost_theta("training");
                return Err(Error::Diverged { seen, cause });
            }
        }
        let numbers = session.evaluator()?.at_step(&state, key, steps)?;
        let own = problem.measures.iter().map(|(name, _)| name.clone());
        Ok(Trained {
            theta: problem.theta_of(&state.theta)?,
            inner_loss: numbers[0],
            outer_loss: numbers[1],
            measures: own.zip(numbers[2..].iter().copied()).collect(),
            losses,
        })
    }
}
