//! Sine and cosine.
//!
//! x = n·π/2 + r with |r| ≤ π/4; the last two bits of n select ±sin r or ±cos r. π/2 is subtracted in parts so that r
//! is right to its last bits for |x| ≤ 10⁴. Larger arguments go one by one through the standard library.

use super::poly::poly_for;
use crate::kernels::maps::Unary;
use crate::simd::{Float, Num};

/// Largest |x| the reduction is made for.
const MAX_REDUCED: f64 = 1e4;

/// (sin r − r)/r³ in r², for f32 and f64.
const S32: [f64; 4] = [-0.16666666663832763, 0.008333331865959415, -0.00019840082012765537, 2.7249314054698804e-6];
const S64: [f64; 7] = [
    -0.16666666666666666,
    0.008333333333333331,
    -0.00019841269841265017,
    2.755731921930192e-6,
    -2.5052106219521895e-8,
    1.6058529572267877e-10,
    -7.586576588171073e-13,
];

/// (cos r − 1 + r²/2)/r⁴ in r², for f32 and f64.
const C32: [f64; 4] = [0.0416666666643024, -0.0013888887664713619, 2.4800596435621998e-5, -2.7300448619488353e-7];
const C64: [f64; 7] = [
    0.041666666666666664,
    -0.0013888888888888887,
    2.4801587301584618e-5,
    -2.7557319221382114e-7,
    2.087675578389404e-9,
    -1.1470459749675607e-11,
    4.745804889760674e-14,
];

/// π/2 in parts. With FMA each part is a full float. Without, every part but the last is short enough that n times it
/// is exact.
const FUSED32: [f64; 3] = [1.5707963705062866, -4.371138828673793e-8, -1.7151245100058819e-15];
const FUSED64: [f64; 3] = [std::f64::consts::FRAC_PI_2, 6.123233995736766e-17, -1.4973849048591698e-33];
const PLAIN32: [f64; 4] = [1.5703125, 0.0004837512969970703, 7.549533620476723e-8, 2.5633440682570896e-12];
const PLAIN64: [f64; 4] = [1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32];

/// sin(x + k·π/2) for |x| ≤ `MAX_REDUCED`
#[inline(always)]
fn turned<V: Float>(x: V, k: f64) -> V {
    // The sum with the rounder holds n in its low bits; its difference is n as +0, never −0, so that r keeps x's sign.
    let t = x.mul_add(x.of(std::f64::consts::FRAC_2_PI), x.of(V::ROUNDER));
    let n = t - x.of(V::ROUNDER);
    let parts: &[f64] = match (V::FMA, V::DOUBLE) {
        (true, false) => &FUSED32,
        (true, true) => &FUSED64,
        (false, false) => &PLAIN32,
        (false, true) => &PLAIN64,
    };
    let mut r = x;
    for &p in parts {
        r = n.mul_add(x.of(-p), r);
    }
    let z = r * r;
    let sin = (r * z).mul_add(poly_for(z, &S32, &S64), r);
    let cos = (z * z).mul_add(poly_for(z, &C32, &C64), z.mul_add(x.of(-0.5), x.of(1.0)));
    // Bits 0 and 1 of n + k, moved up to where they are normal floats to compare with 0.
    let quadrant = (n + x.of(V::ROUNDER + k)).field_up();
    let bit = |b: u32| {
        let place = if V::DOUBLE { 52 + b } else { 23 + b };
        quadrant.bit_and(x.of_bits(1 << place)).equal(x.of(0.0))
    };
    let y = V::select(bit(0), sin, cos);
    V::select(bit(1), y, -y)
}

/// Answers `y` for ordinary arguments and f(x), element by element, for large ones.
#[inline(always)]
fn or_slow<V: Float>(x: V, y: V, f: fn(V::Elem) -> V::Elem) -> V {
    let large = x.of(MAX_REDUCED).less(x.abs());
    if V::mask_bits(large) == 0 { y } else { V::select(large, x.each(f), y) }
}

/// The standard library's functions of one number.
pub(crate) trait Slow: Num {
    /// sin x
    fn slow_sin(self) -> Self;
    /// cos x
    fn slow_cos(self) -> Self;
}
impl Slow for f32 {
    fn slow_sin(self) -> f32 {
        self.sin()
    }
    fn slow_cos(self) -> f32 {
        self.cos()
    }
}
impl Slow for f64 {
    fn slow_sin(self) -> f64 {
        self.sin()
    }
    fn slow_cos(self) -> f64 {
        self.cos()
    }
}

/// sin x
pub(crate) struct Sin;
impl<V: Float> Unary<V> for Sin
where
    V::Elem: Slow,
{
    #[inline(always)]
    fn apply(a: V) -> V {
        let y = V::select(a.equal(a.of(0.0)), a, turned(a, 0.0));
        or_slow(a, y, V::Elem::slow_sin)
    }
}

/// cos x
pub(crate) struct Cos;
impl<V: Float> Unary<V> for Cos
where
    V::Elem: Slow,
{
    #[inline(always)]
    fn apply(a: V) -> V {
        or_slow(a, turned(a, 1.0), V::Elem::slow_cos)
    }
}
