//! The largest and the smallest curvature of the inner loss, by Lanczos iterations with Hessian products.
//!
//!   w = H·qⱼ − βⱼ·qⱼ₋₁,  αⱼ = w·qⱼ,  w ← w − αⱼ·qⱼ,  βⱼ₊₁ = ‖w‖,  qⱼ₊₁ = w/βⱼ₊₁
//!
//! The extreme eigenvalues of the tridiagonal matrix of α and β approach those of H, the largest from below and the smallest
//! from above. Every w is made orthogonal to all q before it, twice, or copies of eigenvalues would appear.

use crate::losses::Losses;
use crate::{Error, Result};
use bilevel_graph::random::{fill_normal_f64, seed_key};
use bilevel_graph::{Array, DType, Executor, Graph, Program, Tensor, hessian_vector};

/// What was found of the Hessian's spectrum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curvature {
    /// The largest eigenvalue, or a little less.
    pub largest: f64,
    /// The smallest eigenvalue, or a little more.
    pub smallest: f64,
    /// Hessian products taken.
    pub products: usize,
}

impl Losses {
    /// The largest and the smallest curvature of the inner loss by θ, from at most this many Hessian products.
    pub fn curvature(&self, graph: &Graph, executor: &dyn Executor, most: usize) -> Result<Curvature> {
        let input = |(i, t): (usize, &Tensor)| graph.input(format!("v.{i}"), t.shape(), DType::F64);
        let v: Vec<Tensor> = self.theta.iter().enumerate().map(input).collect();
        let products = hessian_vector(self.inner, &self.theta, &v)?;
        let mut builder = Program::builder(graph);
        for (i, (product, t)) in products.into_iter().zip(&self.theta).enumerate() {
            builder = builder.output(i.to_string(), product.unwrap_or_else(|| t.zeros_like()));
        }
        for input in self.point.iter().map(|(t, _)| *t).chain(v.iter().copied()) {
            builder = builder.keep_input(input);
        }
        let program = builder.build()?;
        let mut run = executor.compile(&program)?;
        for (name, (_, value)) in self.names.iter().zip(&self.point) {
            run.set(program.input(name)?, value)?;
        }
        let sizes: Vec<usize> = self.theta.iter().map(|t| t.len()).collect();
        lanczos(sizes.iter().sum(), most, |direction| {
            let mut rest = direction;
            for (i, t) in self.theta.iter().enumerate() {
                let (part, after) = rest.split_at(sizes[i]);
                run.set(program.input(&format!("v.{i}"))?, &Array::from_values(t.shape(), part, DType::F64)?)?;
                rest = after;
            }
            run.run(0..1)?;
            let mut product = vec![];
            for i in 0..sizes.len() {
                product.extend(run.output(i)?.to_f64());
            }
            Ok(product)
        })
    }
}

/// Runs Lanczos iterations of a symmetric matrix of this size, given by its products, from a random direction.
fn lanczos(size: usize, most: usize, mut product: impl FnMut(&[f64]) -> Result<Vec<f64>>) -> Result<Curvature> {
    let mut q = vec![0.0; size];
    fill_normal_f64(seed_key(7).map(|k| k as u32), 0, 0, 0, &mut q);
    let length = norm(&q);
    q.iter_mut().for_each(|v| *v /= length);
    let (mut basis, mut alpha, mut beta): (Vec<Vec<f64>>, Vec<f64>, Vec<f64>) = (vec![], vec![], vec![]);
    while alpha.len() < most.clamp(1, size.max(1)) {
        let mut w = product(&q)?;
        if w.iter().any(|v| !v.is_finite()) {
            let reason =
                "the inner loss has no finite second derivative here; look for a root, logarithm or division at 0";
            return Err(Error::Problem { reason: reason.into() });
        }
        alpha.push(dot(&w, &q));
        basis.push(q);
        for _ in 0..2 {
            for old in &basis {
                let along = dot(&w, old);
                w.iter_mut().zip(old).for_each(|(w, o)| *w -= along * o);
            }
        }
        let rest = norm(&w);
        // The directions seen so far are closed under H: there is nothing more to find from this start.
        let scale = alpha.iter().fold(f64::MIN_POSITIVE, |m, a| m.max(a.abs()));
        if rest.is_nan() || rest <= 1e-10 * scale {
            break;
        }
        beta.push(rest);
        w.iter_mut().for_each(|v| *v /= rest);
        q = w;
    }
    beta.truncate(alpha.len().saturating_sub(1));
    let (smallest, largest) = extremes(&alpha, &beta);
    Ok(Curvature { largest, smallest, products: alpha.len() })
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// The smallest and the largest eigenvalue of a symmetric tridiagonal matrix, by bisection on the number of eigenvalues
/// below a point, which is the number of negative pivots.
fn extremes(alpha: &[f64], beta: &[f64]) -> (f64, f64) {
    let below = |x: f64| {
        let mut pivot = 1.0;
        let mut count = 0;
        for (i, a) in alpha.iter().enumerate() {
            let off = if i == 0 { 0.0 } else { beta[i - 1] * beta[i - 1] / pivot };
            pivot = a - x - off;
            if pivot == 0.0 {
                pivot = f64::MIN_POSITIVE;
            }
            count += (pivot < 0.0) as usize;
        }
        count
    };
    let reach = alpha.iter().chain(beta).fold(0.0, |m: f64, v| m.max(v.abs())) * 3.0 + f64::MIN_POSITIVE;
    let find = |wanted: usize| {
        let (mut low, mut high) = (-reach, reach);
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            if below(middle) >= wanted { high = middle } else { low = middle }
        }
        0.5 * (low + high)
    };
    (find(1), find(alpha.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extremes_of_a_diagonal_matrix_are_found() {
        let diagonal: Vec<f64> = (0..30).map(|i| -1.0 + 0.5 * i as f64).collect();
        let multiply = |v: &[f64]| Ok(v.iter().zip(&diagonal).map(|(v, d)| v * d).collect());
        let found = lanczos(30, 60, multiply).unwrap();
        assert!((found.largest - 13.5).abs() < 1e-9 && (found.smallest + 1.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn one_dimension_and_a_matrix_of_zeros_are_no_exceptions() {
        let found = lanczos(1, 10, |v: &[f64]| Ok(vec![-2.5 * v[0]])).unwrap();
        assert!((found.largest + 2.5).abs() < 1e-12 && found.products == 1, "{found:?}");
        let found = lanczos(4, 10, |v: &[f64]| Ok(vec![0.0; v.len()])).unwrap();
        assert!(found.largest.abs() < 1e-12 && found.smallest.abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn a_large_matrix_shows_its_largest_after_few_products() {
        let multiply =
            |v: &[f64]| Ok(v.iter().enumerate().map(|(i, v)| v * if i == 17 { 100.0 } else { 1.0 }).collect());
        let found = lanczos(2000, 20, multiply).unwrap();
        assert!((found.largest - 100.0).abs() < 1e-6 && (found.smallest - 1.0).abs() < 1e-6, "{found:?}");
    }
}
