//! Implicit MAML: λ is the start of the inner loop, and the centre of a proximal term.
//!
//!   θ⁰ = λ,  θ ← θ − γ·\[∇θL_T(θ) + ρ·(θ − λ)\], T times
//!   (I + H/ρ)·g = f_θ, by i iterations of conjugate gradients from 0
//!   h = f_λ + g − gᵀ·C/ρ
//!
//! H and C belong to the user's inner loss, without the proximal term. The last term appears only if that loss itself
//! depends on λ, which it usually does not. If several tasks train side by side, each from a copy of λ and held near
//! it, g is the sum over the tasks: one solve for all of them.

use crate::hypergradient::parts::combination::{Combination, NamedCombination, Solver};
use crate::hypergradient::parts::implicit::CurvatureProduct;
use crate::hypergradient::parts::solve::REGULARISATION;
use crate::hypergradient::scale::Scale;
use serde::{Deserialize, Serialize};

/// Settings of implicit MAML.
///
/// It applies if θ⁰ is λ, or copies of λ for parallel tasks. The inner loop always starts at λ and ignores the state's
/// θ; the reported inner loss excludes the proximal term.
///
/// ```
/// use bilevel::methods::Imaml;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // The minimum of ½(θ−3)² + ½(θ−λ)² is θ = (3+λ)/2, and f = ½θ²: the hypergradient is θ/2.
/// let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, _, t| (t.0 - 3.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .start(|_, l| Leaf(l.0))
///     .build()?;
/// let (method, inner) = (Imaml { rho: 1.0, ..Imaml::default() }, InnerLoop::new(0.3, 100));
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = method.prepare_in(&session, &inner)?;
/// let h = estimator.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.value[0].item().unwrap() - 1.0).abs() < 1e-12);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Imaml {
    /// Strength ρ of the proximal term, above 0.
    pub rho: f64,
    /// Iterations i of conjugate gradients, at least 1.
    pub iterations: usize,
    /// The matrix of the linear system: the Hessian (the default), or the Gauss-Newton matrix, which stays positive
    /// semidefinite away from a minimum.
    pub curvature: CurvatureProduct,
}

impl Default for Imaml {
    fn default() -> Self {
        Imaml { rho: 1.0, iterations: 5, curvature: CurvatureProduct::Hessian }
    }
}

impl NamedCombination for Imaml {
    const NAME: &'static str = "imaml";

    fn combination(&self) -> Combination {
        let Imaml { rho, iterations, curvature } = *self;
        let solver = Solver::ConjugateGradients { iterations, regularisation: REGULARISATION };
        Combination { proximal: Some(rho), curvature, ..Combination::new(solver) }
    }

    fn until_converged(&mut self, scale: &Scale) {
        (self.iterations, self.rho) = (scale.iterations(), scale.proximal.unwrap_or(1.0));
    }
}
