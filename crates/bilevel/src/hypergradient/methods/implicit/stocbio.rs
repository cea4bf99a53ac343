//! stocBiO (Ji, Yang and Liang, "Bilevel optimization: convergence analysis and enhanced design", ICML 2021): a Neumann
//! series with a separate minibatch for every factor.
//!
//!   θ ← θ − γ·∇θL_T(θ), T times
//!   r_0 = f_θ,   r_j = (I − α·H_j)·r_{j−1},   p = α·Σ over j = 0 … i of r_j        H_j with the draw of step T + j
//!   h = f_λ − pᵀ·C                                                               f_λ, f_θ and C with that of step T
//!
//! Factors of independent draws multiply to the product of their means, so p is an unbiased estimate of the truncated
//! series of the whole inner loss. A single draw for all factors, as in [`IftNeumann`](crate::methods::IftNeumann), is
//! not. Without minibatches both are the same. Its bias is the remainder of the series, (I − αH)^(i+1).

use crate::hypergradient::parts::combination::{Combination, NamedCombination, Solver};
use crate::hypergradient::scale::Scale;
use serde::{Deserialize, Serialize};

/// Settings of stocBiO.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::StocBio;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let (method, inner) = (StocBio { alpha: 0.5, terms: 30 }, InnerLoop::new(0.5, 50));
/// let h = method.prepare_in(&session, &inner)?.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.value[0].item()? - 2.0).abs() < 1e-8);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StocBio {
    /// α, above 0; the series converges if α × the largest curvature is below 2.
    pub alpha: f64,
    /// Terms i after the first.
    pub terms: usize,
}

impl Default for StocBio {
    fn default() -> Self {
        StocBio { alpha: 0.1, terms: 10 }
    }
}

impl NamedCombination for StocBio {
    const NAME: &'static str = "stocbio";

    fn combination(&self) -> Combination {
        let StocBio { alpha, terms } = *self;
        Combination::new(Solver::StochasticNeumann { alpha, terms })
    }

    fn fit_curvature(&mut self, curvature: f64) {
        self.alpha = 1.0 / curvature;
    }

    fn until_converged(&mut self, scale: &Scale) {
        (self.alpha, self.terms) = (1.0 / scale.largest_curvature, scale.steps);
    }
}
