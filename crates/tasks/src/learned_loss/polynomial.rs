//! TaylorGLO's loss: a polynomial of third order in the probabilities p of C classes and the labels y, one-hot.
//!
//!   q = p − λ₁,  o = y − λ₀
//!   l = −mean over classes of λ₂q + λ₃q²/2 + λ₄q³/6 + λ₅qo + λ₆q²o/2 + λ₇qo²/2
//!
//! Probabilities add up to 1, so the sum of λ₂q over the classes is the same for all of them: λ₂ has no influence on training.

use bilevel::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many coefficients there are.
pub const COEFFICIENTS: usize = 8;

/// The loss whose coefficients λ starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FirstLoss {
    /// Cross entropy, expanded to second order around a probability of ½.
    CrossEntropy,
    /// The squared distance of probabilities and labels.
    Brier,
}

impl FirstLoss {
    /// Its coefficients for this many classes.
    ///
    /// ```
    /// use bilevel_tasks::learned_loss::{FirstLoss, value};
    /// // −ln p around ½, from which it differs by a constant and the third order.
    /// let loss = |p: f64| value(&FirstLoss::CrossEntropy.coefficients(2), &[p, 1.0 - p], 0);
    /// assert!((loss(0.52) - loss(0.5) - (-(0.52f64).ln() + 0.5f64.ln())).abs() < 1e-4);
    /// // The squares of 1 − 0.7, and of 0.2 and 0.1.
    /// let brier = value(&FirstLoss::Brier.coefficients(3), &[0.7, 0.2, 0.1], 0);
    /// assert!((brier - (0.09 + 0.04 + 0.01 - 1.0)).abs() < 1e-12, "but for the constant 1");
    /// ```
    pub fn coefficients(self, classes: usize) -> [f64; COEFFICIENTS] {
        let c = classes as f64;
        match self {
            FirstLoss::CrossEntropy => [0.0, 0.5, 0.0, 0.0, 0.0, c / 0.5, -c / 0.25, 0.0],
            FirstLoss::Brier => [0.0, 0.0, 0.0, -2.0 * c, 0.0, 2.0 * c, 0.0, 0.0],
        }
    }
}

/// The mean loss of probabilities `[n, classes]` and one-hot labels of the same shape.
///
/// ```
/// use bilevel::graph::{Array, DType, Graph, Reference};
/// use bilevel_tasks::learned_loss::{polynomial, value};
/// let g = Graph::new();
/// let [l, p, y] = [("λ", vec![8]), ("p", vec![1, 2]), ("y", vec![1, 2])].map(|(name, shape)| g.input(name, shape, DType::F64));
/// let coefficients = [0.3, -0.2, 1.1, 0.7, -0.4, 0.9, 1.3, -0.6];
/// let at = |shape: &[usize], values: &[f64]| Array::from_f64(shape, values.to_vec());
/// let point = [(l, at(&[8], &coefficients)?), (p, at(&[1, 2], &[0.8, 0.2])?), (y, at(&[1, 2], &[1.0, 0.0])?)];
/// let found = Reference::evaluate(&g, &point, &[polynomial(l, p, y)])?;
/// assert!((found[0].item().unwrap() - value(&coefficients, &[0.8, 0.2], 0)).abs() < 1e-12);
/// # Ok::<(), bilevel::graph::Error>(())
/// ```
#[track_caller]
pub fn polynomial(coefficients: Tensor, probabilities: Tensor, labels: Tensor) -> Tensor {
    let [l0, l1, l2, l3, l4, l5, l6, l7] = [0, 1, 2, 3, 4, 5, 6, 7].map(|i| coefficients.index(0, i));
    let (q, o) = (probabilities - l1, labels - l0);
    let (square, product) = (q * q, q * o);
    let sum = l2 * q + l3 / 2.0 * square + l4 / 6.0 * (square * q) + l5 * product + l6 / 2.0 * (product * q);
    -(sum + l7 / 2.0 * (product * o)).mean_all()
}

/// The loss of one example, in plain numbers.
pub fn value(coefficients: &[f64; COEFFICIENTS], probabilities: &[f64], label: usize) -> f64 {
    let [l0, l1, l2, l3, l4, l5, l6, l7] = *coefficients;
    let of_class = |(class, p): (usize, &f64)| {
        let (q, o) = (p - l1, f64::from(u8::from(class == label)) - l0);
        let cubic = l2 * q + l3 / 2.0 * q * q + l4 / 6.0 * q * q * q;
        cubic + l5 * q * o + l6 / 2.0 * q * q * o + l7 / 2.0 * q * o * o
    };
    -probabilities.iter().enumerate().map(of_class).sum::<f64>() / probabilities.len() as f64
}
