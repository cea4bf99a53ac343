//! Problems whose derivatives are computed by a user's own code: a simulator, another library, formulas by hand.
//!
//! A [`BilevelOracle`] computes the products of methods on slices of `f64`: ∇θL, H·v, vᵀ·C, and f with its gradients.
//! An [`Oracle`] turns it into two losses, so everything that works on traced losses works on it. This includes the
//! methods that need only these products, the driver with its optimizers, schedules, observers and checkpoints,
//! [`Check::compare_methods`](crate::diagnostics::Check::compare_methods), and the truth suite. It can also be one term
//! of a loss that is traced. [`Oracle::check`] compares its products with differences.
//!
//! ```
//! use bilevel::oracle::{BilevelOracle, Oracle, OraclePoint, OracleResult};
//! use bilevel::prelude::*;
//!
//! /// Hanging masses θᵢ on springs of stiffness e^λ: L = ½·e^λ·‖θ‖² − ⟨w, θ⟩. They should hang at y: f = ½·‖θ − y‖².
//! struct Springs {
//!     weights: Vec<f64>,
//!     wanted: Vec<f64>,
//! }
//!
//! impl BilevelOracle for Springs {
//!     fn sizes(&self) -> (usize, usize) {
//!         (1, self.weights.len())
//!     }
//!     fn inner_gradient(&self, at: &OraclePoint, gradient: &mut [f64]) -> OracleResult {
//!         let stiffness = at.lambda[0].exp();
//!         (0..gradient.len()).for_each(|i| gradient[i] = stiffness * at.theta[i] - self.weights[i]);
//!         Ok(())
//!     }
//!     fn hessian_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
//!         let stiffness = at.lambda[0].exp();
//!         (0..v.len()).for_each(|i| product[i] = stiffness * v[i]);
//!         Ok(())
//!     }
//!     fn mixed_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
//!         product[0] = at.lambda[0].exp() * v.iter().zip(at.theta).map(|(v, t)| v * t).sum::<f64>();
//!         Ok(())
//!     }
//!     fn outer(&self, at: &OraclePoint, by_lambda: &mut [f64], by_theta: &mut [f64]) -> OracleResult<f64> {
//!         by_lambda[0] = 0.0;
//!         (0..by_theta.len()).for_each(|i| by_theta[i] = at.theta[i] - self.wanted[i]);
//!         Ok(0.5 * by_theta.iter().map(|d| d * d).sum::<f64>())
//!     }
//! }
//!
//! let oracle = Oracle::new(Springs { weights: vec![2.0, 4.0], wanted: vec![0.5, 1.0] });
//! let report = oracle.check(&[0.3], &[0.1, -0.2], 0)?;
//! assert!(report.largest() < 1e-8, "{report}");
//! let problem = oracle.problem(Variable::constant([1], 0.0), Variable::constant([2], 0.0))?;
//! let (method, inner) = (IftCg { iterations: 2, ..IftCg::default() }, InnerLoop::new(0.2, 100));
//! let found = Driver::new(&problem, method).inner(inner).optimizer(Adam::default()).rate(0.05).iterations(200).run()?;
//! // Springs of stiffness 4 hang at exactly y.
//! assert!((found.lambda.0.item().unwrap() - 4_f64.ln()).abs() < 1e-3);
//! # Ok::<(), bilevel::Error>(())
//! ```

mod check;
mod functions;

pub use check::{OracleCheck, OracleRow};

use crate::compiled::key::Key;
use crate::problem::scope::Scope;
use crate::problem::typed::Problem;
use crate::problem::variable::Variable;
use crate::{Error, Result};
use bilevel_graph::{HostCall, Leaf, Tensor};
use functions::{Core, Functions};
use std::sync::Arc;

/// The result of an oracle's function. Any error ends the run, and its message is shown.
pub type OracleResult<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The point of the derivatives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OraclePoint<'a> {
    /// λ, leaf by leaf, each row-major.
    pub lambda: &'a [f64],
    /// θ, likewise.
    pub theta: &'a [f64],
    /// The key from which all random draws must follow. It is the same for all products of one step, so that they use
    /// the same minibatch, and different for every other step. Constant unless [`BilevelOracle::is_random`].
    pub key: Key,
}

/// The derivatives of a bilevel problem, computed by hand. All are pure functions: the same point gives the same numbers, to the bit.
///
/// See the [module](self) for an example.
pub trait BilevelOracle: Send + Sync {
    /// Returns the sizes of λ and of θ.
    fn sizes(&self) -> (usize, usize);

    /// Computes ∇θL.
    fn inner_gradient(&self, at: &OraclePoint, gradient: &mut [f64]) -> OracleResult;

    /// Computes H·v with H = ∂²L/∂θ².
    fn hessian_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult;

    /// Computes vᵀ·C with C = ∂²L/∂θ∂λ, of the size of λ.
    fn mixed_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult;

    /// Returns f, and computes f_λ and f_θ.
    fn outer(&self, at: &OraclePoint, by_lambda: &mut [f64], by_theta: &mut [f64]) -> OracleResult<f64>;

    /// Returns L, which no method needs: it is shown, and watched for divergence. 0 by default.
    fn inner_loss(&self, _at: &OraclePoint) -> OracleResult<f64> {
        Ok(0.0)
    }

    /// Whether anything depends on the key. If not, which is the default, terms that depend only on λ are computed once
    /// per hypergradient.
    fn is_random(&self) -> bool {
        false
    }
}

/// A [`BilevelOracle`] as two losses.
#[derive(Clone)]
pub struct Oracle {
    core: Arc<Core>,
    functions: Arc<Functions>,
}

impl Oracle {
    /// Wraps an oracle.
    pub fn new(oracle: impl BilevelOracle + 'static) -> Self {
        let core = Arc::new(Core::new(Box::new(oracle)));
        Oracle { functions: Arc::new(Functions::new(&core)), core }
    }

    /// A problem with this oracle's losses. The variables may have any shape with as many numbers as the oracle's λ and θ.
    pub fn problem(&self, lambda: Variable, theta: Variable) -> Result<Problem<Leaf<Variable>, Leaf<Variable>>> {
        let (lambdas, thetas) = self.core.oracle.sizes();
        for (leaf, variable, size) in [("λ", &lambda, lambdas), ("θ", &theta, thetas)] {
            let count: usize = variable.shape().iter().product();
            if count != size {
                let reason = format!("has {count} numbers, but the oracle's {leaf} has {size}");
                return Err(Error::Variable { leaf: leaf.into(), reason });
            }
        }
        let (inner, outer) = (self.clone(), self.clone());
        Problem::builder(Leaf(lambda), Leaf(theta))
            .inner(move |scope, l, t| inner.inner(scope, l.0, t.0))
            .outer(move |scope, l, t| outer.outer(scope, l.0, t.0))
            .build()
    }

    /// L as a tensor, for an inner loss with other terms.
    ///
    /// Its second derivatives by λ and θ are the oracle's products. It has no derivative by λ alone, so methods that need ∂L/∂λ are refused.
    pub fn inner(&self, scope: &Scope, lambda: Tensor, theta: Tensor) -> Tensor {
        self.call(&self.functions.inner, scope, (lambda, theta))
    }

    /// f as a tensor, for an outer loss with other terms.
    pub fn outer(&self, scope: &Scope, lambda: Tensor, theta: Tensor) -> Tensor {
        self.call(&self.functions.outer, scope, (lambda, theta))
    }

    fn call(&self, function: &HostCall, scope: &Scope, (lambda, theta): (Tensor, Tensor)) -> Tensor {
        let flat = |tensor: Tensor| tensor.reshape([tensor.shape().iter().product()]);
        let mut operands = vec![flat(lambda), flat(theta)];
        if self.core.oracle.is_random() {
            operands.extend(scope.host_draw());
        }
        function.of(&operands)
    }

    /// Compares every product with differences at a point, along random directions. `seed` chooses the directions and the key.
    pub fn check(&self, lambda: &[f64], theta: &[f64], seed: u64) -> Result<OracleCheck> {
        check::check(&*self.core.oracle, lambda, theta, Key::from_seed(seed))
    }
}
