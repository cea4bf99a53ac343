//! The sizes of a problem, from which a method chooses the settings of its solver.

/// The size and curvature of a problem, from which the settings of a converging solver follow
/// ([`Method::converge`](crate::Method::converge)).
///
/// ```
/// use bilevel::Method;
/// use bilevel::methods::{AnyMethod, IftCg, Scale};
/// let mut method = IftCg::default();
/// method.converge(&Scale { parameters: 30, ..Scale::default() });
/// assert_eq!(method.iterations, 60);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The largest curvature of the inner loss.
    pub largest_curvature: f64,
    /// The smallest curvature of the inner loss, apart from those that are 0 everywhere.
    pub smallest_curvature: f64,
    /// Numbers of θ.
    pub parameters: usize,
    /// Inner steps after which training has converged.
    pub steps: usize,
    /// The proximal term that is part of the problem, if there is one.
    pub proximal: Option<f64>,
    /// The penalty to use instead of the method's own.
    pub penalty: Option<f64>,
}

impl Default for Scale {
    /// One parameter with curvature 1, trained in 100 steps.
    fn default() -> Self {
        let (proximal, penalty) = (None, None);
        Scale { largest_curvature: 1.0, smallest_curvature: 1.0, parameters: 1, steps: 100, proximal, penalty }
    }
}

impl Scale {
    /// The number of directions of a search.
    pub const DIRECTIONS: usize = 50;
    /// The residual to which a method with a tolerance trains and solves.
    pub const TOLERANCE: f64 = 1e-10;
    /// The shift of the curvature if a method needs one, as a share of the smallest curvature.
    pub const SMALL: f64 = 1e-7;
    /// The most iterations of a linear solve.
    const MAX_ITERATIONS: usize = 400;

    /// Iterations with which conjugate gradients converge in spite of rounding.
    pub fn iterations(&self) -> usize {
        (2 * self.parameters).min(Self::MAX_ITERATIONS)
    }
}
