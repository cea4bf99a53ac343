//! What the single-loop methods share: θ and the solution v of the linear system move together, each by one step at a time.
//!
//!   D_θ = ∇θL_T(λ, θ),   D_v = H·v − f_θ,   D_λ = f_λ − vᵀ·C        all at the same (λ, θ, v)
//!   θ ← θ − γ·D_θ,   v ← v − γ·D_v
//!
//! One reverse pass over ⟨∇θL_T, v⟩ gives H·v and vᵀ·C. At a λ that does not move, (θ, v) settles where θ is the minimum of L_T
//! and H·v = f_θ, and D_λ is the hypergradient.

use super::inner_loop::{InnerLoop, Start};
use crate::estimator::{Hypergradient, Oracles};
use crate::key::Key;
use crate::leaves::Leaves;
use crate::routine::Routine;
use crate::session::Session;
use crate::state::State;
use crate::trace::{InnerLoss, Trace, or_zeros};
use crate::{Cause, Result};
use bilevel_graph::{Graph, Program, Tensor, gradient, vjp};

/// The three directions at one point, the losses there, and what statistics become.
pub(super) struct Directions {
    pub theta: Vec<Tensor>,
    pub v: Vec<Tensor>,
    pub lambda: Vec<Tensor>,
    pub inner: Tensor,
    pub outer: Tensor,
    pub updates: Vec<Option<Tensor>>,
}

/// The directions at (λ, θ, v), with the inner loss as of one counter and the outer loss as of another.
pub(super) fn directions(trace: &Trace, v: &[Tensor], (inner, outer): (Tensor, Tensor)) -> Result<Directions> {
    let (lambda, theta) = (&trace.lambda, &trace.theta);
    let both = [&lambda[..], theta].concat();
    let InnerLoss { loss, updates } = trace.inner_loss(theta, inner)?;
    let slope = or_zeros(gradient(loss, theta)?, theta);
    let products = or_zeros(vjp(&slope, v, &both)?, &both);
    let outer = trace.outer(theta, outer)?;
    let by = or_zeros(gradient(outer, &both)?, &both);
    let less = |a: &[Tensor], b: &[Tensor]| a.iter().zip(b).map(|(a, b)| *a - *b).collect();
    let ((mixed, hessian), (direct, f_theta)) = (products.split_at(lambda.len()), by.split_at(lambda.len()));
    Ok(Directions { theta: slope, v: less(hessian, f_theta), lambda: less(direct, mixed), inner: loss, outer, updates })
}

/// The loop, compiled.
pub(super) struct SingleLoop {
    pub inner: InnerLoop,
    start: Start,
    /// The steps before the last, which nobody asks for D_λ.
    before: Option<Routine>,
    last: Routine,
}

impl SingleLoop {
    pub fn new(session: &Session, inner: InnerLoop) -> Result<Self> {
        Ok(SingleLoop {
            inner,
            start: Start::new(session)?,
            before: if inner.steps > 1 { Some(step_program(session, &inner, false)?) } else { None },
            last: step_program(session, &inner, true)?,
        })
    }

    /// Moves the state's θ, and v, by all steps; the hypergradient is D_λ of the last, before it is taken.
    pub fn advance(&mut self, state: &State, v: &Leaves, key: Key) -> Result<Hypergradient> {
        self.start.place(&state.lambda, &state.theta, key)?;
        let steps = self.inner.steps as u32;
        let value = self.last.fresh_outputs("h")?;
        for (routine, range) in
            self.before.iter_mut().map(|r| (r, 0..steps - 1)).chain([(&mut self.last, steps - 1..steps)])
        {
            self.inner.place(routine)?;
            routine.bind_point(&state.lambda, &state.theta, key)?;
            routine.bind("v", v)?;
            routine.run(range)?;
        }
        let steps = steps as u64;
        let oracles = Oracles {
            inner_gradients: steps,
            outer_gradients: steps,
            hessian_products: steps,
            mixed_products: 1,
            losses: 0,
        };
        let losses = (self.last.number("inner")?, self.last.number("outer")?);
        Ok(Hypergradient::new(value, losses, oracles).blaming(Cause::AdjointGrowing))
    }
}

fn step_program(session: &Session, inner: &InnerLoop, last: bool) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let v = trace.inputs_like("v", &trace.theta);
    let step = graph.step();
    let found = directions(&trace, &v, (step, step))?;
    let mut builder = inner.step(&trace, &found.theta, &found.updates, step).carry(Program::builder(&graph));
    for (v, (direction, gamma)) in v.iter().zip(found.v.iter().zip(trace.steps())) {
        builder = builder.carry(*v, *v - *direction * gamma);
    }
    if last {
        builder = builder.output("inner", found.inner).output("outer", found.outer);
        for (i, h) in found.lambda.into_iter().enumerate() {
            builder = builder.output(format!("h.{i}"), h);
        }
    }
    Routine::new(&builder.build()?, session)
}
