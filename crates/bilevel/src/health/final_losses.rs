//! The losses at the θ that a hypergradient leaves in the state.
//!
//! Most methods evaluate losses one step before their last θ, with another draw, or not at all. For every method, a
//! hypergradient reports L_T and f at the returned θ, with the draw of step T of its key, T being the number of inner
//! steps. A method that has already evaluated a loss there returns it ([`Hypergradient::with_outer_loss`]); any other
//! is evaluated here.

use crate::Result;
use crate::compiled::key::Key;
use crate::compiled::leaves::Leaves;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::compiled::trace::Trace;
use crate::hypergradient::parts::shrinking::Shrinking;
use crate::hypergradient::{Estimator, Hypergradient, MemoryTable, Method};
use crate::inner::inner_loop::InnerLoop;
use bilevel_graph::{Graph, Program};

/// An estimator that adds the losses at the last θ to the hypergradients of another.
pub(crate) struct FinalLosses {
    estimator: Box<dyn Estimator>,
    session: Session,
    /// T.
    steps: u32,
    inner: Routine,
    /// Compiled when a method first leaves the outer loss to this.
    outer: Option<Routine>,
}

impl FinalLosses {
    /// Compiles a method with this inner loop, whose γ is reduced if requested.
    pub fn new(method: &(impl Method + ?Sized), session: &Session, inner: &InnerLoop) -> Result<Self> {
        let plain = Self::around(method.compile(session, inner)?, inner.steps, session)?;
        match inner.shrink {
            true => Self::around(Box::new(Shrinking::new(plain, session)), inner.steps, session),
            false => Ok(plain),
        }
    }

    /// Completes the hypergradients of an estimator with this many inner steps.
    pub fn around(estimator: Box<dyn Estimator>, steps: usize, session: &Session) -> Result<Self> {
        let inner = loss_program(session, true)?;
        Ok(FinalLosses { estimator, session: session.clone(), steps: steps as u32, inner, outer: None })
    }

    /// L_T at the state's θ, with the draw of step T.
    pub fn inner_loss(&mut self, state: &State, key: Key) -> Result<f64> {
        loss_at(&mut self.inner, self.steps, state, key)
    }

    fn outer_loss(&mut self, state: &State, key: Key) -> Result<f64> {
        let routine = match &mut self.outer {
            Some(routine) => routine,
            None => self.outer.insert(loss_program(&self.session, false)?),
        };
        loss_at(routine, self.steps, state, key)
    }
}

fn loss_program(session: &Session, inner: bool) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (theta, step) = (&trace.theta, graph.step());
    let loss = if inner { trace.inner(theta, step)? } else { trace.outer(theta, step)? };
    Routine::new(&Program::builder(&graph).output("loss", loss).build()?, session)
}

fn loss_at(routine: &mut Routine, step: u32, state: &State, key: Key) -> Result<f64> {
    routine.bind_point(&state.lambda, &state.theta, key)?;
    routine.run(step..step + 1)?;
    routine.number("loss")
}

impl Estimator for FinalLosses {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let mut found = self.estimator.estimate(state, key, gamma)?;
        if found.inner_loss.is_nan() {
            found.inner_loss = self.inner_loss(state, key)?;
        }
        if found.outer_loss.is_nan() {
            found.outer_loss = self.outer_loss(state, key)?;
        }
        Ok(found)
    }

    fn restart(&mut self, state: &mut State, theta: &Leaves) -> Result<()> {
        self.estimator.restart(state, theta)
    }

    fn tables(&self) -> &[MemoryTable] {
        self.estimator.tables()
    }
}
