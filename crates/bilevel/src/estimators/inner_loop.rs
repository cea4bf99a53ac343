//! The plain inner loop that the unrolled estimators share:
//!
//!   θᵗ⁺¹ = θᵗ − γ·∇θL_T(λ, θᵗ) + κ·√(2τγ)·ξᵗ,   t = 0 … T−1,
//!
//! from θ⁰ = `state.theta`, or from θ⁰(λ) where the problem says so. Step t draws with counter t, so any stretch of the
//! loop can be run again alone and sees the same minibatches and noise; f is taken at θᵀ with counter T.

use crate::error::require;
use crate::key::Key;
use crate::leaves::Leaves;
use crate::routine::Routine;
use crate::session::Session;
use crate::trace::{Trace, or_zeros};
use crate::{Error, Result};
use bilevel_graph::{Graph, Program, Tensor, gradient};
use std::ops::Range;

/// Settings of the loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InnerLoop {
    step: f64,
    pub steps: usize,
    temperature: f64,
    noise_scale: f64,
    /// What a schedule multiplies the step with.
    pub factor: f64,
}

impl InnerLoop {
    /// Refuses settings out of range; `least` is the least number of steps.
    pub fn new(step: f64, steps: usize, temperature: f64, noise_scale: f64, least: usize) -> Result<Self> {
        let must = if least == 0 { "below 2³¹ − 1" } else { "at least 1 and below 2³¹ − 1" };
        require((least..i32::MAX as usize).contains(&steps), "steps", steps as f64, must)?;
        positive("step", step)?;
        at_least_0("temperature", temperature)?;
        at_least_0("noise_scale", noise_scale)?;
        Ok(InnerLoop { step, steps, temperature, noise_scale, factor: 1.0 })
    }

    /// γ as it is now.
    pub fn gamma(&self) -> f64 {
        self.step * self.factor
    }

    /// Gives a routine γ and the size of the noise.
    pub fn place(&self, routine: &mut Routine) -> Result<()> {
        routine.set_step_sizes(self.gamma(), self.noise_scale * (2.0 * self.temperature * self.gamma()).sqrt())
    }

    /// The counter of the outer loss, as steps of a program that runs once.
    pub fn last(&self) -> Range<u32> {
        self.steps as u32..self.steps as u32 + 1
    }

    /// θ of the next step, from ∇θL_T.
    pub fn next(&self, trace: &Trace, slope: &[Tensor], counter: Tensor) -> Vec<Tensor> {
        let (gamma, size) = (trace.gamma, trace.noise_size);
        let down = trace.theta.iter().zip(slope).map(|(t, s)| *t - *s * gamma);
        if self.noise_scale * self.temperature == 0.0 {
            return down.collect();
        }
        down.zip(trace.noise(counter)).map(|(t, n)| t + n * size).collect()
    }

    /// A program that makes a step each time it runs, and shows L_T at the θ it started from as `inner`.
    pub fn walk(&self, session: &Session) -> Result<Routine> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, session.problem())?;
        let loss = trace.inner(&trace.theta, graph.step())?;
        let slope = or_zeros(gradient(loss, &trace.theta)?, &trace.theta);
        let mut builder = Program::builder(&graph).output("inner", loss);
        for (&theta, next) in trace.theta.iter().zip(self.next(&trace, &slope, graph.step())) {
            builder = builder.carry(theta, next);
        }
        Routine::new(&builder.build()?, session)
    }
}

pub(crate) fn positive(name: &'static str, value: f64) -> Result<()> {
    require(value > 0.0 && value.is_finite(), name, value, "above 0")
}

pub(crate) fn at_least_0(name: &'static str, value: f64) -> Result<()> {
    require(value >= 0.0 && value.is_finite(), name, value, "at least 0")
}

/// θ⁰(λ), where the problem says so.
pub(crate) struct Start(Option<Routine>);

impl Start {
    pub fn new(session: &Session) -> Result<Self> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, session.problem())?;
        let Some(start) = trace.start()? else { return Ok(Start(None)) };
        let mut builder = Program::builder(&graph);
        for (i, theta) in start.into_iter().enumerate() {
            builder = builder.output(format!("start.{i}"), theta);
        }
        Ok(Start(Some(Routine::new(&builder.build()?, session)?)))
    }

    /// Puts θ where the inner loop starts: at θ⁰(λ), or where it is.
    pub fn place(&mut self, lambda: &Leaves, theta: &Leaves, key: Key) -> Result<()> {
        let Some(routine) = &mut self.0 else { return Ok(()) };
        routine.bind_lambda(lambda)?;
        routine.set_key(key)?;
        routine.bind_outputs("start", theta)?;
        routine.run(0..1)
    }
}

/// f with f_λ and f_θ at one θ: outputs `outer`, `direct.i`, `f_theta.i`.
pub(super) fn outer_gradient(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let loss = trace.outer(&trace.theta, graph.step())?;
    let both = [&trace.lambda[..], &trace.theta].concat();
    let by = or_zeros(gradient(loss, &both)?, &both);
    let (direct, f_theta) = by.split_at(trace.lambda.len());
    let mut builder = Program::builder(&graph).output("outer", loss);
    for (prefix, values) in [("direct", direct), ("f_theta", f_theta)] {
        for (i, &value) in values.iter().enumerate() {
            builder = builder.output(format!("{prefix}.{i}"), value);
        }
    }
    Routine::new(&builder.build()?, session)
}

/// f alone, as output `outer`.
pub(super) fn outer_loss(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let loss = trace.outer(&trace.theta, graph.step())?;
    Routine::new(&Program::builder(&graph).output("outer", loss).build()?, session)
}

/// h + vᵀ·J0 from inputs `h.i` and `v.i`, as outputs `h.i`; `None` where θ⁰ does not depend on λ.
pub(super) fn through_start(session: &Session) -> Result<Option<Routine>> {
    if !session.problem().starts_from_lambda() {
        return Ok(None);
    }
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (h, v) = (trace.inputs_like("h", &trace.lambda), trace.inputs_like("v", &trace.theta));
    let mut builder = Program::builder(&graph);
    builder = v.iter().fold(builder, |builder, &v| builder.keep_input(v));
    for (i, (h, change)) in h.into_iter().zip(trace.through_start(&v)?).enumerate() {
        builder = builder.output(format!("h.{i}"), h + change);
    }
    Ok(Some(Routine::new(&builder.build()?, session)?))
}

/// Adds vᵀ·J0 to h with the routine above.
pub(super) fn add_through_start(
    routine: &mut Routine,
    (lambda, key): (&Leaves, Key),
    h: &Leaves,
    v: &Leaves,
) -> Result<Leaves> {
    routine.bind_lambda(lambda)?;
    routine.set_key(key)?;
    routine.bind("h", h)?;
    routine.bind("v", v)?;
    let sum = routine.outputs("h")?;
    routine.run(0..1)?;
    Ok(sum)
}

/// An error for a method that needs a problem of another kind.
pub(super) fn not_applicable<T>(method: &'static str, reason: &str) -> Result<T> {
    Err(Error::NotApplicable { method, reason: reason.into() })
}
