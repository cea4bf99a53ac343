//! Shared parts of the single-loop methods: θ and the solution v of the linear system move together, each by one step
//! at a time.
//!
//!   D_θ = ∇θL_T(λ, θ),   D_v = H·v − f_θ,   D_λ = f_λ − vᵀ·C        all at the same (λ, θ, v)
//!   θ ← θ − γ·D_θ,   v ← v − γ·D_v
//!
//! One reverse pass over ⟨∇θL_T, v⟩ gives H·v and vᵀ·C. At a fixed λ, θ settles at the minimum of L_T and v at H·v =
//! f_θ, and D_λ is the hypergradient.

use crate::hypergradient::parts::penalty::carry;
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::InnerStart;
use bilevel_graph::{gradient, vjp};

/// All parts of the three directions at one point, and the new values of statistics.
pub(crate) struct Products {
    pub slope: Vec<Tensor>,
    /// H·v.
    pub hessian: Vec<Tensor>,
    /// vᵀ·C.
    pub mixed: Vec<Tensor>,
    pub f_theta: Vec<Tensor>,
    pub f_lambda: Vec<Tensor>,
    pub updates: Vec<Option<Tensor>>,
}

impl Products {
    /// The products at (λ, θ, v), with the inner loss of one counter and the outer loss of another.
    pub fn new(trace: &Trace, v: &[Tensor], (inner, outer): (Tensor, Tensor)) -> Result<Self> {
        let (lambda, theta) = (&trace.lambda, &trace.theta);
        let both = [&lambda[..], theta].concat();
        let InnerLoss { loss, updates } = trace.inner_loss(theta, inner)?;
        let slope = or_zeros(gradient(loss, theta)?, theta);
        let mut mixed = or_zeros(vjp(&slope, v, &both)?, &both);
        let hessian = mixed.split_off(lambda.len());
        let outer = trace.outer(theta, outer)?;
        let mut f_lambda = or_zeros(gradient(outer, &both)?, &both);
        let f_theta = f_lambda.split_off(lambda.len());
        Ok(Products { slope, hessian, mixed, f_theta, f_lambda, updates })
    }
}

/// a − b, leaf by leaf: H·v − f_θ is the direction of v, f_λ − vᵀ·C that of λ.
pub(crate) fn less(a: &[Tensor], b: &[Tensor]) -> Vec<Tensor> {
    a.iter().zip(b).map(|(a, b)| *a - *b).collect()
}

/// v after a step of γ along its direction.
pub(crate) fn step_of_v(trace: &Trace, v: &[Tensor], direction: &[Tensor]) -> Vec<Tensor> {
    let one = |((v, d), gamma): ((&Tensor, &Tensor), Tensor)| *v - *d * gamma;
    v.iter().zip(direction).zip(trace.steps()).map(one).collect()
}

/// The loop, compiled.
pub(crate) struct SingleLoop {
    pub inner: InnerLoop,
    start: InnerStart,
    step: Routine,
}

impl SingleLoop {
    pub fn new(session: &Session, inner: InnerLoop) -> Result<Self> {
        Ok(SingleLoop { inner, start: InnerStart::new(session)?, step: step_program(session, &inner)? })
    }

    /// Moves the state's θ, and v, by all steps; the hypergradient is D_λ of the last, before it is taken.
    pub fn advance(&mut self, state: &State, v: &Leaves, (key, gamma): (Key, f64)) -> Result<Hypergradient> {
        self.start.place(&state.lambda, &state.theta, key)?;
        self.inner.place(&mut self.step, gamma)?;
        self.step.bind_point(&state.lambda, &state.theta, key)?;
        self.step.bind("v", v)?;
        let value = self.step.fresh_outputs("h")?;
        self.step.run(0..self.inner.steps as u32)?;
        let steps = self.inner.steps as u64;
        // The terms of D_λ alone are computed only in the last step.
        let oracles = Oracles {
            inner_gradients: steps,
            outer_gradients: steps,
            hessian_products: steps,
            mixed_products: 1,
            losses: 0,
        };
        Ok(Hypergradient::new(value, oracles).blaming(Cause::AdjointGrowing))
    }
}

fn step_program(session: &Session, inner: &InnerLoop) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let v = trace.inputs_like("v", &trace.theta);
    let step = graph.step();
    let found = Products::new(&trace, &v, (step, step))?;
    let builder = inner.one_step(&trace, &found.slope, &found.updates, step).carry(Program::builder(&graph));
    let mut builder = carry(builder, &v, &step_of_v(&trace, &v, &less(&found.hessian, &found.f_theta)));
    for (i, h) in less(&found.f_lambda, &found.mixed).into_iter().enumerate() {
        builder = builder.output(format!("h.{i}"), h);
    }
    Routine::new(&builder.build()?, session)
}
