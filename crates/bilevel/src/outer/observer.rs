//! Observers of a run: their events, and a recorder into memory.

use crate::compiled::state::State;
use crate::health::diagnostics::Diagnostics;
use crate::hypergradient::Oracles;
use crate::outer::measures::Measures;
use crate::outer::stopping::Outcome;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The numbers of one outer iteration.
///
/// ```
/// let mut iteration = bilevel::observers::Iteration::default();
/// iteration.number = 3;
/// assert_eq!((iteration.number, iteration.oracles.inner_gradients), (3, 0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Iteration {
    /// Its number, from 1.
    pub number: u32,
    /// The inner loss at the last θ whose gradient was taken.
    pub inner_loss: f64,
    /// The outer loss at the last θ.
    pub outer_loss: f64,
    /// Norm of the hypergradient, before any clipping.
    pub hypergradient_norm: f64,
    /// Norm of its standard error, if the method computes it.
    pub standard_error: Option<f64>,
    /// ‖λ − project(λ − h)‖: the norm of the hypergradient without components that the bounds of λ block. The tolerance
    /// applies to it.
    pub projected_norm: f64,
    /// The norm of the step of λ.
    pub step_norm: f64,
    /// The outer learning rate.
    pub rate: f64,
    /// The diagnostics of the hypergradient.
    pub diagnostics: Diagnostics,
    /// The problem's measures after the step, in iterations that are measured:
    /// see [`Driver::measure_every`](crate::Driver::measure_every).
    #[serde(default, skip_serializing_if = "Measures::is_empty")]
    pub measures: Measures,
    /// Cost of all iterations so far.
    pub oracles: Oracles,
    /// Time of all iterations so far.
    pub elapsed: Duration,
}

/// The facts about a run at its beginning.
///
/// ```
/// use bilevel::observers::{Beginning, Observer};
/// use std::ops::ControlFlow;
///
/// struct Announce;
///
/// impl Observer for Announce {
///     fn on_start(&mut self, beginning: &Beginning) -> ControlFlow<String> {
///         println!("{} with {}: {} iterations", beginning.method, beginning.optimizer, beginning.until - beginning.done);
///         ControlFlow::Continue(())
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Beginning {
    /// The method's name.
    pub method: &'static str,
    /// The optimizer's name.
    pub optimizer: &'static str,
    /// Iterations already done: 0, or those of the checkpoint it continues from.
    pub done: u32,
    /// The iteration it will stop at, at the latest.
    pub until: u32,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// An observer of a run's events, which may end the run.
///
/// ```
/// use bilevel::State;
/// use bilevel::observers::{Iteration, Observer};
/// use std::ops::ControlFlow;
/// /// Stops when the outer loss is good enough.
/// struct GoodEnough(f64);
/// impl Observer for GoodEnough {
///     fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
///         match iteration.outer_loss < self.0 {
///             true => ControlFlow::Break(format!("the outer loss is below {}", self.0)),
///             false => ControlFlow::Continue(()),
///         }
///     }
/// }
/// let state = State::default(); // without a single leaf
/// assert!(GoodEnough(0.1).on_iteration(&Iteration::default(), &state).is_break());
/// ```
pub trait Observer: Send {
    /// Before the first iteration.
    fn on_start(&mut self, _beginning: &Beginning) -> ControlFlow<String> {
        ControlFlow::Continue(())
    }

    /// After each iteration, with λ as it is after the step. To end the run, break with the reason.
    fn on_iteration(&mut self, _iteration: &Iteration, _state: &State) -> ControlFlow<String> {
        ControlFlow::Continue(())
    }

    /// After the last.
    fn on_end(&mut self, _outcome: &Outcome) {}
}

/// The return value of a closure that observes a run: nothing, or whether to continue, with a reason to stop.
///
/// ```
/// use bilevel::observers::Answer;
/// use std::ops::ControlFlow;
/// assert_eq!(().into_control_flow(), ControlFlow::Continue(()));
/// assert_eq!(ControlFlow::Break("enough").into_control_flow(), ControlFlow::Break("enough".to_string()));
/// ```
pub trait Answer {
    /// The same as the answer of an [`Observer`].
    fn into_control_flow(self) -> ControlFlow<String>;
}

impl Answer for () {
    fn into_control_flow(self) -> ControlFlow<String> {
        ControlFlow::Continue(())
    }
}

impl<R: Into<String>> Answer for ControlFlow<R> {
    fn into_control_flow(self) -> ControlFlow<String> {
        self.map_break(Into::into)
    }
}

/// A closure that receives every iteration.
pub(crate) struct OnIteration<F>(pub F);

impl<F, A> Observer for OnIteration<F>
where
    F: FnMut(&Iteration, &State) -> A + Send,
    A: Answer,
{
    fn on_iteration(&mut self, iteration: &Iteration, state: &State) -> ControlFlow<String> {
        (self.0)(iteration, state).into_control_flow()
    }
}

/// Keeps the numbers of every iteration in memory; clones share them.
///
/// ```
/// use bilevel::observers::Recorder;
/// use bilevel::prelude::*;
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|_, _, t| (t.0 - 1.0).square())
///     .build()?;
/// let recorder = Recorder::new();
/// Driver::new(&problem, HpoSgld::default()).iterations(20).observe(recorder.clone()).run()?;
/// let numbers = recorder.iterations();
/// assert_eq!(numbers.len(), 20);
/// assert!(numbers[19].outer_loss < numbers[0].outer_loss);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Iteration>>>);

impl Recorder {
    /// An empty one.
    ///
    /// ```
    /// assert!(bilevel::observers::Recorder::new().iterations().is_empty());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// The iterations recorded so far.
    ///
    /// ```
    /// assert_eq!(bilevel::observers::Recorder::new().iterations().len(), 0);
    /// ```
    pub fn iterations(&self) -> Vec<Iteration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for Recorder {
    fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(iteration.clone());
        ControlFlow::Continue(())
    }
}
