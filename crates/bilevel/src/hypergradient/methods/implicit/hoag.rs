//! HOAG (Pedregosa, "Hyperparameter optimization with approximate gradient", ICML 2016): train, and solve, to a tolerance that falls
//! from one hypergradient to the next.
//!
//!   θ ← θ − γ·∇θL_T(θ), until ‖∇θL_T‖ ≤ ε_k
//!   H·q = f_θ by conjugate gradients, until ‖H·q − f_θ‖ ≤ ε_k
//!   h = f_λ − qᵀ·C,        ε_k = ε₁/k², ε₁/k³ or ε₁·0.9ᵏ⁻¹ in the k-th hypergradient, counted from 1
//!
//! θ, q and k are kept. At a fixed λ the error of h is O(ε_k); the published proof requires a finite sum of all ε_k.
//! Training ends after at most T steps and the solve after at most i iterations, which losses with minibatches always
//! reach: then it is [`AmigoCg`](crate::methods::AmigoCg). The published method also chooses its outer step; here the
//! outer optimizer does.

use crate::hypergradient::parts::combination::{Combination, Fall, NamedCombination, Solver, Tolerance};
use crate::hypergradient::parts::solve::REGULARISATION;
use crate::hypergradient::vocabulary::*;

/// Settings of HOAG.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::Hoag;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = Hoag::default().prepare_in(&session, &InnerLoop::new(0.1, 1000))?;
/// let mut state = session.state(Key::from_seed(0))?;
/// for k in 1..20 {
///     let h = estimator.estimate(&mut state, Key::from_seed(0))?;
///     assert!((h.value[0].item()? - 2.0).abs() < 0.2 / (k * k) as f64, "twice the tolerance");
/// }
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hoag {
    /// At most this many iterations i of conjugate gradients, at least 1.
    pub iterations: usize,
    /// The first tolerance ε₁, above 0.
    pub tolerance: f64,
    /// How the tolerance falls.
    pub fall: Fall,
    /// Added to every eigenvalue of H, at least 0. The default is 0, because any other value biases the hypergradient.
    pub regularisation: f64,
}

impl Default for Hoag {
    fn default() -> Self {
        Hoag { iterations: 100, tolerance: 0.1, fall: Fall::Quadratic, regularisation: REGULARISATION }
    }
}

impl NamedCombination for Hoag {
    const NAME: &'static str = "hoag";

    fn combination(&self) -> Combination {
        let Hoag { iterations, tolerance, fall, regularisation } = *self;
        let solver = Solver::ConjugateGradients { iterations, regularisation };
        let tolerance = Some(Tolerance { first: tolerance, fall });
        Combination { warm_start: true, tolerance, ..Combination::new(solver) }
    }

    fn published_loop(&self) -> InnerLoop {
        InnerLoop::new(0.01, 1000)
    }

    fn until_converged(&mut self, scale: &Scale) {
        (self.iterations, self.tolerance) = (scale.iterations(), Scale::TOLERANCE);
    }
}
