//! Reasons to stop a run, the signal to stop, and the outcome.

use crate::checkpoint::error::CheckpointError;
use crate::compiled::state::State;
use crate::error::require;
use crate::generalisation::guard::{Guard, GuardReport};
use crate::health::divergence::Diagnosis;
use crate::hypergradient::Oracles;
use crate::hypergradient::loop_use::Output;
use crate::observers::Iteration;
use crate::outer::measures::{Best, Measures, Measuring};
use crate::outer::progress::Numbers;
use crate::problem::named::Named;
use crate::problem::variable::Variable;
use crate::{Error, Result};
use bilevel_graph::{Array, Tree};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The reason why a run stopped.
///
/// ```
/// use bilevel::StopReason;
/// assert_eq!(StopReason::Iterations.to_string(), "all iterations are done");
/// assert!(!StopReason::Iterations.is_failure());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StopReason {
    /// All iterations are done.
    Iterations,
    /// The time limit was reached.
    Time,
    /// The hypergradient's norm fell to the tolerance.
    Tolerance,
    /// The outer loss did not improve within the patience.
    Patience,
    /// This metric did not improve within the patience.
    MeasurePatience(String),
    /// The loss on held-out rows rose by more than its standard error, for longer than the patience of the guard.
    Guard,
    /// The [`StopSignal`] was set, by Ctrl-C for instance.
    Signal,
    /// An observer requested it, for this reason.
    Observer(String),
    /// The run diverged; the outcome has the last good state, if the run [kept one](crate::Driver::fall_back).
    Diverged(Diagnosis),
    /// A checkpoint could not be written; the outcome has the state.
    Unsaved(CheckpointError),
}

impl StopReason {
    /// Returns true if the run cannot do better without a change.
    ///
    /// ```
    /// assert!(!bilevel::StopReason::Signal.is_failure());
    /// ```
    pub fn is_failure(&self) -> bool {
        matches!(self, StopReason::Diverged(_) | StopReason::Unsaved(_))
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::Iterations => f.write_str("all iterations are done"),
            StopReason::Time => f.write_str("the time limit was reached"),
            StopReason::Tolerance => f.write_str("the hypergradient is within the tolerance"),
            StopReason::Patience => f.write_str("the outer loss no longer improves"),
            StopReason::MeasurePatience(measure) => write!(f, "the metric '{measure}' no longer improves"),
            StopReason::Guard => f.write_str("the held-out loss rises"),
            StopReason::Signal => f.write_str("stopped from outside"),
            StopReason::Observer(reason) => write!(f, "stopped by an observer: {reason}"),
            StopReason::Diverged(diagnosis) => write!(f, "diverged at {diagnosis}"),
            StopReason::Unsaved(error) => write!(f, "stopped because a checkpoint could not be written: {error}"),
        }
    }
}

/// A flag shared between a run and its controllers. The run checks it between iterations and several times a second
/// within one. It then drops the unfinished iteration and ends as after its last one: with a checkpoint. Only a single
/// step of an inner loop, and the compilation at the start, are never interrupted.
///
/// ```
/// use bilevel::observers::StopSignal;
/// let signal = StopSignal::new();
/// let shared = signal.clone();
/// shared.stop();
/// assert!(signal.is_set());
/// ```
#[derive(Clone, Debug, Default)]
pub struct StopSignal(Arc<AtomicBool>);

impl StopSignal {
    /// A signal that is not set.
    ///
    /// ```
    /// assert!(!bilevel::observers::StopSignal::new().is_set());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests a stop. Safe to call from a signal handler.
    ///
    /// ```
    /// let signal = bilevel::observers::StopSignal::new();
    /// signal.stop();
    /// assert!(signal.is_set());
    /// ```
    pub fn stop(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Returns true once a stop was requested.
    ///
    /// ```
    /// assert!(!bilevel::observers::StopSignal::new().is_set());
    /// ```
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// The flag itself, for libraries that register one with the system.
    ///
    /// ```
    /// use std::sync::atomic::Ordering;
    /// let signal = bilevel::observers::StopSignal::new();
    /// signal.flag().store(true, Ordering::SeqCst);
    /// assert!(signal.is_set());
    /// ```
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

/// A reason on which ranks agree, as a number: the larger is the one that all take.
impl StopReason {
    /// The number of a reason, or 0 for none. Reasons that depend only on the progress are the same on every rank.
    pub(crate) fn code(reason: Option<&StopReason>) -> u64 {
        match reason {
            None => 0,
            Some(StopReason::Signal) => 1,
            Some(StopReason::Time) => 2,
            Some(StopReason::Observer(_)) => 3,
            Some(StopReason::Unsaved(_)) => 4,
            Some(_) => 5,
        }
    }

    /// The reason for a rank that has none of this number itself.
    pub(crate) fn of_another_rank(code: u64) -> Option<StopReason> {
        Some(match code {
            0 => return None,
            1 => StopReason::Signal,
            2 => StopReason::Time,
            4 => StopReason::Observer("another rank could not write a checkpoint".into()),
            _ => StopReason::Observer("an observer on another rank stopped the run".into()),
        })
    }
}

/// The outcome of a run.
///
/// ```
/// use bilevel::prelude::*;
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|_, _, t| (t.0 - 1.0).square())
///     .build()?;
/// let outcome = Driver::new(&problem, IftCg::default())
///     .inner(InnerLoop::new(0.1, 100))
///     .rate(0.1)
///     .iterations(50)
///     .run()?;
/// assert_eq!((outcome.reason, outcome.iterations), (StopReason::Iterations, 50));
/// assert!((outcome.lambda.0.item().unwrap() - 1.0).abs() < 0.1);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[non_exhaustive]
pub struct Outcome<L: Tree = Named<Variable>, T: Tree = Named<Variable>> {
    /// The reason why the run stopped.
    pub reason: StopReason,
    /// The last good λ, in the problem's struct; leaves by name if the problem's type was erased. If the
    /// [`guard`](Self::guard) kept the best, it is that of the iteration at which held-out rows were best.
    pub lambda: L::With<Array>,
    /// The θ of the same state, frozen leaves included.
    pub theta: T::With<Array>,
    /// The last good λ and θ on their device, and the method's memory.
    pub state: State,
    /// The number of iterations up to this state, those before a resumption included.
    pub iterations: u32,
    /// The kind of the method's output in each of them, whose norm they record.
    pub output: Output,
    /// The numbers of the last of them.
    pub last: Option<Iteration>,
    /// The lowest outer loss seen.
    pub best_outer_loss: Option<f64>,
    /// The problem's metrics at the returned λ and θ, unless the run has none or its signal stopped it.
    pub measures: Measures,
    /// The state with the best value of a metric, if [`Driver::keep_best`](crate::Driver::keep_best) requested it.
    pub best: Option<Best>,
    /// The report of the guard, if there are held-out rows.
    pub guard: Option<GuardReport>,
    /// The total cost.
    pub oracles: Oracles,
    /// Time spent, that before a resumption included.
    pub elapsed: Duration,
    /// Notes for the user, for example on skipped checkpoints.
    pub notes: Vec<String>,
}

impl Outcome {
    /// The same in the structs of the problem.
    pub(crate) fn typed<L, T>(self, (lambda, theta): (&L, &T)) -> Result<Outcome<L, T>>
    where
        L: Tree<Leaf = Variable>,
        T: Tree<Leaf = Variable>,
    {
        Ok(Outcome {
            reason: self.reason,
            lambda: rebuilt("λ", lambda, self.lambda)?,
            theta: rebuilt("θ", theta, self.theta)?,
            state: self.state,
            iterations: self.iterations,
            output: self.output,
            last: self.last,
            best_outer_loss: self.best_outer_loss,
            measures: self.measures,
            best: self.best,
            guard: self.guard,
            oracles: self.oracles,
            elapsed: self.elapsed,
            notes: self.notes,
        })
    }
}

fn rebuilt<S: Tree<Leaf = Variable>>(what: &'static str, tree: &S, leaves: Named<Array>) -> Result<S::With<Array>> {
    tree.rebuild(leaves.into_leaves()).map_err(|error| Error::Structure { what, error })
}

/// The structs of a problem need not be `Debug`; their leaves have names.
impl<L: Tree, T: Tree> fmt::Debug for Outcome<L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome")
            .field("reason", &self.reason)
            .field("lambda", &Named::of(&self.lambda))
            .field("theta", &Named::of(&self.theta))
            .field("iterations", &self.iterations)
            .field("last", &self.last)
            .field("best_outer_loss", &self.best_outer_loss)
            .field("oracles", &self.oracles)
            .field("elapsed", &self.elapsed)
            .field("notes", &self.notes)
            .finish_non_exhaustive()
    }
}

/// When to stop.
#[derive(Clone, Debug)]
pub(crate) struct Criteria {
    pub iterations: u32,
    pub time: Option<Duration>,
    pub tolerance: Option<f64>,
    /// This many iterations without an improvement of this size.
    pub patience: Option<(u32, f64)>,
    pub measuring: Measuring,
    pub guard: Guard,
    pub signal: StopSignal,
}

impl Criteria {
    pub fn check(&self) -> Result<()> {
        require(self.iterations > 0, "iterations", self.iterations, "at least 1")?;
        if let Some(tolerance) = self.tolerance {
            require(tolerance >= 0.0 && tolerance.is_finite(), "tolerance", tolerance, "at least 0")?;
        }
        if let Some((iterations, improvement)) = self.patience {
            require(iterations > 0, "patience", iterations, "at least 1 iteration")?;
            let name = "patience's improvement";
            require(improvement >= 0.0 && improvement.is_finite(), name, improvement, "at least 0")?;
        }
        Ok(())
    }

    /// The reason to stop before the next iteration, if there is one. But for time and signal it depends on the progress
    /// alone, so a finished run that is resumed stops at once, for the same reason.
    pub fn reason(&self, progress: &Numbers, in_this_run: Duration) -> Option<StopReason> {
        let norm = progress.last.as_ref().map(|last| last.projected_norm);
        if let (Some(tolerance), Some(norm)) = (self.tolerance, norm)
            && norm <= tolerance
        {
            return Some(StopReason::Tolerance);
        }
        if self.patience.is_some_and(|(iterations, _)| progress.since_best >= iterations) {
            return Some(StopReason::Patience);
        }
        if let (Some((aim, measurements, _)), Some(followed)) = (&self.measuring.patience, &progress.followed)
            && followed.since >= *measurements
        {
            return Some(StopReason::MeasurePatience(aim.measure().into()));
        }
        if self.guard.patience > 0 && progress.watched.as_ref().is_some_and(|w| w.risen >= self.guard.patience) {
            return Some(StopReason::Guard);
        }
        if progress.iteration >= self.iterations {
            return Some(StopReason::Iterations);
        }
        if self.signal.is_set() {
            return Some(StopReason::Signal);
        }
        self.time.is_some_and(|limit| in_this_run >= limit).then_some(StopReason::Time)
    }
}
