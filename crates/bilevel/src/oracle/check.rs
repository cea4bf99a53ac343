//! An oracle's products against differences.
//!
//!   D(ε) = (F(x + ε·u) − F(x − ε·u)) / 2ε,   (4·D(ε/2) − D(ε)) / 3

use super::{BilevelOracle, OraclePoint, OracleResult};
use crate::compiled::key::Key;
use crate::{Error, Result};
use bilevel_graph::random::fill_normal_f64;
use std::fmt;

/// Step of the differences, relative to the size of the point: their own error is about 1e-10 for smooth functions.
const STEP: f64 = 1e-3;

/// How far one quantity of an oracle is from differences.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OracleRow {
    /// The name of the compared product.
    pub quantity: &'static str,
    /// Norm of the difference over the larger norm of both sides.
    pub error: f64,
}

/// An oracle's products against differences: see [`Oracle::check`](super::Oracle::check).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OracleCheck {
    /// One row per quantity.
    pub rows: Vec<OracleRow>,
}

impl OracleCheck {
    /// The largest error.
    pub fn largest(&self) -> f64 {
        self.rows.iter().map(|row| row.error).fold(0.0, f64::max)
    }
}

impl fmt::Display for OracleCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows.iter().try_for_each(|row| writeln!(f, "{:<24} {:.1e}", row.quantity, row.error))
    }
}

pub(super) fn check(oracle: &dyn BilevelOracle, lambda: &[f64], theta: &[f64], key: Key) -> Result<OracleCheck> {
    let (lambdas, thetas) = oracle.sizes();
    for (what, given, size) in [("λ", lambda, lambdas), ("θ", theta, thetas)] {
        if given.len() != size {
            let (found, expected) = (vec![given.len()], vec![size]);
            return Err(Error::Shape { what: format!("the oracle's {what}"), found, expected });
        }
    }
    ProductComparison { oracle, lambda, theta, key }.rows().map_err(Error::other)
}

/// A function of λ and θ.
type Quantity<'a> = dyn Fn(&[f64], &[f64]) -> OracleResult<Vec<f64>> + 'a;

struct ProductComparison<'a> {
    oracle: &'a dyn BilevelOracle,
    lambda: &'a [f64],
    theta: &'a [f64],
    key: Key,
}

impl ProductComparison<'_> {
    fn rows(&self) -> OracleResult<OracleCheck> {
        let (p, n) = (self.lambda.len(), self.theta.len());
        let [u, v, w] = [(0, p), (1, n), (2, n)].map(|(number, size)| direction(self.key.fold_in(number), size));
        let (still, fixed) = (vec![0.0; p], vec![0.0; n]);
        let at = self.at(self.lambda, self.theta);

        let (mut by_lambda, mut by_theta) = (vec![0.0; p], vec![0.0; n]);
        let outer = |lambda: &[f64], theta: &[f64]| -> OracleResult<Vec<f64>> {
            let (mut a, mut b) = (vec![0.0; p], vec![0.0; n]);
            Ok(vec![self.oracle.outer(&self.at(lambda, theta), &mut a, &mut b)?])
        };
        self.oracle.outer(&at, &mut by_lambda, &mut by_theta)?;
        let gradient = |lambda: &[f64], theta: &[f64]| -> OracleResult<Vec<f64>> {
            let mut gradient = vec![0.0; n];
            self.oracle.inner_gradient(&self.at(lambda, theta), &mut gradient)?;
            Ok(gradient)
        };
        let hessian = |v: &[f64]| -> OracleResult<Vec<f64>> {
            let mut product = vec![0.0; n];
            self.oracle.hessian_product(&at, v, &mut product)?;
            Ok(product)
        };
        let mut mixed = vec![0.0; p];
        self.oracle.mixed_product(&at, &v, &mut mixed)?;
        let across = dot(&v, &self.difference(&gradient, &u, &fixed)?);
        let (hv, hw) = (hessian(&v)?, hessian(&w)?);

        let mut rows = vec![
            row("outer gradient by λ", &[dot(&by_lambda, &u)], &self.difference(&outer, &u, &fixed)?),
            row("outer gradient by θ", &[dot(&by_theta, &v)], &self.difference(&outer, &still, &v)?),
            row("Hessian product", &hv, &self.difference(&gradient, &still, &v)?),
            row("symmetry of the Hessian", &[dot(&w, &hv)], &[dot(&v, &hw)]),
            row("mixed product", &[dot(&mixed, &u)], &[across]),
        ];
        let inner = |lambda: &[f64], theta: &[f64]| Ok(vec![self.oracle.inner_loss(&self.at(lambda, theta))?]);
        // An oracle need not know its inner loss, which is 0 then.
        if inner(self.lambda, self.theta)? != [0.0] {
            let slope = dot(&gradient(self.lambda, self.theta)?, &v);
            rows.push(row("inner gradient", &[slope], &self.difference(&inner, &still, &v)?));
        }
        Ok(OracleCheck { rows })
    }

    fn at<'a>(&self, lambda: &'a [f64], theta: &'a [f64]) -> OraclePoint<'a> {
        OraclePoint { lambda, theta, key: self.key }
    }

    /// The derivative of `of` along u in λ and v in θ.
    fn difference(&self, of: &Quantity, u: &[f64], v: &[f64]) -> OracleResult<Vec<f64>> {
        let size = 1.0 + norm(self.lambda).max(norm(self.theta));
        let central = |step: f64| -> OracleResult<Vec<f64>> {
            let moved = |x: &[f64], along: &[f64], by: f64| -> Vec<f64> {
                x.iter().zip(along).map(|(x, along)| x + by * along).collect()
            };
            let value = |by: f64| of(&moved(self.lambda, u, by), &moved(self.theta, v, by));
            let (ahead, behind) = (value(step)?, value(-step)?);
            Ok(ahead.iter().zip(behind).map(|(a, b)| (a - b) / (2.0 * step)).collect())
        };
        let (coarse, fine) = (central(STEP * size)?, central(STEP * size / 2.0)?);
        Ok(fine.iter().zip(coarse).map(|(fine, coarse)| (4.0 * fine - coarse) / 3.0).collect())
    }
}

/// A random direction of length 1.
fn direction(key: Key, size: usize) -> Vec<f64> {
    let mut drawn = vec![0.0; size];
    fill_normal_f64(key.words(), 0, 0, 0, &mut drawn);
    let length = norm(&drawn).max(f64::MIN_POSITIVE);
    drawn.into_iter().map(|x| x / length).collect()
}

fn row(quantity: &'static str, claimed: &[f64], found: &[f64]) -> OracleRow {
    let gap: Vec<f64> = claimed.iter().zip(found).map(|(a, b)| a - b).collect();
    let size = norm(claimed).max(norm(found));
    // Both sides may be 0; a gap that is not a number is as bad as can be.
    let error = if size == 0.0 { 0.0 } else { norm(&gap) / size };
    OracleRow { quantity, error: if error.is_nan() { f64::INFINITY } else { error } }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}
