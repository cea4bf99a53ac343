//! Implicit differentiation with a truncated Neumann series for the inverse Hessian.
//!
//!   θ ← θ − γ·∇θL_T(θ), T times
//!   p = α·Σ over j = 0 … i of (I − αH)ʲ·f_θ
//!   h = f_λ − pᵀ·C
//!
//! The sum is run as p ← f_θ + (I − αH)·p, one Hessian product for each term after the first.

use crate::hypergradient::parts::combination::{Combination, NamedCombination, Solver};
use crate::hypergradient::parts::implicit::CurvatureProduct;
use crate::hypergradient::scale::Scale;
use serde::{Deserialize, Serialize};

/// Settings of implicit differentiation with a Neumann series.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::IftNeumann;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let (method, inner) = (IftNeumann { alpha: 0.5, terms: 30, ..IftNeumann::default() }, InnerLoop::new(0.5, 100));
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = method.prepare_in(&session, &inner)?;
/// let h = estimator.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.value[0].item().unwrap() - 2.0).abs() < 1e-8);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IftNeumann {
    /// α, above 0; the series converges if α × the largest curvature is below 2.
    pub alpha: f64,
    /// Terms i after the first.
    pub terms: usize,
    /// Multiply the sum by α, as the inverse needs (the default); without it the sum is as in the paper's tables.
    pub final_alpha: bool,
    /// The matrix of the linear system: the Hessian (the default), or the Gauss-Newton matrix, which stays positive
    /// semidefinite away from a minimum.
    pub curvature: CurvatureProduct,
}

impl Default for IftNeumann {
    fn default() -> Self {
        IftNeumann { alpha: 0.1, terms: 10, final_alpha: true, curvature: CurvatureProduct::Hessian }
    }
}

impl NamedCombination for IftNeumann {
    const NAME: &'static str = "ift-neumann";

    fn combination(&self) -> Combination {
        let IftNeumann { alpha, terms, final_alpha, curvature } = *self;
        Combination { curvature, ..Combination::new(Solver::Neumann { alpha, terms, final_alpha }) }
    }

    fn fit_curvature(&mut self, curvature: f64) {
        self.alpha = 1.0 / curvature;
    }

    fn until_converged(&mut self, scale: &Scale) {
        (self.alpha, self.terms) = (1.0 / scale.largest_curvature, scale.steps);
    }
}
