//! Shared parts of the value-function penalty methods: θ from training alone, and a copy y that the outer loss also
//! acts on.
//!
//!   θ ← θ − γ·∇θL_T(λ, θ)                              towards the minimum of L_T
//!   y ← y − γ·(∇θL_T(λ, y) + f_θ(λ, y)/σ)              towards the minimum of L_T + f/σ
//!   h = f_λ(λ, y) + σ·(∂λL_T(λ, y) − ∂λL_T(λ, θ))
//!
//! Once both have settled, h is the derivative of min over y of f + σ·(L_T − min L_T), which is O(1/σ) away from the
//! hypergradient. There are no second derivatives in it. While λ moves, σ also multiplies the lag of y and θ: with a
//! large penalty use many steps, or an outer rate well below 1/σ. Both losses of a step, at y and at θ, use the same
//! draw, so that its noise cancels in the difference that σ multiplies.

use crate::compiled::trace::as_variables;
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::InnerStart;
use crate::problem::variable::Role;
use bilevel_graph::{ProgramBuilder, gradient};

/// When y moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// With every step of θ.
    EveryStep,
    /// Once for each hypergradient, at the point it is taken at.
    Once,
}

/// Derivatives of both losses by λ and by one θ, and the new values of statistics.
pub(crate) struct Slopes {
    pub inner_lambda: Vec<Tensor>,
    pub inner_theta: Vec<Tensor>,
    pub outer_lambda: Vec<Tensor>,
    pub outer_theta: Vec<Tensor>,
    updates: Vec<Option<Tensor>>,
}

impl Slopes {
    /// The slopes at this θ, an input of the graph.
    pub fn new(trace: &Trace, theta: &[Tensor], counter: Tensor) -> Result<Self> {
        let both = [&trace.lambda[..], theta].concat();
        let InnerLoss { loss: inner, updates } = trace.inner_loss(theta, counter)?;
        let outer = trace.outer(theta, counter)?;
        let split = |loss| -> Result<(Vec<Tensor>, Vec<Tensor>)> {
            let mut by = or_zeros(gradient(loss, &both)?, &both);
            let by_theta = by.split_off(trace.lambda.len());
            Ok((by, by_theta))
        };
        let ((inner_lambda, inner_theta), (outer_lambda, outer_theta)) = (split(inner)?, split(outer)?);
        Ok(Slopes { inner_lambda, inner_theta, outer_lambda, outer_theta, updates })
    }

    /// θ after a step of γ along these directions; a statistic becomes the value given by the inner loss.
    pub fn step(&self, trace: &Trace, theta: &[Tensor], direction: &[Tensor]) -> Vec<Tensor> {
        let one = |(i, gamma): (usize, Tensor)| match trace.problem.theta[i].1.role {
            Role::Statistic => self.updates[i].unwrap_or(theta[i]),
            _ => theta[i] - direction[i] * gamma,
        };
        trace.steps().into_iter().enumerate().map(one).collect()
    }

    /// y after a step towards the minimum of L_T + f/σ.
    fn penalised(&self, trace: &Trace, y: &[Tensor], penalty: Tensor) -> Vec<Tensor> {
        let direction: Vec<Tensor> =
            self.inner_theta.iter().zip(&self.outer_theta).map(|(inner, outer)| *inner + *outer / penalty).collect();
        self.step(trace, y, &direction)
    }
}

/// ∂λL_T at one θ, which counts as an independent variable.
pub(crate) fn inner_by_lambda(trace: &Trace, theta: &[Tensor], counter: Tensor) -> Result<Vec<Tensor>> {
    let loss = trace.inner(&as_variables(theta), counter)?;
    Ok(or_zeros(gradient(loss, &trace.lambda)?, &trace.lambda))
}

/// The two descents and their final step, compiled.
pub(crate) struct Penalised {
    pub inner: InnerLoop,
    pace: Pace,
    start: InnerStart,
    walk: Routine,
    ending: Routine,
    starts_from_lambda: bool,
}

impl Penalised {
    pub fn new(session: &Session, inner: InnerLoop, pace: Pace) -> Result<Self> {
        let walk = match pace {
            Pace::EveryStep => both_program(session, &inner)?,
            Pace::Once => inner.walk(session)?,
        };
        Ok(Penalised {
            inner,
            pace,
            start: InnerStart::new(session)?,
            walk,
            ending: ending_program(session, pace)?,
            starts_from_lambda: session.problem().starts_from_lambda(),
        })
    }

    /// Moves the state's θ and y, and returns h with this penalty σ. Before the first hypergradient, y starts at θ.
    pub fn advance(
        &mut self,
        state: &State,
        (y, fresh): (&Leaves, bool),
        penalty: f64,
        (key, gamma): (Key, f64),
    ) -> Result<Hypergradient> {
        self.start.place(&state.lambda, &state.theta, key)?;
        if fresh || self.starts_from_lambda {
            y.copy_from(&state.theta)?;
        }
        self.inner.place(&mut self.walk, gamma)?;
        self.walk.bind_point(&state.lambda, &state.theta, key)?;
        if self.pace == Pace::EveryStep {
            self.walk.bind("y", y)?;
            self.walk.set_numbers("penalty", [penalty])?;
        }
        self.walk.run(0..self.inner.steps as u32)?;
        self.inner.place(&mut self.ending, gamma)?;
        self.ending.bind_point(&state.lambda, &state.theta, key)?;
        self.ending.bind("y", y)?;
        self.ending.set_numbers("penalty", [penalty])?;
        let value = self.ending.fresh_outputs("h")?;
        self.ending.run(self.inner.last())?;
        let steps = self.inner.steps as u64;
        let (inner_gradients, outer_gradients) = match self.pace {
            Pace::EveryStep => (2 * steps + 2, steps + 1),
            Pace::Once => (steps + 2, 1),
        };
        let oracles = Oracles { inner_gradients, outer_gradients, losses: 1, ..Oracles::default() };
        Ok(Hypergradient::new(value, oracles)
            .with_inner_loss(self.ending.number("inner")?)
            .with_outer_loss(self.ending.number("outer")?))
    }
}

/// One step of θ and one of y.
fn both_program(session: &Session, inner: &InnerLoop) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (theta, step) = (&trace.theta, graph.step());
    let InnerLoss { loss, updates } = trace.inner_loss(theta, step)?;
    let slope = or_zeros(gradient(loss, theta)?, theta);
    let builder = inner.one_step(&trace, &slope, &updates, step).carry(Program::builder(&graph));
    let (y, penalty) = (trace.inputs_like("y", theta), graph.input("penalty.0", [], session.problem().dtype));
    let next = Slopes::new(&trace, &y, step)?.penalised(&trace, &y, penalty);
    Routine::new(&carry(builder, &y, &next).build()?, session)
}

/// h, both losses at θ, and the step of y if it moves once.
fn ending_program(session: &Session, pace: Pace) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (theta, step) = (&trace.theta, graph.step());
    let (y, penalty) = (trace.inputs_like("y", theta), graph.input("penalty.0", [], session.problem().dtype));
    let at_y = Slopes::new(&trace, &y, step)?;
    let at_theta = inner_by_lambda(&trace, theta, step)?;
    let mut builder = Program::builder(&graph)
        .keep_input(penalty)
        .output("inner", trace.inner(theta, step)?)
        .output("outer", trace.outer(theta, step)?);
    builder = y.iter().fold(builder, |builder, &y| builder.keep_input(y));
    for (i, at_theta) in at_theta.into_iter().enumerate() {
        let h = at_y.outer_lambda[i] + (at_y.inner_lambda[i] - at_theta) * penalty;
        builder = builder.output(format!("h.{i}"), h);
    }
    if pace == Pace::Once {
        builder = carry(builder, &y, &at_y.penalised(&trace, &y, penalty));
    }
    Routine::new(&builder.build()?, session)
}

/// Carries each of these to its new value.
pub(crate) fn carry<'g>(builder: ProgramBuilder<'g>, from: &[Tensor], to: &[Tensor]) -> ProgramBuilder<'g> {
    from.iter().zip(to).fold(builder, |builder, (from, to)| builder.carry(*from, *to))
}
