//! eˣ and its relatives: expm1, tanh, sigmoid.
//!
//! x = n·ln 2 + r with |r| ≤ ½ ln 2, so eˣ = 2ⁿ·(1 + r + r²·q(r)) with q a polynomial fitted to (eʳ − 1 − r)/r².

use super::maps::Unary;
use super::poly::poly_for;
use super::simd::Float;

/// q for f32, error 1.4e-9.
const Q32: [f64; 6] = [
    0.5000000013538729887,
    0.1666666668170421504,
    0.04166646419740569232,
    0.008333310844647862564,
    0.00139337307157920825,
    0.0001989108046399884204,
];

/// q for f64, error 1.4e-18.
const Q64: [f64; 11] = [
    0.5,
    0.1666666666666667103,
    0.04166666666666666978,
    0.00833333333332608312,
    0.001388888888888371117,
    0.0001984126987500227879,
    0.0000248015873256774619,
    2.755725517000088744e-6,
    2.755727347871858047e-7,
    2.510531272962210179e-8,
    2.09147553258932022e-9,
];

/// ln 2 as a head short enough that n times it is exact, and the rest.
#[inline(always)]
pub(crate) fn ln2<V: Float>() -> (V, V) {
    if V::DOUBLE {
        (V::of(0.6931471805601177038624883), V::of(-1.723944452561483479263396e-13))
    } else {
        (V::of(0.693145751953125), V::of(0.000001428606765330187045037746))
    }
}

/// (n, r) with x = n·ln 2 + r.
#[inline(always)]
pub(crate) fn reduce<V: Float>(x: V) -> (V, V) {
    let n = (x * V::of(std::f64::consts::LOG2_E)).round();
    let (head, tail) = ln2::<V>();
    (n, n.mul_add(-tail, n.mul_add(-head, x)))
}

/// r²·q(r) = eʳ − 1 − r
#[inline(always)]
pub(crate) fn beyond<V: Float>(r: V) -> V {
    r * r * poly_for(r, &Q32, &Q64)
}

/// The arguments past which eˣ is 0 or ∞.
#[inline(always)]
pub(crate) fn in_range<V: Float>(x: V) -> V {
    if V::DOUBLE { x.clamp(-746.0, 710.0) } else { x.clamp(-104.0, 89.0) }
}

/// eˣ
#[inline(always)]
pub(crate) fn exp<V: Float>(x: V) -> V {
    let (n, r) = reduce(in_range(x));
    (V::of(1.0) + (r + beyond(r))).scale(n)
}

/// (a, b, n) with e^x = 2ⁿ·(1 + e) and a = 1 + e − 2⁻ⁿ, b = 1 + e + 2⁻ⁿ: so that eˣ − 1 = 2ⁿ·a and eˣ + 1 = 2ⁿ·b
/// without cancellation.
///
/// 1 ∓ 2⁻ⁿ is exact where it matters, adding r to it is exact where they cancel, and the small part comes last.
#[inline(always)]
fn beside_one<V: Float>(x: V) -> (V, V, V) {
    let (n, r) = reduce(x);
    let small = beyond(r);
    let unit = V::exp2i((-n).clamp(-60.0, 60.0));
    let one = V::of(1.0);
    (((one - unit) + r) + small, ((one + unit) + r) + small, n)
}

/// eˣ − 1
#[inline(always)]
fn expm1<V: Float>(x: V) -> V {
    // Below the first bound the answer is −1 to the last bit.
    let held = if V::DOUBLE { x.clamp(-40.0, 710.0) } else { x.clamp(-20.0, 89.0) };
    let (a, _, n) = beside_one(held);
    // The sign of the answer is that of x; only −0 needs telling.
    a.scale(n).copysign(x)
}

/// (e²ˣ − 1)/(e²ˣ + 1), for |x|, with the sign of x
#[inline(always)]
fn tanh<V: Float>(x: V) -> V {
    let bound = if V::DOUBLE { 22.0 } else { 10.0 };
    let held = x.abs().clamp(0.0, bound);
    let (a, b, _) = beside_one(held + held);
    (a / b).copysign(x)
}

/// With z = e^−|x|: 1/(1 + z) for x ≥ 0, z/(1 + z) below, so that neither end overflows.
#[inline(always)]
fn sigmoid<V: Float>(x: V) -> V {
    let z = exp(-x.abs());
    let one = V::of(1.0);
    V::select(x.less(V::of(0.0)), z, one) / (one + z)
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
