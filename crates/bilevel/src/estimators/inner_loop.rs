//! The plain inner loop that the unrolled estimators share:
//!
//!   θᵗ⁺¹ = θᵗ − γ·∇θL_T(λ, θᵗ) + κ·√(2τγ)·ξᵗ,   t = 0 … T−1,
//!
//! from θ⁰ = `state.theta`, or from θ⁰(λ) where the problem says so. Step t draws with counter t, so any stretch of the
//! loop can be run again alone and sees the same minibatches and noise; f is taken at θᵀ with counter T.

use crate::error::require;
use crate::problem::Problem;
use crate::routine::Routine;
use crate::trace::{Trace, or_zeros};
use crate::{Error, Result};
use bilevel_graph::{Array, DType, Executor, Graph, Program, Tensor, gradient};
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
    pub fn walk(&self, problem: &Problem, executor: &dyn Executor) -> Result<Routine> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, problem)?;
        let loss = trace.inner(&trace.theta, graph.step())?;
        let slope = or_zeros(gradient(loss, &trace.theta)?, &trace.theta);
        let mut builder = Program::builder(&graph).output("inner", loss);
        for (&theta, next) in trace.theta.iter().zip(self.next(&trace, &slope, graph.step())) {
            builder = builder.carry(theta, next);
        }
        Routine::new(&builder.build()?, problem, executor)
    }

    /// Adds to a divergence the first step whose loss is not finite, by running the loop again step by step.
    pub fn explain(&self, error: Error, routine: &mut Routine, point: (&[Array], &[Array], [i32; 2])) -> Error {
        let Error::Diverged { seen, cause } = error else { return error };
        match self.first_bad_step(routine, point) {
            Ok(Some(step)) => {
                let seen = format!("{seen}; the inner loss is not finite from inner step {} on", step + 1);
                Error::Diverged { seen, cause }
            }
            _ => Error::Diverged { seen, cause },
        }
    }

    fn first_bad_step(
        &self,
        routine: &mut Routine,
        (lambda, theta, key): (&[Array], &[Array], [i32; 2]),
    ) -> Result<Option<u32>> {
        routine.set_point(lambda, theta, key)?;
        for step in 0..self.steps as u32 {
            routine.run(step..step + 1)?;
            if !routine.number("inner")?.is_finite() {
                return Ok(Some(step));
            }
        }
        Ok(None)
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
    pub fn new(problem: &Problem, executor: &dyn Executor) -> Result<Self> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, problem)?;
        let Some(start) = trace.start()? else { return Ok(Start(None)) };
        let mut builder = Program::builder(&graph);
        for (i, theta) in start.into_iter().enumerate() {
            builder = builder.output(format!("start.{i}"), theta);
        }
        Ok(Start(Some(Routine::new(&builder.build()?, problem, executor)?)))
    }

    /// Where the inner loop starts, given the θ of the state.
    pub fn theta(&mut self, lambda: &[Array], theta: &[Array], key: [i32; 2]) -> Result<Vec<Array>> {
        let Some(routine) = &mut self.0 else { return Ok(theta.to_vec()) };
        routine.set_lambda(lambda)?;
        routine.set_key(key)?;
        routine.run(0..1)?;
        routine.output_all("start")
    }
}

/// f with f_λ and f_θ at one θ: outputs `outer`, `direct.i`, `f_theta.i`.
pub(super) fn outer_gradient(problem: &Problem, executor: &dyn Executor) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
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
    Routine::new(&builder.build()?, problem, executor)
}

/// f alone, as output `outer`.
pub(super) fn outer_loss(problem: &Problem, executor: &dyn Executor) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let loss = trace.outer(&trace.theta, graph.step())?;
    Routine::new(&Program::builder(&graph).output("outer", loss).build()?, problem, executor)
}

/// h + vᵀ·J0 from inputs `h.i` and `v.i`, as outputs `h.i`; `None` where θ⁰ does not depend on λ.
pub(super) fn through_start(problem: &Problem, executor: &dyn Executor) -> Result<Option<Routine>> {
    if !problem.starts_from_lambda() {
        return Ok(None);
    }
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let (h, v) = (trace.inputs_like("h", &trace.lambda), trace.inputs_like("v", &trace.theta));
    let mut builder = Program::builder(&graph);
    builder = v.iter().fold(builder, |builder, &v| builder.keep_input(v));
    for (i, (h, change)) in h.into_iter().zip(trace.through_start(&v)?).enumerate() {
        builder = builder.output(format!("h.{i}"), h + change);
    }
    Ok(Some(Routine::new(&builder.build()?, problem, executor)?))
}

/// Adds vᵀ·J0 to h with the routine above.
pub(super) fn add_through_start(
    routine: &mut Routine,
    (lambda, key): (&[Array], [i32; 2]),
    h: &[Array],
    v: &[Array],
) -> Result<Vec<Array>> {
    routine.set_lambda(lambda)?;
    routine.set_key(key)?;
    routine.set_all("h", h)?;
    routine.set_all("v", v)?;
    routine.run(0..1)?;
    routine.output_all("h")
}

/// An error for a method that needs a problem of another kind.
pub(super) fn not_applicable<T>(method: &'static str, reason: &str) -> Result<T> {
    Err(Error::NotApplicable { method, reason: reason.into() })
}

/// Arrays of θ's shapes, to copy into.
pub(super) fn buffers(problem: &Problem) -> Vec<Array> {
    let dtype: DType = problem.dtype;
    problem.theta.iter().map(|(_, v)| Array::zeros(&v.shape, dtype)).collect()
}
