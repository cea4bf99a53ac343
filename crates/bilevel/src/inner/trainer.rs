//! Training compiled once, to run many times.

use crate::Result;
use crate::compiled::key::Key;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::inner::inner_loop::InnerLoop;
use crate::inner::walk::InnerStart;
use std::ops::Range;

/// Trains θ in place, without a hypergradient.
///
/// ```
/// use bilevel::training::Trainer;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Problem, Session, Variable};
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|_, _, t| t.0)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut trainer = Trainer::new(&session, InnerLoop::new(0.25, 2))?;
/// let state = session.state(Key::from_seed(0))?;
/// trainer.train(&state, Key::from_seed(0))?;
/// assert_eq!(state.theta.numbers()?, [1.5]); // halfway to 2, and halfway again
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct Trainer {
    start: InnerStart,
    walk: Routine,
    inner: InnerLoop,
}

impl Trainer {
    /// Compiles training by this inner loop. Its schedule is that of outer iterations, of which there are none here.
    pub fn new(session: &Session, inner: InnerLoop) -> Result<Self> {
        inner.check()?;
        Ok(Trainer { start: InnerStart::new(session)?, walk: inner.walk(session)?, inner })
    }

    /// Trains `state.theta` at `state.lambda`, from θ⁰(λ) if the problem defines it, otherwise from its present value.
    /// Random draws follow from the key.
    pub fn train(&mut self, state: &State, key: Key) -> Result<()> {
        self.place(state, key)?;
        self.begin(state, key)?;
        self.steps(0..self.inner.steps as u32).map(drop)
    }

    /// Sets θ to θ⁰(λ), if the problem defines it.
    pub(crate) fn place(&mut self, state: &State, key: Key) -> Result<()> {
        self.start.place(&state.lambda, &state.theta, key)
    }

    /// Prepares the first step.
    pub(crate) fn begin(&mut self, state: &State, key: Key) -> Result<()> {
        self.inner.place(&mut self.walk, self.inner.step)?;
        self.walk.bind_point(&state.lambda, &state.theta, key)
    }

    /// Takes these steps; the inner loss at the θ that the last of them started from.
    pub(crate) fn steps(&mut self, steps: Range<u32>) -> Result<f64> {
        if steps.is_empty() {
            return Ok(f64::NAN);
        }
        self.walk.run(steps)?;
        self.walk.number("inner")
    }
}
