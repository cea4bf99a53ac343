//! Logarithms: ln x and ln(1 + x).
//!
//! x = 2ᵉ·(1 + f) with 1 + f in [√½, √2). With s = f/(2 + f), ln(1 + f) = 2 artanh s = f − f²/2 + s·(f²/2 + R(s²)),
//! which keeps f itself exact and leaves only small terms to round.

use super::exp::ln2;
use super::poly::poly_for;
use crate::kernels::maps::Unary;
use crate::simd::Float;

/// R(z)/z for f32, error 1.2e-9.
const R32: [f64; 4] = [0.666666665503856, 0.40000125187478847, 0.28550442710140894, 0.23340710133696319];

/// R(z)/z for f64, error 3.3e-16.
const R64: [f64; 7] = [
    0.666666666666667,
    0.39999999999893915,
    0.28571428628500795,
    0.2222221072440129,
    0.18182918892943603,
    0.15330736526779512,
    0.14628571557283904,
];

/// e·ln 2 + ln(1 + f)
#[inline(always)]
fn assemble<V: Float>(e: V, f: V) -> V {
    let half = f.of(0.5) * f * f;
    let s = f / (f.of(2.0) + f);
    let z = s * s;
    let r = z * poly_for(z, &R32, &R64);
    let (head, tail) = ln2(f);
    let small = s.mul_add(half + r, e * tail);
    e.mul_add(head, f - (half - small))
}

/// ±∞, NaN and negative arguments; `at_zero` is the argument of −∞.
#[inline(always)]
fn specials<V: Float>(x: V, y: V, at_zero: f64) -> V {
    // +∞ and NaN are their own logarithm.
    let y = V::select(x.less(x.of(f64::INFINITY)), y, x);
    let y = V::select(x.equal(x.of(at_zero)), x.of(f64::NEG_INFINITY), y);
    V::select(x.less(x.of(at_zero)), x.of(f64::NAN), y)
}

/// ln x
#[inline(always)]
pub(crate) fn log<V: Float>(x: V) -> V {
    // A subnormal is brought up by a power of two, taken off again from e.
    let (least, up, steps) = if V::DOUBLE {
        (f64::MIN_POSITIVE, 18014398509481984.0, 54.0)
    } else {
        (f32::MIN_POSITIVE as f64, 33554432.0, 25.0)
    };
    let tiny = x.less(x.of(least));
    let (e, m) = V::select(tiny, x * x.of(up), x).split();
    let e = V::select(tiny, e - x.of(steps), e);
    specials(x, assemble(e, m - x.of(1.0)), 0.0)
}

/// ln(1 + x)
///
/// 2ᵉ is found from the rounded 1 + x, but f = 2⁻ᵉ·x + (2⁻ᵉ − 1) from x itself, in which every step but the last is
/// exact. If x is so large that 1 makes no difference, f comes from the rounded sum.
#[inline(always)]
fn log1p<V: Float>(x: V) -> V {
    let one = x.of(1.0);
    let (e, m) = (one + x).split();
    let unit = V::exp2i((-e).clamp(-60.0, 60.0));
    let f = V::select(x.less(x.of(1e17)), unit.mul_add(x, unit - one), m - one);
    let y = assemble(e, f);
    // −0 and subnormals are their own logarithm; so is the sign.
    specials(x, V::select(x.equal(x.of(0.0)), x, y), -1.0)
}

/// ln x
pub(crate) struct Log;
impl<V: Float> Unary<V> for Log {
    #[inline(always)]
    fn apply(a: V) -> V {
        log(a)
    }
}

/// ln(1 + x)
pub(crate) struct Log1p;
impl<V: Float> Unary<V> for Log1p {
    #[inline(always)]
    fn apply(a: V) -> V {
        log1p(a)
    }
}
