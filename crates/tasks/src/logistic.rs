//! Logistic regression with a penalty for each feature, solved exactly, and the exact gradient of its loss on other
//! rows.
//!
//!   L(θ) = mean over rows of log(1 + exp(−yᵢ·xᵢθ)) + ½·Σ e^λⱼ·θⱼ²,   θ(λ) its minimum, by Newton's method
//!   h(λ) = mean over other rows of the same loss at θ(λ),   ∂h/∂λⱼ = −e^λⱼ·θⱼ·qⱼ with H·q = ∇f
//!
//! Features are few, so H is a small matrix and Cholesky's factors solve both systems.

use bilevel::{Error, Result};

/// Newton's steps until the gradient is this small, relative to the number of features.
const SETTLED: f64 = 1e-12;
/// More steps than any of these losses needs.
const MOST_STEPS: usize = 100;

/// Rows of features, and a target of −1 or 1 for each.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Row by row.
    pub features: Vec<f64>,
    /// −1 or 1.
    pub targets: Vec<f64>,
}

impl Rows {
    /// Features of a row.
    pub fn width(&self) -> usize {
        self.features.len().checked_div(self.targets.len()).unwrap_or(0)
    }

    /// Without the last rows, so that their number is a multiple of `size`, which must be above 0.
    pub fn multiple_of(mut self, size: usize) -> Self {
        let (width, left) = (self.width(), self.targets.len() / size * size);
        self.targets.truncate(left);
        self.features.truncate(left * width);
        self
    }

    /// The gradient of the mean loss at θ, and its Hessian row by row if `hessian` is not empty.
    fn derivatives(&self, theta: &[f64], hessian: &mut [f64]) -> Vec<f64> {
        let (width, count) = (self.width(), self.targets.len() as f64);
        let mut gradient = vec![0.0; width];
        for (x, y) in self.features.chunks_exact(width).zip(&self.targets) {
            let margin: f64 = y * x.iter().zip(theta).map(|(x, t)| x * t).sum::<f64>();
            let doubt = 1.0 / (1.0 + margin.exp());
            gradient.iter_mut().zip(x).for_each(|(g, x)| *g -= doubt * y * x / count);
            let curvature = doubt * (1.0 - doubt) / count;
            for (row, xi) in hessian.chunks_exact_mut(width).zip(x) {
                row.iter_mut().zip(x).for_each(|(h, xj)| *h += curvature * xi * xj);
            }
        }
        gradient
    }
}

/// Training rows and the rows that judge, with the last minimum as the start of the next search.
#[derive(Clone, Debug)]
pub struct Exact {
    train: Rows,
    outside: Rows,
    theta: Vec<f64>,
}

impl Exact {
    /// The problem on these rows, which must have the same number of features.
    pub fn new(train: Rows, outside: Rows) -> Self {
        let theta = vec![0.0; train.width()];
        Exact { train, outside, theta }
    }

    /// ∇h at these penalties' logarithms.
    ///
    /// ```
    /// use bilevel_tasks::logistic::{Exact, Rows};
    /// // log(1 + e^−θ) + ½·e^λ·θ² inside, log(1 + e^−2θ) outside.
    /// let row = |x: f64| Rows { features: vec![x], targets: vec![1.0] };
    /// let mut exact = Exact::new(row(1.0), row(2.0));
    /// assert!((exact.gradient(&[-1.0])?[0] - 0.168571).abs() < 1e-6);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn gradient(&mut self, log_penalty: &[f64]) -> Result<Vec<f64>> {
        let width = self.theta.len();
        let penalty: Vec<f64> = log_penalty.iter().map(|l| l.exp()).collect();
        for _ in 0..MOST_STEPS {
            let mut hessian = vec![0.0; width * width];
            let mut slope = self.train.derivatives(&self.theta, &mut hessian);
            slope.iter_mut().zip(&penalty).zip(&self.theta).for_each(|((g, p), t)| *g += p * t);
            penalty.iter().enumerate().for_each(|(j, p)| hessian[j * width + j] += p);
            let factor = cholesky(hessian, width)?;
            if slope.iter().map(|g| g * g).sum::<f64>().sqrt() < SETTLED * width as f64 {
                let q = solve(&factor, self.outside.derivatives(&self.theta, &mut []));
                let each = penalty.iter().zip(&self.theta).zip(q);
                return Ok(each.map(|((p, t), q)| -p * t * q).collect());
            }
            let step = solve(&factor, slope);
            self.theta.iter_mut().zip(step).for_each(|(t, s)| *t -= s);
        }
        Err(Error::other(format!("Newton's method did not converge in {MOST_STEPS} steps")))
    }
}

/// The lower factor of a positive definite matrix, row by row.
fn cholesky(mut a: Vec<f64>, n: usize) -> Result<Vec<f64>> {
    for i in 0..n {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| a[i * n + k] * a[j * n + k]).sum();
            let rest = a[i * n + j] - dot;
            a[i * n + j] = if i == j { rest.sqrt() } else { rest / a[j * n + j] };
        }
        let root = a[i * n + i];
        if !root.is_finite() || root <= 0.0 {
            return Err(Error::other("the curvature of the inner loss is not positive definite"));
        }
    }
    Ok(a)
}

/// x with L·Lᵀ·x = b.
fn solve(lower: &[f64], mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for i in 0..n {
        let dot: f64 = (0..i).map(|k| lower[i * n + k] * b[k]).sum();
        b[i] = (b[i] - dot) / lower[i * n + i];
    }
    for i in (0..n).rev() {
        let dot: f64 = (i + 1..n).map(|k| lower[k * n + i] * b[k]).sum();
        b[i] = (b[i] - dot) / lower[i * n + i];
    }
    b
}
