//! The log determinant of a Kronecker product plus a multiple of the identity, and its derivatives.
//!
//!   log det(n·A⊗G + δI) = Σᵢⱼ log(n·αᵢ·γⱼ + δ),   α and γ the eigenvalues of A and G
//!
//!   ∂/∂A = U·diag(Σⱼ n·γⱼ/(n·αᵢ·γⱼ + δ))·Uᵀ,   U the eigenvectors of A; likewise for G
//!   ∂/∂log δ = Σᵢⱼ δ/(n·αᵢ·γⱼ + δ)
//!
//! Everything follows from the two eigen-decompositions, in 64 bits and on the host.

use bilevel::{Array, Error, Result};
use faer::{Mat, Side};

/// A symmetric matrix without negative eigenvalues, decomposed.
struct Eigen {
    values: Vec<f64>,
    /// One per column.
    vectors: Mat<f64>,
}

impl Eigen {
    fn of(matrix: &Array) -> Result<Self> {
        let wrong = |what: &str| Error::other(format!("a Kronecker factor {what}"));
        let &[rows, columns] = matrix.shape() else { return Err(wrong("is not a matrix")) };
        if rows != columns {
            return Err(wrong(&format!("must be square, but is {rows} x {columns}")));
        }
        let numbers = matrix.to_f64();
        if numbers.iter().any(|number| !number.is_finite()) {
            return Err(wrong("has entries that are not finite"));
        }
        // Sums in 32 bits may differ in the last digit on the two sides of the diagonal.
        let entry = |i: usize, j: usize| 0.5 * (numbers[i * columns + j] + numbers[j * columns + i]);
        let found = Mat::from_fn(rows, rows, entry).self_adjoint_eigen(Side::Lower);
        let found = found.map_err(|_| wrong("has no eigen-decomposition"))?;
        // Values below 0 are rounding.
        let values = found.S().column_vector().iter().map(|value| value.max(0.0)).collect();
        Ok(Eigen { values, vectors: found.U().to_owned() })
    }

    /// The matrix with its eigenvalues replaced by these.
    fn with_values(&self, values: &[f64]) -> Vec<f64> {
        let size = values.len();
        let scaled = Mat::from_fn(size, size, |i, j| self.vectors[(i, j)] * values[j]);
        let product = scaled * self.vectors.transpose();
        (0..size * size).map(|entry| product[(entry / size, entry % size)]).collect()
    }
}

/// n·A⊗G.
///
/// ```
/// use bilevel::Array;
/// use bilevel_reproduction::kronecker::Kronecker;
/// // One number each: log(3·2·5 + 1).
/// let number = |x| Array::from_f64([1, 1], vec![x]);
/// let product = Kronecker::new(&number(2.0)?, &number(5.0)?, 3.0)?;
/// assert!((product.log_det(1.0) - 31_f64.ln()).abs() < 1e-12);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct Kronecker {
    factors: [Eigen; 2],
    times: f64,
}

impl Kronecker {
    /// The product of two symmetric matrices without negative eigenvalues.
    ///
    /// # Errors
    ///
    /// If a matrix is not square, or an entry is not finite.
    pub fn new(a: &Array, g: &Array, times: f64) -> Result<Self> {
        let [a, g] = side_by_side([a, g].map(|factor| || Eigen::of(factor)));
        Ok(Kronecker { factors: [a?, g?], times })
    }

    /// Rows of the product.
    pub fn size(&self) -> usize {
        self.factors.iter().map(|factor| factor.values.len()).product()
    }

    /// The sum of a function over the eigenvalues of the product.
    fn sum(&self, of: impl Fn(f64) -> f64) -> f64 {
        let [a, g] = &self.factors;
        a.values.iter().map(|alpha| g.values.iter().map(|gamma| of(self.times * alpha * gamma)).sum::<f64>()).sum()
    }

    /// log det(n·A⊗G + δI), for δ above 0.
    pub fn log_det(&self, delta: f64) -> f64 {
        self.sum(|value| (value + delta).ln())
    }

    /// Its derivative with respect to log δ.
    pub fn by_log_delta(&self, delta: f64) -> f64 {
        self.sum(|value| delta / (value + delta))
    }

    /// Its derivatives with respect to A and G, row by row.
    pub fn by_factors(&self, delta: f64) -> [Vec<f64>; 2] {
        let slopes = |own: &Eigen, other: &Eigen| {
            let slope = |x: f64| {
                let term = |y: &f64| self.times * y / (self.times * x * y + delta);
                other.values.iter().map(term).sum()
            };
            own.with_values(&own.values.iter().map(|x| slope(*x)).collect::<Vec<f64>>())
        };
        let [a, g] = &self.factors;
        side_by_side([(a, g), (g, a)].map(|(own, other)| move || slopes(own, other)))
    }
}

/// The results of these functions, each run on its own thread.
pub(crate) fn side_by_side<T: Send, W: FnOnce() -> T + Send, const N: usize>(work: [W; N]) -> [T; N] {
    std::thread::scope(|scope| {
        work.map(|work| scope.spawn(work)).map(|thread| match thread.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A symmetric matrix of this size and rank, without negative eigenvalues.
    fn matrix(size: usize, rank: usize, seed: u64) -> Vec<f64> {
        let mut draws = vec![0.0; size * rank];
        bilevel::graph::random::fill_uniform_f64(bilevel::Key::from_seed(seed).words(), 0, 0, 0, &mut draws);
        let row = |i: usize| &draws[i * rank..(i + 1) * rank];
        let entry = |i: usize, j: usize| row(i).iter().zip(row(j)).map(|(x, y)| (x - 0.5) * (y - 0.5)).sum();
        (0..size * size).map(|place| entry(place / size, place % size)).collect()
    }

    fn square(numbers: &[f64]) -> Array {
        let size = numbers.len().isqrt();
        Array::from_f64([size, size], numbers.to_vec()).unwrap()
    }

    const TIMES: f64 = 7.0;

    fn product(a: &[f64], g: &[f64]) -> Kronecker {
        Kronecker::new(&square(a), &square(g), TIMES).unwrap()
    }

    /// The log determinant of n·A⊗G + δI by elimination.
    pub(crate) fn dense_log_det(a: &[f64], g: &[f64], times: f64, delta: f64) -> f64 {
        let (p, q) = (a.len().isqrt(), g.len().isqrt());
        let size = p * q;
        let entry = |i: usize, j: usize| {
            let product = times * a[(i / q) * p + j / q] * g[(i % q) * q + j % q];
            product + if i == j { delta } else { 0.0 }
        };
        let mut rows: Vec<Vec<f64>> = (0..size).map(|i| (0..size).map(|j| entry(i, j)).collect()).collect();
        let mut sum = 0.0;
        for k in 0..size {
            sum += rows[k][k].ln();
            let pivot = rows[k].clone();
            for row in &mut rows[k + 1..] {
                let factor = row[k] / pivot[k];
                row.iter_mut().zip(&pivot).for_each(|(entry, pivot)| *entry -= factor * pivot);
            }
        }
        sum
    }

    fn dense(a: &[f64], g: &[f64], delta: f64) -> f64 {
        dense_log_det(a, g, TIMES, delta)
    }

    /// A derivative at 0 by central differences, extrapolated.
    pub(crate) fn derivative(mut of: impl FnMut(f64) -> f64) -> f64 {
        let mut central = |step: f64| (of(step) - of(-step)) / (2.0 * step);
        let [wide, narrow] = [2e-3, 1e-3].map(&mut central);
        (4.0 * narrow - wide) / 3.0
    }

    #[test]
    fn the_log_determinant_is_that_of_the_dense_matrix_also_where_factors_are_singular() {
        for (p, q, rank) in [(4, 3, 9), (5, 6, 3), (1, 4, 2)] {
            let (a, g) = (matrix(p, rank, 1), matrix(q, rank, 2));
            for delta in [1e-3, 1.0, 40.0] {
                let (found, expected) = (product(&a, &g).log_det(delta), dense(&a, &g, delta));
                assert!((found - expected).abs() < 1e-10 * expected.abs().max(1.0), "{found} {expected}");
            }
        }
    }

    #[test]
    fn derivatives_are_differences_of_the_dense_log_determinant() {
        let (a, g, delta) = (matrix(4, 9, 1), matrix(3, 9, 2), 0.6_f64);
        let kronecker = product(&a, &g);
        let by_delta = derivative(|step| dense(&a, &g, delta * step.exp()));
        assert!((kronecker.by_log_delta(delta) - by_delta).abs() < 1e-9, "{by_delta}");
        let [by_a, by_g] = kronecker.by_factors(delta);
        let moved = |matrix: &[f64], place: usize, step: f64| {
            let mut matrix = matrix.to_vec();
            matrix[place] += 0.1 * step;
            matrix
        };
        for (place, found) in by_a.iter().enumerate() {
            let expected = derivative(|step| dense(&moved(&a, place, step), &g, delta)) / 0.1;
            assert!((found - expected).abs() < 1e-9 * found.abs().max(1.0), "{place}: {found} {expected}");
        }
        for (place, found) in by_g.iter().enumerate() {
            let expected = derivative(|step| dense(&a, &moved(&g, place, step), delta)) / 0.1;
            assert!((found - expected).abs() < 1e-9 * found.abs().max(1.0), "{place}: {found} {expected}");
        }
    }

    #[test]
    fn scaling_a_factor_and_delta_together_shifts_the_log_determinant_by_the_size() {
        let (a, g, delta) = (matrix(30, 12, 1), matrix(20, 50, 2), 0.3);
        let kronecker = product(&a, &g);
        let along = |slope: &[f64], matrix: &[f64]| slope.iter().zip(matrix).map(|(x, y)| x * y).sum::<f64>();
        let [by_a, by_g] = kronecker.by_factors(delta);
        for scaled in [along(&by_a, &a), along(&by_g, &g)] {
            assert!((scaled + kronecker.by_log_delta(delta) - 600.0).abs() < 1e-10 * 600.0, "{scaled}");
        }
    }

    #[test]
    fn matrices_that_cannot_be_decomposed_are_refused_in_one_sentence() {
        let refused = |a: Array| Kronecker::new(&a, &square(&[1.0]), 1.0).err().unwrap().to_string();
        assert!(refused(Array::zeros([2, 3], bilevel::DType::F64)).contains("must be square, but is 2 x 3"));
        assert!(refused(Array::zeros([2], bilevel::DType::F64)).contains("is not a matrix"));
        assert!(refused(square(&[f64::NAN])).contains("not finite"));
    }
}
