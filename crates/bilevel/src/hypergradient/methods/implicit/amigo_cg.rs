//! AmIGO with conjugate gradients: the linear solve starts from the last solution.
//!
//!   θ ← θ − γ·∇θL_T(θ), T times
//!   (H + reg·I)·z = f_θ, by i iterations of conjugate gradients from the last z
//!   h = f_λ − zᵀ·C
//!
//! The residual of a warm start costs one Hessian product more than the iterations.

use crate::hypergradient::parts::combination::{Combination, NamedCombination, Solver};
use crate::hypergradient::parts::implicit::CurvatureProduct;
use crate::hypergradient::parts::solve::REGULARISATION;
use crate::hypergradient::scale::Scale;
use serde::{Deserialize, Serialize};

/// Settings of AmIGO with conjugate gradients.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::AmigoCg;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let (method, inner) = (AmigoCg { iterations: 1, ..AmigoCg::default() }, InnerLoop::new(0.5, 100));
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = method.prepare_in(&session, &inner)?;
/// let h = estimator.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.value[0].item().unwrap() - 2.0).abs() < 1e-12);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AmigoCg {
    /// Added to every eigenvalue of H, at least 0. The default is 0, because any other value biases the hypergradient.
    pub regularisation: f64,
    /// Iterations i, at least 1.
    pub iterations: usize,
    /// The matrix of the linear system: the Hessian (the default), or the Gauss-Newton matrix, which stays positive
    /// semidefinite away from a minimum.
    pub curvature: CurvatureProduct,
}

impl Default for AmigoCg {
    fn default() -> Self {
        AmigoCg { regularisation: REGULARISATION, iterations: 10, curvature: CurvatureProduct::Hessian }
    }
}

impl NamedCombination for AmigoCg {
    const NAME: &'static str = "amigo-cg";

    fn combination(&self) -> Combination {
        let AmigoCg { regularisation, iterations, curvature } = *self;
        let solver = Solver::ConjugateGradients { iterations, regularisation };
        Combination { warm_start: true, curvature, ..Combination::new(solver) }
    }

    fn until_converged(&mut self, scale: &Scale) {
        self.iterations = scale.iterations();
    }
}
