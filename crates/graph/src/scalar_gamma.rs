//! The derivatives of ln Γ on single numbers: digamma ψ, and polygamma ψ⁽ⁿ⁾ of any order.
//!
//! Both shift their argument up until an asymptotic series in its inverse square holds (Abramowitz and Stegun 6.3.18 and 23.2.23),
//! and reflect negative arguments. Sums keep terms of one sign together, so that no digits cancel but at zeros on the negative axis.

use std::f64::consts::PI;

/// The zero of ψ among the positive numbers, 1.4616…, as the sum of two numbers.
const ROOT: [f64; 2] = [1.461_632_144_968_362_2, 9.549_995_429_965_697e-17];

/// From here on the asymptotic series of ψ is as exact as an f64.
const MIN_ASYMPTOTIC: f64 = 10.0;

/// −B₂ⱼ/(2j) for j = 1, 2, …: ψ(x) = ln x − 1/(2x) + Σ cⱼ/x²ʲ.
const TAIL: [f64; 7] =
    [-1.0 / 12.0, 1.0 / 120.0, -1.0 / 252.0, 1.0 / 240.0, -1.0 / 132.0, 691.0 / 32760.0, -1.0 / 12.0];

/// B₂ⱼ/(2j)! for j = 1, 2, …: the coefficients of Euler and Maclaurin.
const EULER_MACLAURIN: [f64; 10] = [
    8.333333333333333e-2,
    -1.388888888888889e-3,
    3.306878306878307e-5,
    -8.267195767195768e-7,
    2.08767569878681e-8,
    -5.284190138687493e-10,
    1.3382536530684679e-11,
    -3.3896802963225827e-13,
    8.586062056277845e-15,
    -2.174868698558062e-16,
];

/// ψ(x) = d ln Γ(x)/dx; −∞ at 0, ∞ at −0, NaN at negative whole numbers.
pub(crate) fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return -1.0 / x;
    }
    if x < 0.0 {
        // ψ(x) = ψ(1 − x) − π·cot πx, where the cotangent needs only the distance to a whole number.
        let fraction = x - x.round();
        return if fraction == 0.0 { f64::NAN } else { digamma(1.0 - x) - PI / (PI * fraction).tan() };
    }
    if x < 0.5 {
        return digamma(x + 1.0) - 1.0 / x;
    }
    if x >= MIN_ASYMPTOTIC {
        let square = 1.0 / (x * x);
        return x.ln() - 0.5 / x + square * TAIL.iter().rev().fold(0.0, |sum, c| sum * square + c);
    }
    // ψ(x) − ψ(x₀) with both arguments shifted up by the same number of steps: every term has the factor d = x − x₀, and so all
    // digits near the zero x₀.
    let [x0, rest] = ROOT;
    let d = (x - x0) - rest;
    let steps = MIN_ASYMPTOTIC as usize;
    let sum: f64 = (0..steps).map(|k| 1.0 / ((x + k as f64) * (x0 + k as f64))).sum();
    let (w, w0) = (x + MIN_ASYMPTOTIC, x0 + MIN_ASYMPTOTIC);
    let (p, q) = (1.0 / (w * w), 1.0 / (w0 * w0));
    let step = -d * (w + w0) * p * q;
    // pʲ − qʲ = p·(pʲ⁻¹ − qʲ⁻¹) + (p − q)·qʲ⁻¹.
    let (mut difference, mut power, mut tail) = (0.0, 1.0, 0.0);
    for c in TAIL {
        difference = p * difference + step * power;
        power *= q;
        tail += c * difference;
    }
    d * (sum + 0.5 / (w * w0)) + (d / w0).ln_1p() + tail
}

/// ψ⁽ⁿ⁾(x), the n-th derivative of ψ, for whole n from 0 to 170; else NaN. At 0 and negative whole numbers it is ∞ for odd n,
/// and NaN for even n, where the signs of both sides differ; at ±0 these are known.
pub(crate) fn polygamma(n: f64, x: f64) -> f64 {
    if n == 0.0 {
        return digamma(x);
    }
    // (n!) is not a number of f64 beyond.
    if !(1.0..=170.0).contains(&n) || n.floor() != n || x.is_nan() {
        return f64::NAN;
    }
    let s = n + 1.0;
    let factorial: f64 = (1..=n as usize).map(|k| k as f64).product();
    let odd = n % 2.0 == 1.0;
    let signed = if odd { factorial } else { -factorial };
    if x > 0.0 {
        return signed * hurwitz_zeta(s, x);
    }
    if x == 0.0 {
        return if odd { f64::INFINITY } else { -factorial / x };
    }
    // Σ 1/(x + k)ˢ over k ≥ 0, with a separate sum of the terms of negative x + k.
    let (above, below) = (x - x.floor(), x.ceil() - x);
    if above == 0.0 || above.is_nan() {
        return if odd && x.is_finite() { f64::INFINITY } else { f64::NAN };
    }
    let negative = hurwitz_zeta(s, below) - hurwitz_zeta(s, 1.0 - x);
    signed * (hurwitz_zeta(s, above) + if odd { negative } else { -negative })
}

/// ζ(s, a) = Σ 1/(a + k)ˢ over k ≥ 0, for whole s ≥ 2 and a > 0: the terms below a bound one by one, and the rest by the formula
/// of Euler and Maclaurin.
fn hurwitz_zeta(s: f64, a: f64) -> f64 {
    // Far enough that each term of the formula is less than a twentieth of the one before it.
    let bound = s + 10.0;
    let (mut w, mut sum) = (a, 0.0);
    while w < bound {
        sum += w.powf(-s);
        w += 1.0;
    }
    let first = w.powf(-s);
    let mut rest = w.powf(1.0 - s) / (s - 1.0) + 0.5 * first;
    let mut factor = first * s / w;
    for (j, c) in EULER_MACLAURIN.iter().enumerate() {
        rest += c * factor;
        let k = s + 2.0 * j as f64;
        factor *= (k + 1.0) * (k + 2.0) / (w * w);
    }
    sum + rest
}
