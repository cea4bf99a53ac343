//! HPO-SGLD (Kim and Hospedales, Algorithm 1), exactly as printed.
//!
//!   θᵐ = θᵐ⁻¹ − γ·∇θL_T(θᵐ⁻¹) + κ·√(2τγ)·ξ
//!   g₀ = f_θ(θ⁰)·J0
//!   gₘ = gₘ₋₁ − γ·f_θ(θᵐ)·\[C(θᵐ⁻¹) + H(θᵐ⁻¹)·J0\] + (θᵐ − θᵐ⁻¹)·f_θθ(θᵐ⁻¹)·J0
//!   h  = (1/M)·Σ over m = B+1 … B+M of \[f_λ(θᵐ) + gₘ\]
//!
//! The recursion drops the contraction −γ·H·dθ/dλ, so it is not consistent: see [`LangevinAdjoint`](crate::LangevinAdjoint)
//! for one that is.

use crate::Result;
use crate::error::require;
use crate::estimator::{Estimator, Hypergradient, Method, Oracles, State, finite, zeros_like};
use crate::problem::Problem;
use crate::trace::{Routine, Trace, or_zeros};
use bilevel_graph::{Executor, Graph, Program, gradient, hessian_vector, mixed_vector};
use serde::{Deserialize, Serialize};

/// Settings of HPO-SGLD.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HpoSgld {
    /// Steps before any is kept, B.
    pub burn_in: usize,
    /// Steps kept, M; at least 1.
    pub samples: usize,
    /// Inner step γ, above 0.
    pub step: f64,
    /// Temperature τ, at least 0.
    pub temperature: f64,
    /// Noise scale κ, at least 0; 0 is the deterministic counterpart.
    pub noise_scale: f64,
}

impl Default for HpoSgld {
    fn default() -> Self {
        HpoSgld { burn_in: 50, samples: 50, step: 0.01, temperature: 1e-6, noise_scale: 1.0 }
    }
}

struct Prepared {
    settings: HpoSgld,
    problem: Problem,
    chain: Routine,
    /// g₀ where θ⁰ depends on λ.
    start: Option<Routine>,
}

impl Method for HpoSgld {
    fn name(&self) -> &'static str {
        "hpo-sgld"
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
        let start = if problem.starts_from_lambda() { Some(start_program(problem, executor)?) } else { None };
        let chain = chain_program(self, problem, executor)?;
        Ok(Box::new(Prepared { settings: *self, problem: problem.clone(), chain, start }))
    }
}

/// g₀ = f_θ(θ⁰)·J0.
fn start_program(problem: &Problem, executor: &dyn Executor) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let loss = trace.outer(&trace.theta, graph.step())?;
    let f_theta = or_zeros(gradient(loss, &trace.theta)?, &trace.theta);
    let mut builder = Program::builder(&graph);
    for (i, g) in trace.through_start(&f_theta)?.into_iter().enumerate() {
        builder = builder.output(format!("g.{i}"), g);
    }
    Routine::new(&builder.build()?, problem, executor)
}

fn chain_program(settings: &HpoSgld, problem: &Problem, executor: &dyn Executor) -> Result<Routine> {
    let HpoSgld { burn_in, samples, step: gamma, temperature, noise_scale } = *settings;
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let (lambda, theta, step) = (&trace.lambda, &trace.theta, graph.step());
    let inner = trace.inner(theta, step)?;
    let slope = or_zeros(gradient(inner, theta)?, theta);
    let noise = trace.noise(step);
    let scale = noise_scale * (2.0 * temperature * gamma).sqrt();
    let next: Vec<_> = (0..theta.len()).map(|i| theta[i] - slope[i] * gamma + noise[i] * scale).collect();

    // θᵐ counts as a variable of its own, so f_λ is the partial derivative.
    let outer = trace.outer(&next, step)?;
    let both = [&lambda[..], &next].concat();
    let by = or_zeros(gradient(outer, &both)?, &both);
    let (direct, f_theta) = by.split_at(lambda.len());
    let mut change = or_zeros(mixed_vector(inner, theta, f_theta, lambda)?, lambda);
    if problem.starts_from_lambda() {
        let hessian = or_zeros(hessian_vector(inner, theta, f_theta)?, theta);
        let moved: Vec<_> = next.iter().zip(theta).map(|(n, t)| *n - *t).collect();
        let bend = or_zeros(hessian_vector(trace.outer(theta, step)?, theta, &moved)?, theta);
        // −γ·(f_θ·H) + Δθ·f_θθ, both through J0.
        let through: Vec<_> = hessian.iter().zip(&bend).map(|(h, b)| *h - *b * (1.0 / gamma)).collect();
        change = change.iter().zip(trace.through_start(&through)?).map(|(c, s)| *c + s).collect();
    }
    let g = trace.inputs_like("g", lambda);
    let h = trace.inputs_like("h", lambda);
    let kept = step.greater_equal(burn_in as f64).convert(problem.dtype) * (1.0 / samples as f64);
    let mut builder = Program::builder(&graph).output("inner", inner).output("outer", outer);
    for i in 0..theta.len() {
        builder = builder.carry(theta[i], next[i]);
    }
    for i in 0..lambda.len() {
        let g_next = g[i] - change[i] * gamma;
        builder = builder.carry(g[i], g_next).carry(h[i], h[i] + (direct[i] + g_next) * kept);
    }
    Routine::new(&builder.build()?, problem, executor)
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: [i32; 2]) -> Result<Hypergradient> {
        let problem = &self.problem;
        let zeros = zeros_like(&state.lambda);
        let g = match &mut self.start {
            Some(start) => {
                start.set_point(problem, &state.lambda, &state.theta)?;
                start.set_key(key)?;
                start.run(0..1)?;
                start.output_all("g", zeros.len())?
            }
            None => zeros.clone(),
        };
        let chain = &mut self.chain;
        chain.set_point(problem, &state.lambda, &state.theta)?;
        chain.set_key(key)?;
        chain.set_all("g", &g)?;
        chain.set_all("h", &zeros)?;
        let steps = self.settings.burn_in + self.settings.samples;
        chain.run(0..steps as u32)?;
        let value = chain.carried_all("h", zeros.len())?;
        finite("hpo-sgld", "the hypergradient", &value, "take a smaller inner step")?;
        state.theta = chain.theta(problem)?;
        let (steps, from_lambda) = (steps as u64, self.start.is_some() as u64);
        let oracles = Oracles {
            inner_gradients: steps,
            outer_gradients: steps + from_lambda,
            hessian_products: 2 * steps * from_lambda,
            mixed_products: steps,
            losses: 0,
        };
        Ok(Hypergradient {
            value,
            standard_error: None,
            inner_loss: chain.number("inner")?,
            outer_loss: chain.number("outer")?,
            oracles,
        })
    }
}
