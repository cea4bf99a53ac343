//! What is worth knowing about a hypergradient besides its value, whatever method it comes from.
//!
//! At the θ where the inner loop ends, one outer gradient and one second derivative along it give the norms of f_θ and f_λ and the
//! curvature r = f_θᵀ·H·f_θ / f_θᵀ·f_θ, the Rayleigh quotient of H along f_θ. γ·T·r says how far the inner loop has come
//! along the direction that matters: far below 1 it has hardly begun to forget its start. The inner loss is taken at both
//! ends of the loop, with the same draw.

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
use crate::inner::optimizer::InnerOptimizer;
use crate::inner::walk::Start;
use crate::{Error, Result};
use bilevel_graph::{Graph, Program, Tensor, gradient, jvp};
use std::ops::Range;
use std::sync::Arc;

/// What the diagnosis has to know of a method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InnerTime {
    /// Inner step γ.
    pub step: f64,
    /// Inner steps T.
    pub steps: usize,
    /// For a method that scales its indirect term by γ·curvature·(mean number of the kept steps): that mean.
    pub mean_kept: Option<f64>,
    /// Curvature that the method adds to that of the inner loss, as a proximal term does.
    pub added_curvature: f64,
    /// Temperature κ²τ of the loop's noise.
    pub heat: f64,
    /// How the loop steps.
    pub optimizer: InnerOptimizer,
}

impl InnerTime {
    /// This many steps of this size, in a method that is right for any number of them.
    pub fn new(step: f64, steps: usize) -> Self {
        InnerTime { step, steps, mean_kept: None, added_curvature: 0.0, heat: 0.0, optimizer: InnerOptimizer::Sgd }
    }

    /// The same loop with this optimizer.
    pub fn with_optimizer(self, optimizer: InnerOptimizer) -> Self {
        InnerTime { optimizer, ..self }
    }

    /// The same loop with Langevin noise of temperature τ and scale κ.
    ///
    /// ```
    /// assert_eq!(bilevel::InnerTime::new(0.1, 10).with_noise(0.5, 2.0).heat, 2.0);
    /// ```
    pub fn with_noise(self, temperature: f64, noise_scale: f64) -> Self {
        InnerTime { heat: noise_scale * noise_scale * temperature, ..self }
    }
}

/// An estimator that adds the diagnosis to the hypergradients of another.
pub(crate) struct Probed {
    method: &'static str,
    session: Session,
    estimator: FinalLosses,
    norms: Option<Norms>,
    time: Option<InnerTime>,
    used: LoopUse,
    factor: f64,
    routine: Routine,
    start: Start,
    parameters: usize,
    direct: bool,
    idle: Arc<[String]>,
}

impl Probed {
    pub fn new(method: &(impl Method + ?Sized), session: &Session) -> Result<Self> {
        let problem = session.problem();
        let estimator = FinalLosses::new(method, session)?;
        method.applies(problem)?;
        let (routine, direct) = probe_program(session)?;
        let idle = problem.idle_hyperparameters()?.into();
        Ok(Probed {
            method: method.name(),
            session: session.clone(),
            estimator,
            norms: None,
            time: method.inner_time(),
            used: method.loop_use(),
            factor: 1.0,
            routine,
            start: Start::new(session)?,
            parameters: problem.sizes().1,
            direct,
            idle,
        })
    }

    /// The names of idle hyperparameters, found when the method was prepared.
    pub fn idle(&self) -> &[String] {
        &self.idle
    }

    /// The inner loop as the schedule sets it now.
    pub fn time(&self) -> Option<InnerTime> {
        self.time.map(|time| InnerTime { step: time.step * self.factor, ..time })
    }

    /// How the method uses its inner loop.
    pub fn used(&self) -> LoopUse {
        self.used
    }

    /// Puts θ where the inner loop starts.
    pub fn start(&mut self, state: &State, key: Key) -> Result<()> {
        self.start.place(&state.lambda, &state.theta, key)
    }

    /// The number of the step whose draw the diagnosis is made with.
    fn counter(&self) -> Range<u32> {
        let steps = self.time.map_or(0, |time| time.steps as u32);
        steps..steps + 1
    }

    /// The hypergradient with no more diagnosis than the method itself gives.
    pub fn estimate_only(&mut self, state: &mut State, key: Key) -> Result<Hypergradient> {
        let mut found = self.estimator.estimate(state, key)?;
        found.idle = self.idle.clone();
        Ok(found)
    }

    /// Adds the diagnosis at the θ where the inner loop ended.
    pub fn look(&mut self, state: &State, key: Key, into: &mut Diagnostics) -> Result<()> {
        self.routine.bind_point(&state.lambda, &state.theta, key)?;
        self.routine.run(self.counter())?;
        let size =
            |name: &str| Ok::<_, crate::Error>(Some(self.routine.number(name)?.sqrt()).filter(|x| x.is_finite()));
        into.outer_gradient_norm = size("outer_gradient")?;
        into.direct_norm = if self.direct { size("direct")? } else { None };
        let added = self.time.map_or(0.0, |time| time.added_curvature);
        into.curvature = Some(self.routine.number("curvature")? + added).filter(|x| x.is_finite());
        into.inner_loss_end = Some(self.routine.number("inner")?).filter(|x| x.is_finite());
        into.inner_loss_heat = self.time.map(|time| time.heat * self.parameters as f64).filter(|heat| *heat > 0.0);
        into.loop_use = self.used;
        // An optimizer other than plain descent has other limits.
        let plain = self.time().filter(|time| time.optimizer == InnerOptimizer::Sgd);
        if let (Some(time), Some(curvature)) = (plain, into.curvature)
            && let Some(a_step) = self.used.limit(into.reduced_step.unwrap_or(time.step), curvature)
        {
            into.step_curvature = Some(a_step);
            into.horizon = Some(a_step * time.steps as f64);
            into.indirect_scale = time.mean_kept.map(|mean| a_step * mean);
        }
        Ok(())
    }
}

impl Estimator for Probed {
    fn estimate(&mut self, state: &mut State, key: Key) -> Result<Hypergradient> {
        self.start(state, key)?;
        let before = self.estimator.inner_loss(state, key)?;
        let mut found = match self.estimate_only(state, key) {
            // A θ that is lost explains whatever the method met after it.
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
        self.look(state, key, &mut found.diagnostics)?;
        Ok(found)
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.factor = factor;
        self.estimator.scale_step(factor)
    }

    fn restart(&mut self, state: &mut State, theta: &Leaves) -> Result<()> {
        self.estimator.restart(state, theta)
    }

    fn tables(&self) -> &[MemoryTable] {
        self.estimator.tables()
    }
}

fn square_norm(all: &[Tensor]) -> Option<Tensor> {
    all.iter().map(|t| t.square().sum_all()).reduce(|a, b| a + b)
}

/// vᵀ·H·v, the second derivative of a loss along a fixed v: forward mode twice, which keeps nothing of the pass through a network that
/// a product H·v would keep for its way back.
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
