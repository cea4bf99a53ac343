//! eˣ and its relatives: expm1, tanh, sigmoid.
//!
//! x = n·ln 2 + r with |r| ≤ ½ ln 2, so eˣ = 2ⁿ·(1 + r + r²·q(r)) with q a polynomial fitted to (eʳ − 1 − r)/r².

use super::poly::poly_for;
use crate::kernels::maps::Unary;
use crate::simd::Float;

/// q for f32, error 1.4e-9.
const Q32: [f64; 6] = [
    0.500000001353873,
    0.16666666681704215,
    0.04166646419740569,
    0.008333310844647862,
    0.0013933730715792083,
    0.00019891080463998843,
];

/// q for f64, error 1.4e-18.
const Q64: [f64; 11] = [
    0.5,
    0.1666666666666667,
    0.04166666666666667,
    0.008333333333326084,
    0.0013888888888883711,
    0.0001984126987500228,
    2.480158732567746e-5,
    2.755725517000089e-6,
    2.755727347871858e-7,
    2.5105312729622103e-8,
    2.09147553258932e-9,
];

/// ln 2 as a head short enough that n times it is exact, and the rest, in vectors of the operand's type.
#[inline(always)]
pub(crate) fn ln2<V: Float>(like: V) -> (V, V) {
    if V::DOUBLE {
        (like.of(0.6931471805601177), like.of(-1.7239444525614835e-13))
    } else {
        (like.of(0.693145751953125), like.of(1.428606765330187e-6))
    }
}

/// (n, r, d) with eˣ = 2ⁿ·(1 + r + d), d small compared with 1 + r
///
/// r = x − n·head is exact; the subtrahend by the tail of ln 2, and r²·q(r), are both small and rounded together in d.
#[inline(always)]
pub(crate) fn reduce<V: Float>(x: V) -> (V, V, V) {
    let n = (x * x.of(std::f64::consts::LOG2_E)).round();
    let (head, tail) = ln2(x);
    let exact = n.mul_add(-head, x);
    let r = n.mul_add(-tail, exact);
    (n, exact, (r * r).mul_add(poly_for(r, &Q32, &Q64), n * -tail))
}

/// The arguments past which eˣ is 0 or ∞.
#[inline(always)]
pub(crate) fn in_range<V: Float>(x: V) -> V {
    if V::DOUBLE { x.clamp(-746.0, 710.0) } else { x.clamp(-104.0, 89.0) }
}

/// eˣ
#[inline(always)]
pub(crate) fn exp<V: Float>(x: V) -> V {
    let (n, r, d) = reduce(in_range(x));
    (x.of(1.0) + (r + d)).scale(n)
}

/// eˣ − 1 = 2ⁿ·((1 − 2⁻ⁿ) + r + d)
///
/// 1 − 2⁻ⁿ is exact if it matters, adding r to it is exact if they cancel, and the small part comes last.
#[inline(always)]
fn expm1<V: Float>(x: V) -> V {
    // Below the first bound the answer is −1 to the last bit.
    let held = if V::DOUBLE { x.clamp(-40.0, 710.0) } else { x.clamp(-20.0, 89.0) };
    let (n, r, d) = reduce(held);
    let unit = V::exp2i((-n).clamp(-60.0, 60.0));
    // The sign of the answer is that of x; only −0 needs telling.
    (((x.of(1.0) - unit) + r) + d).scale(n).copysign(x)
}

/// (tanh x/x − 1)/x² in x², |x| < 0.625, for f32, error 1.6e-9.
const T32: [f64; 6] = [
    -0.3333333316924158,
    0.13333303117990952,
    -0.0539591558022319,
    0.021768075495855292,
    -0.008341188925429174,
    0.0022896261863116227,
];

/// The same for f64, error 4e-18.
const T64: [f64; 12] = [
    -0.3333333333333333,
    0.1333333333333303,
    -0.05396825396788639,
    0.0218694885185552,
    -0.008863235093353298,
    0.0035921216257880605,
    -0.0014557744246177977,
    0.0005896556789868695,
    -0.000237574569188287,
    9.253899476295944e-5,
    -3.1164823912889704e-5,
    6.467533020977372e-6,
];

/// x + x³·T(x²) near 0; further out 1 − 2/(e²ˣ + 1) for |x|, with the sign of x
#[inline(always)]
fn tanh<V: Float>(x: V) -> V {
    let t = x.abs();
    let z = x * x;
    let near = (x * z).mul_add(poly_for(z, &T32, &T64), x);
    // Past the bound the answer is 1 to the last bit, and e²ˣ needs no care for overflow.
    let held = t.clamp(0.0, if V::DOUBLE { 22.0 } else { 10.0 });
    let (n, r, d) = reduce(held + held);
    let (one, two) = (x.of(1.0), x.of(2.0));
    let far = one - two / ((one + (r + d)).mul_add(V::exp2i(n), one));
    V::select(t.less(x.of(0.625)), near, far).copysign(x)
}

/// With z = e^−|x|: 1/(1 + z) for x ≥ 0, z/(1 + z) below, so that neither end overflows.
///
/// The rounding error of 1 + z is corrected in the quotient q: its relative change is that error times 1/(1 + z),
/// which is q itself or 1 − q.
#[inline(always)]
fn sigmoid<V: Float>(x: V) -> V {
    let z = exp(-x.abs());
    let one = x.of(1.0);
    let below = x.less(x.of(0.0));
    let sum = one + z;
    let lost = z - (sum - one);
    let q = V::select(below, z, one) / sum;
    let inverse = V::select(below, one - q, q);
    (q * lost).mul_add(-inverse, q)
}

/// Names a function for the tables.
macro_rules! name {
    ($name:ident, $f:ident, $doc:literal) => {
        #[doc = $doc]
        pub(crate) struct $name;
        impl<V: Float> Unary<V> for $name {
            #[inline(always)]
            fn apply(a: V) -> V {
                $f(a)
            }
        }
    };
}
name!(Exp, exp, "eˣ");
name!(Expm1, expm1, "eˣ − 1");
name!(Tanh, tanh, "tanh x");
name!(Sigmoid, sigmoid, "1/(1 + e⁻ˣ)");
