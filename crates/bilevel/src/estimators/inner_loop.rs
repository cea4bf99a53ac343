//! The plain inner loop that the unrolled estimators share:
//!
//!   θᵗ⁺¹ = θᵗ − γ·∇θL_T(λ, θᵗ) + κ·√(2τγ)·ξᵗ,   t = 0 … T−1,
//!
//! from θ⁰ = `state.theta`, or from θ⁰(λ) where the problem says so. Step t draws with counter t, so any stretch of the
//! loop can be run again alone and sees the same minibatches and noise; f is taken at θᵀ with counter T.

use crate::error::require;
use crate::problem::Problem;
use crate::trace::{Routine, Trace, or_zeros};
use crate::{Error, Result};
use bilevel_graph::{Array, DType, Executor, Graph, Program, Runnable, Tensor, gradient};
use std::ops::Range;

/// Settings of the loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct InnerLoop {
    pub step: f64,
    pub steps: usize,
    pub temperature: f64,
    pub noise_scale: f64,
}

impl InnerLoop {
    /// Refuses settings out of range.
    pub fn check(&self) -> Result<()> {
        let InnerLoop { step, steps, temperature, noise_scale } = *self;
        let most = i32::MAX as usize - 1;
        require((1..=most).contains(&steps), "steps", steps as f64, "at least 1 and below 2³¹ − 1")?;
        require(step > 0.0 && step.is_finite(), "step", step, "above 0")?;
        require(temperature >= 0.0 && temperature.is_finite(), "temperature", temperature, "at least 0")?;
        require(noise_scale >= 0.0 && noise_scale.is_finite(), "noise_scale", noise_scale, "at least 0")
    }

    /// The counter of the outer loss, as steps of a program that runs once.
    pub fn last(&self) -> Range<u32> {
        self.steps as u32..self.steps as u32 + 1
    }

    /// θ of the next step, from ∇θL_T.
    pub fn next(&self, trace: &Trace, slope: &[Tensor], counter: Tensor) -> Vec<Tensor> {
        let scale = self.noise_scale * (2.0 * self.temperature * self.step).sqrt();
        let down = trace.theta.iter().zip(slope).map(|(t, s)| *t - *s * self.step);
        if scale == 0.0 {
            return down.collect();
        }
        down.zip(trace.noise(counter)).map(|(t, n)| t + n * scale).collect()
    }

    /// A program that makes a step each time it runs, and shows L_T at the θ it started from as `inner`.
    pub fn walk(&self, problem: &Problem, executor: &dyn Executor) -> Result<Walk> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, problem)?;
        let loss = trace.inner(&trace.theta, graph.step())?;
        let slope = or_zeros(gradient(loss, &trace.theta)?, &trace.theta);
        let mut builder = Program::builder(&graph).output("inner", loss);
        for (&theta, next) in trace.theta.iter().zip(self.next(&trace, &slope, graph.step())) {
            builder = builder.carry(theta, next);
        }
        Walk::new(&builder.build()?, problem, executor)
    }

    /// What is printed when θ or the hypergradient is no longer finite.
    pub const ADVICE: &str =
        "the inner loop blows up when step × curvature of the inner loss exceeds 2: take a smaller step";
}

/// A compiled program whose θ is set and read without allocating.
pub(super) struct Walk {
    run: Box<dyn Runnable>,
    theta: Vec<usize>,
    lambda: Vec<Option<usize>>,
    key: Option<usize>,
}

impl Walk {
    /// The program must have every leaf of θ as an input.
    pub fn new(program: &Program, problem: &Problem, executor: &dyn Executor) -> Result<Self> {
        let mut run = executor.compile(program)?;
        for (name, array) in &problem.data {
            if let Ok(input) = program.input(&format!("data.{name}")) {
                run.set(input, array)?;
            }
        }
        let theta = problem.theta.iter().map(|(name, _)| program.input(&format!("theta.{name}")));
        let lambda = problem.lambda.iter().map(|(name, _)| program.input(&format!("lambda.{name}")).ok());
        Ok(Walk {
            theta: theta.collect::<bilevel_graph::Result<_>>()?,
            lambda: lambda.collect(),
            key: program.input("key").ok(),
            run,
        })
    }

    pub fn set_lambda(&mut self, lambda: &[Array], key: [i32; 2]) -> Result<()> {
        for (input, value) in self.lambda.iter().zip(lambda) {
            if let Some(input) = input {
                self.run.set(*input, value)?;
            }
        }
        if let Some(input) = self.key {
            self.run.set(input, &Array::from_i32([2], key.to_vec())?)?;
        }
        Ok(())
    }

    pub fn set_theta(&mut self, theta: &[Array]) -> Result<()> {
        for (input, value) in self.theta.iter().zip(theta) {
            self.run.set(*input, value)?;
        }
        Ok(())
    }

    /// Sets inputs named `prefix.0`, `prefix.1`, …
    pub fn set_all(&mut self, prefix: &str, values: &[Array]) -> Result<()> {
        for (i, value) in values.iter().enumerate() {
            if let Ok(input) = self.run.program().input(&format!("{prefix}.{i}")) {
                self.run.set(input, value)?;
            }
        }
        Ok(())
    }

    pub fn run(&mut self, steps: Range<u32>) -> Result<()> {
        Ok(self.run.run(steps)?)
    }

    /// Copies θ into arrays of its shapes.
    pub fn read_theta(&self, into: &mut [Array]) -> Result<()> {
        for (input, array) in self.theta.iter().zip(into) {
            self.run.read_input(*input, array)?;
        }
        Ok(())
    }

    pub fn theta(&self) -> Result<Vec<Array>> {
        self.theta.iter().map(|input| Ok(self.run.input(*input)?)).collect()
    }

    /// Carried inputs named `prefix.0`, `prefix.1`, …
    pub fn carried_all(&self, prefix: &str, count: usize) -> Result<Vec<Array>> {
        (0..count).map(|i| Ok(self.run.input(self.run.program().input(&format!("{prefix}.{i}"))?)?)).collect()
    }

    /// A scalar output of the last step.
    pub fn number(&self, name: &str) -> Result<f64> {
        let output = self.run.program().output(name)?;
        Ok(self.run.output(output)?.item().unwrap_or(f64::NAN))
    }
}

/// θ⁰(λ), where the problem says so.
pub(super) struct Start(Option<Routine>);

impl Start {
    pub fn new(problem: &Problem, executor: &dyn Executor) -> Result<Self> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, problem)?;
        let Some(start) = trace.start()? else { return Ok(Start(None)) };
        let mut builder = Program::builder(&graph);
        for (i, theta) in start.into_iter().enumerate() {
            builder = builder.output(format!("theta.{i}"), theta);
        }
        Ok(Start(Some(Routine::new(&builder.build()?, problem, executor)?)))
    }

    /// Where the inner loop starts, given the θ of the state.
    pub fn theta(&mut self, problem: &Problem, lambda: &[Array], theta: &[Array], key: [i32; 2]) -> Result<Vec<Array>> {
        let Some(routine) = &mut self.0 else { return Ok(theta.to_vec()) };
        routine.set_point(problem, lambda, &[])?;
        routine.set_key(key)?;
        routine.run(0..1)?;
        routine.output_all("theta", theta.len())
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
    for (i, (h, change)) in h.into_iter().zip(trace.through_start(&v)?).enumerate() {
        builder = builder.output(format!("h.{i}"), h + change);
    }
    Ok(Some(Routine::new(&builder.build()?, problem, executor)?))
}

/// Adds vᵀ·J0 to h with the routine above.
pub(super) fn add_through_start(
    routine: &mut Routine,
    problem: &Problem,
    (lambda, key): (&[Array], [i32; 2]),
    h: &[Array],
    v: &[Array],
) -> Result<Vec<Array>> {
    routine.set_point(problem, lambda, &[])?;
    routine.set_key(key)?;
    routine.set_all("h", h)?;
    routine.set_all("v", v)?;
    routine.run(0..1)?;
    routine.output_all("h", h.len())
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
