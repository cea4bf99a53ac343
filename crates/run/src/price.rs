//! The price list: the cost of a run in gradients, so that methods are compared at equal cost on any hardware.
//!
//! | | price |
//! |---|---|
//! | a gradient of the inner loss, with ∂L_T/∂λ if requested | 1 |
//! | a gradient of the outer loss | 1 |
//! | a reverse pass over ⟨∇θL_T, v⟩, which gives H·v, vᵀ·C, or both at once | 2 |
//! | a loss without a derivative | ½ |
//!
//! The same prices hold for all methods. Methods differ in whether they can use H·v and vᵀ·C of one pass. The Langevin
//! adjoint, reverse and forward mode need both at the same point along the same v. A linear solve needs many H·v and
//! then one vᵀ·C along the solution, which is a separate pass.

use bilevel::Method;
use bilevel::methods::{AnyMethod, Oracles};

/// How a method's second-order products share reverse passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// H·v and vᵀ·C come from one pass.
    Shared,
    /// Each product is a separate pass.
    Separate,
}

impl Passes {
    /// How the method of this name shares them.
    ///
    /// ```
    /// use bilevel_run::price::Passes;
    /// assert_eq!(Passes::of("langevin-adjoint"), Passes::Shared);
    /// assert_eq!(Passes::of("amigo-cg"), Passes::Separate);
    /// ```
    pub fn of(method: &str) -> Self {
        AnyMethod::named(method).map_or(Passes::Separate, |method| Self::of_method(&method))
    }

    /// How a method says it shares them.
    pub fn of_method(method: &dyn Method) -> Self {
        if method.shares_passes() { Passes::Shared } else { Passes::Separate }
    }
}

/// The price of these derivatives, in gradients.
///
/// ```
/// use bilevel::methods::Oracles;
/// use bilevel_run::price::{Passes, price};
/// // Ten steps of the Langevin adjoint.
/// let adjoint = Oracles { inner_gradients: 10, outer_gradients: 10, hessian_products: 10, mixed_products: 10, losses: 0 };
/// assert_eq!(price(adjoint, Passes::Shared), 40.0);
/// // Ten steps, and ten of conjugate gradients.
/// let solve = Oracles { inner_gradients: 10, outer_gradients: 1, hessian_products: 10, mixed_products: 1, losses: 0 };
/// assert_eq!(price(solve, Passes::Separate), 33.0);
/// ```
pub fn price(oracles: Oracles, passes: Passes) -> f64 {
    let Oracles { inner_gradients, outer_gradients, hessian_products, mixed_products, losses } = oracles;
    let passes = match passes {
        Passes::Shared => hessian_products.max(mixed_products),
        Passes::Separate => hessian_products + mixed_products,
    };
    (inner_gradients + outer_gradients + 2 * passes) as f64 + 0.5 * losses as f64
}
