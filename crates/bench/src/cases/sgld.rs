//! The chain of one outer iteration of HPO-SGLD as one program, for the cases synth1d, digits and wide.
//!
//! θ ← θ − γ∇θL_T + √(2τγ)·ξ;  g ← g − γ·f_θ(θ)·C;  after the burn-in, h ← h + (f_λ + g)/M.
//!
//! No g is stored: the term that a step subtracts is in the sum of every later sample. So h includes it at once, w =
//! min(M, B+M−m)/M times in step number m.

use crate::error::Result;
use bilevel_graph::{DType, Graph, Program, RandomKind, Tensor, gradient_or_zeros, mixed_vector};

/// Constants of the chain.
pub struct Chain {
    /// Inner step γ.
    pub gamma: f64,
    /// Temperature τ.
    pub tau: f64,
    /// Burn-in steps B.
    pub burn_in: usize,
    /// Kept steps M.
    pub samples: usize,
}

/// The program whose loop runs the chain; `lambda`, `theta`, `key` are inputs, `h` a carried accumulator.
pub fn hypergradient(
    graph: &Graph,
    chain: &Chain,
    (lambda, theta): (Tensor, Tensor),
    inner: impl Fn(Tensor, Tensor) -> Tensor,
    outer: impl Fn(Tensor, Tensor) -> Tensor,
) -> Result<Program> {
    let (shape, dtype) = (theta.shape(), theta.dtype());
    let key = graph.input("key", [2], DType::I32);
    let h = graph.input("h", lambda.shape(), dtype);
    let step = graph.step();
    let slope = gradient_or_zeros(inner(lambda, theta), &[theta])?[0];
    let noise = key.random(step, RandomKind::Normal, graph.fresh_stream(), &shape, dtype);
    let next = theta - slope * chain.gamma + noise * (2.0 * chain.tau * chain.gamma).sqrt();
    // The new θ counts as an independent variable here, so the first is the partial derivative f_λ.
    let by = gradient_or_zeros(outer(lambda, next), &[lambda, next])?;
    let (direct, f_theta) = (by[0], by[1]);
    let mixed = mixed_vector(inner(lambda, theta), &[theta], &[f_theta], &[lambda])?[0].unwrap_or(h.zeros_like());
    let (steps, share) = ((chain.burn_in + chain.samples) as f64, 1.0 / chain.samples as f64);
    let weight = (steps - step).minimum(chain.samples as f64).convert(dtype) * (share * chain.gamma);
    let kept = step.greater_equal(chain.burn_in as f64).convert(dtype) * share;
    let h_next = h + direct * kept - mixed * weight;
    Ok(Program::builder(graph).carry(theta, next).carry(h, h_next).keep_input(lambda).build()?)
}
