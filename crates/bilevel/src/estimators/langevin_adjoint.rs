//! The Langevin adjoint: an estimator that is right at finite temperature, in the memory of HPO-SGLD.
//!
//!   z ← z + γ·(f_θ(θᵐ) − H(θᵐ)·z)
//!   h = mean over kept m of \[f_λ(θᵐ) − zᵀ·C(θᵐ)\]      (z before it is advanced)
//!
//! A stationary Langevin chain is reversible in time, so the pathwise adjoint run forward has the expectation of the one run
//! backward, up to O(γ). One reverse pass over ⟨∇θL_T, z⟩ gives H·z and zᵀ·C together. Dropping −γ·H·z gives back
//! essentially the recursion of HPO-SGLD.

use super::inner_loop::outer_gradient;
use crate::error::require;
use crate::estimator::{Estimator, Hypergradient, Method, Oracles, State, finite, zeros_like};
use crate::problem::Problem;
use crate::trace::{Routine, Trace, or_zeros};
use crate::{Error, Result};
use bilevel_graph::{Executor, Graph, Program, gradient, vjp};
use serde::{Deserialize, Serialize};

/// Settings of the Langevin adjoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LangevinAdjoint {
    /// Steps before any is kept, B.
    pub burn_in: usize,
    /// Steps kept, M; at least 1.
    pub samples: usize,
    /// Inner step γ, above 0.
    pub step: f64,
    /// Temperature τ, at least 0.
    pub temperature: f64,
    /// Noise scale κ, at least 0.
    pub noise_scale: f64,
    /// Keep z from one hypergradient to the next (the default), or start it at 0.
    pub warm: bool,
    /// Take f_θ at every step (the default), or once, at the first θ.
    pub outer_every_step: bool,
}

impl Default for LangevinAdjoint {
    fn default() -> Self {
        LangevinAdjoint {
            burn_in: 0,
            samples: 100,
            step: 0.01,
            temperature: 1e-6,
            noise_scale: 1.0,
            warm: true,
            outer_every_step: true,
        }
    }
}

struct Prepared {
    settings: LangevinAdjoint,
    problem: Problem,
    chain: Routine,
    /// f_θ and f_λ at the first θ, where they are taken once.
    outer: Option<Routine>,
}

impl Method for LangevinAdjoint {
    fn name(&self) -> &'static str {
        "langevin-adjoint"
    }

    fn prepare(&self, problem: &Problem, executor: &dyn Executor) -> Result<Box<dyn Estimator>> {
        require(self.samples > 0, "samples", self.samples as f64, "at least 1")?;
        require(self.step > 0.0 && self.step.is_finite(), "step", self.step, "above 0")?;
        require(
            self.temperature >= 0.0 && self.temperature.is_finite(),
            "temperature",
            self.temperature,
            "at least 0",
        )?;
        require(
            self.noise_scale >= 0.0 && self.noise_scale.is_finite(),
            "noise_scale",
            self.noise_scale,
            "at least 0",
        )?;
        if problem.starts_from_lambda() {
            let reason =
                "it assumes that θ⁰ does not depend on λ; use rmd, which differentiates through the start".into();
            return Err(Error::NotApplicable { method: self.name(), reason });
        }
        let outer = if self.outer_every_step { None } else { Some(outer_gradient(problem, executor)?) };
        let chain = chain_program(self, problem, executor)?;
        Ok(Box::new(Prepared { settings: *self, problem: problem.clone(), chain, outer }))
    }
}

fn chain_program(settings: &LangevinAdjoint, problem: &Problem, executor: &dyn Executor) -> Result<Routine> {
    let LangevinAdjoint { burn_in, samples, step: gamma, temperature, noise_scale, .. } = *settings;
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let (lambda, theta, step) = (&trace.lambda, &trace.theta, graph.step());
    let z = trace.inputs_like("z", theta);
    let h = trace.inputs_like("h", lambda);
    let inner = trace.inner(theta, step)?;
    let slope = or_zeros(gradient(inner, theta)?, theta);
    // One reverse pass over ⟨∇θL_T, z⟩: H·z by θ and zᵀ·C by λ.
    let both = [&lambda[..], theta].concat();
    let products = or_zeros(vjp(&slope, &z, &both)?, &both);
    let (mixed, hessian) = products.split_at(lambda.len());
    let mut builder = Program::builder(&graph).output("inner", inner);
    let (direct, f_theta) = if settings.outer_every_step {
        let outer = trace.outer(theta, step)?;
        let by = or_zeros(gradient(outer, &both)?, &both);
        builder = builder.output("outer", outer);
        let (direct, f_theta) = by.split_at(lambda.len());
        (direct.to_vec(), f_theta.to_vec())
    } else {
        (trace.inputs_like("direct", lambda), trace.inputs_like("f_theta", theta))
    };
    let noise = trace.noise(step);
    let scale = noise_scale * (2.0 * temperature * gamma).sqrt();
    let kept = step.greater_equal(burn_in as f64).convert(problem.dtype) * (1.0 / samples as f64);
    for i in 0..theta.len() {
        builder = builder
            .carry(theta[i], theta[i] - slope[i] * gamma + noise[i] * scale)
            .carry(z[i], z[i] + (f_theta[i] - hessian[i]) * gamma);
    }
    for i in 0..lambda.len() {
        builder = builder.carry(h[i], h[i] + (direct[i] - mixed[i]) * kept);
    }
    Routine::new(&builder.build()?, problem, executor)
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: [i32; 2]) -> Result<Hypergradient> {
        let problem = &self.problem;
        let chain = &mut self.chain;
        let mut outer_loss = f64::NAN;
        if let Some(outer) = &mut self.outer {
            outer.set_point(problem, &state.lambda, &state.theta)?;
            outer.set_key(key)?;
            outer.run(0..1)?;
            outer_loss = outer.number("outer")?;
            chain.set_all("direct", &outer.output_all("direct", state.lambda.len())?)?;
            chain.set_all("f_theta", &outer.output_all("f_theta", state.theta.len())?)?;
        }
        let z = if self.settings.warm { state.warm() } else { zeros_like(&state.theta) };
        let zeros = zeros_like(&state.lambda);
        chain.set_point(problem, &state.lambda, &state.theta)?;
        chain.set_key(key)?;
        chain.set_all("z", &z)?;
        chain.set_all("h", &zeros)?;
        let steps = self.settings.burn_in + self.settings.samples;
        chain.run(0..steps as u32)?;
        let value = chain.carried_all("h", zeros.len())?;
        let z = chain.carried_all("z", state.theta.len())?;
        let advice =
            "the adjoint grows when step × curvature exceeds 2, or the outer step is too large for a warm adjoint";
        finite("langevin-adjoint", "the adjoint or the hypergradient", &[&value[..], &z].concat(), advice)?;
        state.theta = chain.theta(problem)?;
        state.memory = z;
        if self.outer.is_none() {
            outer_loss = chain.number("outer")?;
        }
        let steps = steps as u64;
        let oracles = Oracles {
            inner_gradients: steps,
            outer_gradients: if self.outer.is_some() { 1 } else { steps },
            hessian_products: steps,
            mixed_products: steps,
            losses: 0,
        };
        Ok(Hypergradient { value, standard_error: None, inner_loss: chain.number("inner")?, outer_loss, oracles })
    }
}
