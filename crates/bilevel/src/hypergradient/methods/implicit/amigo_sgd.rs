//! AmIGO with gradient steps: the linear system continues from the last hypergradient's solution.
//!
//!   θ ← θ − γ·∇θL_T(θ), T times
//!   z ← z − β·(H·z − f_θ), i times, from the last z
//!   h = f_λ − zᵀ·C

use crate::hypergradient::parts::combination::{Combination, NamedCombination, Solver};
use crate::hypergradient::parts::implicit::CurvatureProduct;
use crate::hypergradient::scale::Scale;
use serde::{Deserialize, Serialize};

/// Settings of AmIGO with gradient steps.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::AmigoSgd;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let (method, inner) = (AmigoSgd { beta: 0.5, iterations: 10, ..AmigoSgd::default() }, InnerLoop::new(0.5, 100));
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = method.prepare_in(&session, &inner)?;
/// let mut state = session.state(Key::from_seed(0))?;
/// let errors = [0, 1].map(|_| {
///     let h = estimator.estimate(&mut state, Key::from_seed(0)).unwrap();
///     (h.value[0].item().unwrap() - 2.0).abs()
/// });
/// assert!(errors[0] < 1e-2 && errors[1] < 1e-5, "{errors:?}");
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AmigoSgd {
    /// Step β on z, above 0; β × the largest curvature must be below 2.
    pub beta: f64,
    /// Steps i on z, at least 1.
    pub iterations: usize,
    /// The matrix of the linear system: the Hessian (the default), or the Gauss-Newton matrix, which stays positive
    /// semidefinite away from a minimum.
    pub curvature: CurvatureProduct,
}

impl Default for AmigoSgd {
    fn default() -> Self {
        AmigoSgd { beta: 0.01, iterations: 10, curvature: CurvatureProduct::Hessian }
    }
}

impl NamedCombination for AmigoSgd {
    const NAME: &'static str = "amigo-sgd";

    fn combination(&self) -> Combination {
        let AmigoSgd { beta, iterations, curvature } = *self;
        Combination { warm_start: true, curvature, ..Combination::new(Solver::Richardson { beta, iterations }) }
    }

    fn fit_curvature(&mut self, curvature: f64) {
        self.beta = 1.0 / curvature;
    }

    fn until_converged(&mut self, scale: &Scale) {
        (self.beta, self.iterations) = (1.0 / scale.largest_curvature, scale.steps);
    }
}
