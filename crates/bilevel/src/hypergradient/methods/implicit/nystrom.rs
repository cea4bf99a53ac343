//! Implicit differentiation with a Nyström approximation of the Hessian (Hataya and Yamada, "Nyström method for accurate and
//! scalable implicit differentiation", AISTATS 2023).
//!
//!   θ ← θ − γ·∇θL_T(θ), T times
//!   H ≈ H_K = H\[:,K\]·H\[K,K\]⁺·H\[K,:\]        from k columns of H, drawn again for every hypergradient
//!   (H_K + ρI)·q = f_θ:   q = f_θ/ρ − H\[:,K\]·(ρ²·H\[K,K\] + ρ·H\[K,:\]·H\[:,K\])⁻¹·H\[K,:\]·f_θ
//!   h = f_λ − qᵀ·C
//!
//! The k × k system is solved on the host in 64-bit floats, with full pivoting; directions in which it is singular are left out. With
//! all columns it is (H + ρI)⁻¹, exactly. With fewer it is biased by the part of H that they miss, which ρ replaces,
//! and which is small if H has few large eigenvalues. Unlike an iteration, it cannot diverge.

use crate::hypergradient::parts::combination::{Combination, NamedCombination, Solver};
use crate::hypergradient::vocabulary::*;

/// Settings of implicit differentiation with a Nyström approximation.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::Nystrom;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ²: with ρ added to a curvature of 1, the hypergradient is λ/(1 + ρ).
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let (method, inner) = (Nystrom { columns: 1, regularisation: 0.25 }, InnerLoop::new(0.5, 100));
/// let h = method.prepare_in(&session, &inner)?.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.value[0].item()? - 1.6).abs() < 1e-12);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Nystrom {
    /// Columns k of the Hessian, at least 1; all of them if θ has fewer elements.
    pub columns: usize,
    /// ρ, added to every eigenvalue, above 0.
    pub regularisation: f64,
}

impl Default for Nystrom {
    fn default() -> Self {
        Nystrom { columns: 10, regularisation: 0.01 }
    }
}

impl NamedCombination for Nystrom {
    const NAME: &'static str = "nystrom";

    fn combination(&self) -> Combination {
        let Nystrom { columns, regularisation } = *self;
        Combination::new(Solver::Nystrom { columns, regularisation })
    }

    fn until_converged(&mut self, scale: &Scale) {
        if scale.parameters <= FEW_PARAMETERS {
            self.columns = scale.parameters;
            self.regularisation = Scale::SMALL * scale.smallest_curvature;
        }
    }
}
