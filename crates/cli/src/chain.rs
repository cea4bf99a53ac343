//! One outer iteration as one program: a Langevin chain on the inner loss, whose loop also adds up the hypergradient.
//!
//!   θ ← θ − γ·∇θL + √(2τγ)·ξ
//!
//! The number of the loop step says whether the burn-in is over; carried inputs keep their values from one call to the
//! next, so the chain (and the adjoint) go on where they stood.

use bilevel_graph::{DType, Graph, Program, Result, Tensor, gradient_or_zeros, mixed_vector, nn};

/// Constants of the chain.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// Inner step γ.
    pub step: f64,
    /// Temperature τ.
    pub temperature: f64,
    /// Steps B before the first that counts.
    pub burn_in: usize,
    /// Steps M that count.
    pub samples: usize,
}

/// A loss of (λ, θ).
pub type Loss = fn(Tensor, Tensor) -> Tensor;

/// How the hypergradient is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// g ← g − γ·f_θ(θ⁺)·C(θ), h = mean of f_λ(θ⁺) + g, with θ⁺ the point after the step: HPO-SGLD as printed.
    PrintedRecursion,
    /// h = mean of f_λ(θ) − z·C(θ), then z ← z + γ·(f_θ(θ) − H(θ)·z): the Langevin adjoint.
    Adjoint,
}

impl Method {
    /// The name of the carried input beside θ and h.
    pub fn memory(self) -> &'static str {
        if self == Method::Adjoint { "z" } else { "g" }
    }

    /// True where that input starts from zero at each outer iteration.
    pub fn starts_over(self) -> bool {
        self == Method::PrintedRecursion
    }
}

/// The program; its inputs are `lambda`, `theta`, `key`, `h` and the method's memory, all scalars but the key.
pub fn program(method: Method, chain: &Chain, inner: Loss, outer: Loss) -> Result<Program> {
    let graph = Graph::new();
    let [lambda, theta, h, memory] =
        ["lambda", "theta", "h", method.memory()].map(|name| graph.input(name, [], DType::F64));
    let key = graph.input("key", [2], DType::I32);
    let loss = inner(lambda, theta);
    let slope = gradient_or_zeros(loss, &[theta])?[0];
    let noise = nn::normal(key, graph.step(), graph.fresh_stream(), [], DType::F64);
    let next = theta - slope * chain.step + noise * (2.0 * chain.temperature * chain.step).sqrt();
    let kept = graph.step().greater_equal(chain.burn_in as f64).convert(DType::F64) / chain.samples as f64;

    let zero = lambda.zeros_like();
    let (term, memory_next) = match method {
        Method::PrintedRecursion => {
            // The new θ counts as a variable of its own here, so the first is the partial derivative f_λ.
            let f = gradient_or_zeros(outer(lambda, next), &[lambda, next])?;
            let mixed = mixed_vector(loss, &[theta], &[f[1]], &[lambda])?[0].unwrap_or(zero);
            let g = memory - mixed * chain.step;
            (f[0] + g, g)
        }
        Method::Adjoint => {
            let f = gradient_or_zeros(outer(lambda, theta), &[lambda, theta])?;
            // One reverse pass over ⟨∇θL, z⟩ gives both products.
            let products = mixed_vector(loss, &[theta], &[memory], &[theta, lambda])?;
            let (hessian, mixed) = (products[0].unwrap_or(zero), products[1].unwrap_or(zero));
            (f[0] - mixed, memory + (f[1] - hessian) * chain.step)
        }
    };
    Program::builder(&graph)
        .carry(theta, next)
        .carry(memory, memory_next)
        .carry(h, h + term * kept)
        .keep_input(lambda)
        .build()
}
