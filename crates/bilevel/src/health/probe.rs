//! Diagnostics of a hypergradient, for every method.
//!
//! At the last θ of the inner loop, one outer gradient and one second derivative along it give the norms of f_θ and
//! f_λ. They also give the curvature r = f_θᵀ·H·f_θ / f_θᵀ·f_θ, the Rayleigh quotient of H along f_θ. γ·T·r measures
//! the progress of the inner loop along the relevant direction: far below 1 the loop has hardly left its start. The
//! inner loss is evaluated at both ends of the loop, with the same draw.

use crate::compiled::key::Key;
use crate::compiled::leaves::Leaves;
use crate::compiled::norms::{LazyNorm, Norms};
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::compiled::trace::{Trace, or_zeros};
use crate::health::diagnostics::Diagnostics;
use crate::health::final_losses::FinalLosses;
use crate::hypergradient::loop_use::LoopUse;
use crate::hypergradient::{Estimator, Hypergradient, MemoryTable, Method, lost_theta};
use crate::inner::inner_loop::InnerLoop;
use crate::inner::optimizer::InnerOptimizer;
use crate::inner::walk::InnerStart;
use crate::{Error, Result};
use bilevel_graph::{Graph, Program, Tensor, gradient, jvp};
use std::sync::Arc;

/// A method compiled for a problem and an inner loop. It adds the diagnosis to the method's hypergradients.
pub struct PreparedMethod {
    method: &'static str,
    session: Session,
    estimator: FinalLosses,
    norms: Option<Norms>,
    inner: InnerLoop,
    used: LoopUse,
    routine: Routine,
    start: InnerStart,
    parameters: usize,
    direct: bool,
    idle: Arc<[String]>,
}

impl PreparedMethod {
    pub(crate) fn new(method: &(impl Method + ?Sized), session: &Session, inner: &InnerLoop) -> Result<Self> {
        Self::around(method, FinalLosses::new(method, session, inner)?, session, inner)
    }

    /// A probe around a compiled method.
    pub(crate) fn around(
        method: &(impl Method + ?Sized),
        estimator: FinalLosses,
        session: &Session,
        inner: &InnerLoop,
    ) -> Result<Self> {
        let problem = session.problem();
        method.applies(problem)?;
        let (routine, direct) = probe_program(session)?;
        let idle = problem.idle_hyperparameters()?.into();
        Ok(PreparedMethod {
            method: method.name(),
            session: session.clone(),
            estimator,
            norms: None,
            inner: *inner,
            used: method.loop_use(),
            routine,
            start: InnerStart::new(session)?,
            parameters: problem.sizes().1,
            direct,
            idle,
        })
    }

    /// The hypergradient at `state.lambda`, with inner steps of the full size: see [`Estimator::estimate`].
    ///
    /// ```
    /// use bilevel::methods::Rmd;
    /// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
    /// let problem = Problem::builder(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
    ///     .inner(|_, l, t| (t.0 - l.0).square() / 2.0)
    ///     .outer(|_, _, t| t.0)
    ///     .build()?;
    /// let session = Session::new(&problem, &Cpu::with_threads(1))?;
    /// let mut prepared = Rmd::default().prepare_in(&session, &InnerLoop::new(0.25, 1))?;
    /// let mut state = session.state(Key::from_seed(0))?;
    /// assert_eq!(prepared.estimate(&mut state, Key::from_seed(0))?.value[0].item()?, 0.25);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn estimate(&mut self, state: &mut State, key: Key) -> Result<Hypergradient> {
        self.estimate_with(state, key, self.inner.step)
    }

    /// As [`estimate`](Self::estimate), with this γ, which a schedule of the inner loop may prescribe ([`InnerLoop::gamma`]).
    pub fn estimate_with(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        self.start(state, key)?;
        let before = self.estimator.inner_loss(state, key)?;
        let mut found = match self.estimate_only(state, key, gamma) {
            // A θ that is lost explains all later errors of the method.
            Err(Error::Diverged { .. }) if !LazyNorm::new(self.session.executor()).of(&state.theta)?.is_finite() => {
                let (seen, cause) = lost_theta(self.method);
                return Err(Error::Diverged { seen, cause });
            }
            found => found?,
        };
        let memory = state.memory.outside(self.estimator.tables());
        let groups = [&state.theta, &memory, &found.value];
        if self.norms.as_ref().is_none_or(|norms| !norms.fits(&groups)) {
            self.norms = Some(Norms::new(&groups, self.session.executor())?);
        }
        if let Some(norms) = &mut self.norms
            && let [theta, memory, value] = norms.of(&groups)?[..]
            && let Some((seen, cause)) = found.fault(self.method, theta, memory, value)
        {
            return Err(Error::Diverged { seen, cause });
        }
        found.diagnostics.inner_loss_start = Some(before).filter(|x| x.is_finite());
        self.look(state, (key, gamma), &mut found.diagnostics)?;
        Ok(found)
    }

    /// Resets θ to a cold start, in every part of the state: see [`Estimator::restart`].
    pub fn restart(&mut self, state: &mut State, theta: &Leaves) -> Result<()> {
        self.estimator.restart(state, theta)
    }

    /// The tables in the method's memory: see [`Estimator::tables`].
    pub fn tables(&self) -> &[MemoryTable] {
        self.estimator.tables()
    }

    /// The names of idle hyperparameters, found when the method was prepared.
    pub(crate) fn idle(&self) -> &[String] {
        &self.idle
    }

    /// How the method uses the inner loop.
    pub(crate) fn used(&self) -> LoopUse {
        self.used
    }

    /// Moves θ to the start of the inner loop.
    pub(crate) fn start(&mut self, state: &State, key: Key) -> Result<()> {
        self.start.place(&state.lambda, &state.theta, key)
    }

    /// The hypergradient with only the diagnostics of the method itself.
    pub(crate) fn estimate_only(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let mut found = self.estimator.estimate(state, key, gamma)?;
        found.idle = self.idle.clone();
        Ok(found)
    }

    /// Adds the diagnosis at the last θ of the inner loop.
    fn look(&mut self, state: &State, (key, gamma): (Key, f64), into: &mut Diagnostics) -> Result<()> {
        self.routine.bind_point(&state.lambda, &state.theta, key)?;
        self.routine.run(self.inner.last())?;
        let size =
            |name: &str| Ok::<_, crate::Error>(Some(self.routine.number(name)?.sqrt()).filter(|x| x.is_finite()));
        into.outer_gradient_norm = size("outer_gradient")?;
        into.direct_norm = if self.direct { size("direct")? } else { None };
        into.curvature = Some(self.routine.number("curvature")? + self.used.added_curvature).filter(|x| x.is_finite());
        into.inner_loss_end = Some(self.routine.number("inner")?).filter(|x| x.is_finite());
        into.inner_loss_heat = Some(self.inner.heat() * self.parameters as f64).filter(|heat| *heat > 0.0);
        into.descent = self.used.descent;
        // An optimizer other than plain descent has other limits.
        if let Some(curvature) = into.curvature.filter(|_| self.inner.optimizer == InnerOptimizer::Sgd)
            && let Some(a_step) = self.used.descent.limit(into.reduced_step.unwrap_or(gamma), curvature)
        {
            into.step_curvature = Some(a_step);
            into.horizon = Some(a_step * self.inner.steps as f64);
            into.indirect_scale = self.used.mean_kept(&self.inner).map(|mean| a_step * mean);
        }
        Ok(())
    }
}

fn square_norm(all: &[Tensor]) -> Option<Tensor> {
    all.iter().map(|t| t.square().sum_all()).reduce(|a, b| a + b)
}

/// vᵀ·H·v, the second derivative of a loss along a fixed v: forward mode twice, which stores no activations, unlike the
/// backward pass of a product H·v.
fn second_along(loss: Tensor, theta: &[Tensor], v: &[Tensor]) -> Result<Option<Tensor>> {
    let Some(slope) = jvp(&[loss], theta, v)?.into_iter().next().flatten() else { return Ok(None) };
    Ok(jvp(&[slope], theta, v)?.into_iter().next().flatten())
}

/// Squares of the norms of f_θ and f_λ, the Rayleigh quotient along f_θ, and whether f depends on λ directly.
fn probe_program(session: &Session) -> Result<(Routine, bool)> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (theta, step) = (&trace.theta, graph.step());
    let outer = trace.outer(theta, step)?;
    let f_theta = or_zeros(gradient(outer, theta)?, theta);
    let direct: Vec<Tensor> = gradient(outer, &trace.lambda)?.into_iter().flatten().collect();
    let inner = trace.inner(theta, step)?;
    let zero = graph.scalar(0.0, session.problem().dtype);
    let square = square_norm(&f_theta).unwrap_or(zero);
    let direction: Vec<Tensor> = f_theta.iter().map(|f| f.stop_gradient()).collect();
    let along = second_along(inner, theta, &direction)?.unwrap_or(zero);
    let builder = Program::builder(&graph)
        .output("inner", inner)
        .output("outer_gradient", square)
        .output("direct", square_norm(&direct).unwrap_or(zero))
        .output("curvature", along / square);
    Ok((Routine::new(&builder.build()?, session)?, !direct.is_empty()))
}
