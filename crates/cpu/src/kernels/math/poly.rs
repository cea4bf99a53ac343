//! Polynomials, the core of every function below.

use crate::simd::Float;

/// c₀ + c₁x + c₂x² + …
#[inline(always)]
pub(crate) fn poly<V: Float>(x: V, c: &[f64]) -> V {
    let mut y = x.of(c[c.len() - 1]);
    for &k in c[..c.len() - 1].iter().rev() {
        y = y.mul_add(x, x.of(k));
    }
    y
}

/// The polynomial for the precision of the lanes.
#[inline(always)]
pub(crate) fn poly_for<V: Float>(x: V, single: &[f64], double: &[f64]) -> V {
    poly(x, if V::DOUBLE { double } else { single })
}
