//! Sine and cosine.
//!
//! x = n·π/2 + r with |r| ≤ π/4; the last two bits of n say which of ±sin r, ±cos r is meant. π/2 is taken off in parts
//! so that r is right to its last bits for |x| ≤ 10⁴. Larger arguments go one by one through the standard library.

use super::maps::Unary;
use super::poly::poly_for;
use super::simd::{Float, Num};

/// Largest |x| the reduction is made for.
const LARGE: f64 = 1e4;

/// (sin r − r)/r³ in r², for f32 and f64.
const S32: [f64; 4] =
    [-0.1666666666383276448, 0.008333331865959414043, -0.0001984008201276553655, 2.724931405469880475e-6];
const S64: [f64; 7] = [
    -0.1666666666666666667,
    0.00833333333333333147,
    -0.0001984126984126501703,
    2.75573192193019187e-6,
    -2.505210621952189423e-8,
    1.605852957226787635e-10,
    -7.586576588171072463e-13,
];

/// (cos r − 1 + r²/2)/r⁴ in r², for f32 and f64.
const C32: [f64; 4] =
    [0.04166666666430240589, -0.001388888766471361966, 0.0000248005964356219968, -2.730044861948835488e-7];
const C64: [f64; 7] = [
    0.04166666666666666667,
    -0.001388888888888888785,
    0.00002480158730158461979,
    -2.755731922138211558e-7,
    2.087675578389403842e-9,
    -1.147045974967560614e-11,
    4.745804889760674174e-14,
];

/// π/2 in parts. With FMA each part is a full float. Without, every part but the last is short enough that n times it
/// is exact.
const FUSED32: [f64; 3] = [1.57079637050628662109375, -4.371138828673792886547744e-8, -1.715124510005881872803934e-15];
const FUSED64: [f64; 3] = [1.570796326794896557998982, 6.12323399573676603586882e-17, -1.497384904859169832943508e-33];
const PLAIN32: [f64; 4] =
    [1.5703125, 0.0004837512969970703125, 7.549533620476722717285156e-8, 2.563344068257089602980159e-12];
const PLAIN64: [f64; 4] = [
    1.57079632673412561416626,
    6.077100506303965976595549e-11,
    2.022266248711166455795996e-21,
    8.478427660368899569973654e-32,
];

/// sin(x + k·π/2) for |x| ≤ `LARGE`
#[inline(always)]
fn turned<V: Float>(x: V, k: f64) -> V {
    // The sum with the rounder holds n in its low bits; its difference is n as +0, never −0, so that r keeps x's sign.
    let t = x.mul_add(V::of(std::f64::consts::FRAC_2_PI), V::of(V::ROUNDER));
    let n = t - V::of(V::ROUNDER);
    let parts: &[f64] = match (V::FMA, V::DOUBLE) {
        (true, false) => &FUSED32,
        (true, true) => &FUSED64,
        (false, false) => &PLAIN32,
        (false, true) => &PLAIN64,
    };
    let mut r = x;
    for &p in parts {
        r = n.mul_add(V::of(-p), r);
    }
    let z = r * r;
    let sin = (r * z).mul_add(poly_for(z, &S32, &S64), r);
    let cos = (z * z).mul_add(poly_for(z, &C32, &C64), z.mul_add(V::of(-0.5), V::of(1.0)));
    // Bits 0 and 1 of n + k, moved up to where they are normal floats to compare with 0.
    let quadrant = (n + V::of(V::ROUNDER + k)).field_up();
    let bit = |b: u32| {
        let place = if V::DOUBLE { 52 + b } else { 23 + b };
        quadrant.bit_and(V::of_bits(1 << place)).equal(V::of(0.0))
    };
    let y = V::select(bit(0), sin, cos);
    V::select(bit(1), y, -y)
}

/// Answers `y` for ordinary arguments and f(x), element by element, for large ones.
#[inline(always)]
fn or_slow<V: Float>(x: V, y: V, f: fn(V::Elem) -> V::Elem) -> V {
    let large = V::of(LARGE).less(x.abs());
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
        let y = V::select(a.equal(V::of(0.0)), a, turned(a, 0.0));
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
