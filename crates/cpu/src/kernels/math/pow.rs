//! Powers: xʸ = e^(y·ln|x|), with the logarithm carried in more digits than the answer has.
//!
//! f32 is worked in f64. f64 carries ln|x| as an unevaluated sum of two floats (about 2⁻⁶⁵), because y·ln|x| up to 710
//! must be right to 2⁻⁵⁴.

use super::exp::{in_range, ln2, reduce};
use super::poly::poly;
use crate::kernels::maps::Binary;
use crate::simd::{Float, Widen};

/// log₂((1 + s)/(1 − s))/s in s², error 5e-16, and 2ʳ on |r| ≤ ½, error 8e-13: both far below an f32's last bit.
const LOG2: [f64; 7] = [
    2.885390081777927,
    0.9617966939242433,
    0.5770780172875559,
    0.41219839534843555,
    0.32061687409539147,
    0.2614281679939701,
    0.24311397366640258,
];
const EXP2: [f64; 9] = [
    1.0,
    0.6931471805458209,
    0.2402265069581221,
    0.055504109416557555,
    0.009618129159714186,
    0.001333345013657559,
    0.00015403455553573818,
    1.5310194339173322e-5,
    1.3255304503367413e-6,
];

/// 2^(y·log₂ x) in f64, good to f32.
pub(crate) struct Single;
impl<W: Float> Binary<W> for Single {
    #[inline(always)]
    fn apply(x: W, y: W) -> W {
        let (e, m) = x.abs().split();
        let s = (m - x.of(1.0)) / (m + x.of(1.0));
        let log = s.mul_add(poly(s * s, &LOG2), e);
        // Past these the f32 is 0 or ∞.
        let p = (y * log).clamp(-160.0, 140.0);
        let n = p.round();
        poly(p - n, &EXP2) * W::exp2i(n)
    }
}

/// (2·artanh t − 2t − ⅔t³)/t⁵ in t², error 1.4e-20.
const TAIL: [f64; 9] = [
    0.4,
    0.28571428571428564,
    0.2222222222222883,
    0.18181818179537482,
    0.15384615778495545,
    0.13333295179403346,
    0.11766871477459898,
    0.10455025389605348,
    0.10774170321533968,
];

/// a·b = p + e exactly
///
/// Without FMA by cutting both factors into halves of 26 bits, whose products are exact (Dekker).
#[inline(always)]
fn exact_product<V: Float>(a: V, b: V) -> (V, V) {
    let p = a * b;
    if V::FMA {
        return (p, a.mul_add(b, -p));
    }
    let cut = |x: V| {
        let c = x.of(134217729.0) * x;
        let high = c - (c - x);
        (high, x - high)
    };
    let ((ah, al), (bh, bl)) = (cut(a), cut(b));
    (p, ((ah * bh - p) + ah * bl + al * bh) + al * bl)
}

/// a + b = s + e exactly, for |a| ≥ |b| or a = 0
#[inline(always)]
fn exact_sum<V: Float>(a: V, b: V) -> (V, V) {
    let s = a + b;
    (s, b - (s - a))
}

/// ln x = h + l for positive finite x
///
/// x = 2ᵉ·m, t = (m − 1)/(m + 1): ln x = e·ln 2 + 2t + ⅔t³ + t⁵·T(t²), each large term with its rounding error.
#[inline(always)]
fn log_pair<V: Float>(x: V) -> (V, V) {
    let one = x.of(1.0);
    let tiny = x.less(x.of(f64::MIN_POSITIVE));
    let (e, m) = V::select(tiny, x * x.of(18014398509481984.0), x).split();
    let e = V::select(tiny, e - x.of(54.0), e);

    // t = above/below with below = bh + bl; one division serves the quotient and its correction.
    let above = m - one;
    let bh = m + one;
    let bl = m - (bh - one);
    let inverse = one / bh;
    let th = above * inverse;
    let (p, pe) = exact_product(th, bh);
    let tl = (((above - p) - pe) - th * bl) * inverse;

    let (zh, ze) = exact_product(th, th);
    let zl = (th + th).mul_add(tl, ze);
    let (ch, ce) = exact_product(zh, th);
    let cl = ce + zh.mul_add(tl, zl * th);
    let (third_h, third_l) = (x.of(0.6666666666666666), x.of(3.700743415417188e-17));
    let (dh, de) = exact_product(third_h, ch);
    let dl = de + third_h.mul_add(cl, third_l * ch);
    let rest = ch * zh * poly(zh, &TAIL);

    let (head, tail) = ln2(x);
    let (h, l1) = exact_sum(e * head, th + th);
    let (h, l2) = exact_sum(h, dh);
    let l = ((e * tail + (tl + tl)) + (l1 + l2)) + (dl + rest);
    exact_sum(h, l)
}

/// |x|ʸ in f64
#[inline(always)]
fn double<V: Float>(x: V, y: V) -> V {
    let (h, l) = log_pair(x.abs());
    // A larger y changes nothing: the answer is 0, 1 or ∞ already.
    let y = y.clamp(-73786976294838206464.0, 73786976294838206464.0);
    let (p, pe) = exact_product(y, h);
    let q = y.mul_add(l, pe);
    let q = V::select(p.abs().less(x.of(800.0)), q, x.of(0.0));
    let (n, r, rest) = reduce(in_range(p));
    // e^(r + q) = eʳ + q·eʳ, with q tiny.
    let grown = q.mul_add(r + rest, q);
    (x.of(1.0) + (r + (rest + grown))).scale(n)
}

/// Signs, zeros, infinities and NaN, as the C standard's `pow` has them; `y` ordinary is given by `m` = |x|ʸ.
#[inline(always)]
fn finish<V: Float>(x: V, y: V, m: V) -> V {
    let (zero, one, infinity) = (x.of(0.0), x.of(1.0), x.of(f64::INFINITY));
    let t = x.abs();
    // |x| of 0 or ∞: ∞ if the base grows with the exponent's sign.
    let grows = V::select(y.less(zero), zero, infinity);
    let shrinks = V::select(y.less(zero), infinity, zero);
    let m = V::select(t.equal(infinity), grows, m);
    let m = V::select(t.equal(zero), shrinks, m);
    // |y| = ∞: by whether |x| is above, at or below 1.
    let limit = V::select(one.less(t), grows, V::select(t.equal(one), one, shrinks));
    let m = V::select(y.abs().equal(infinity), limit, m);
    // A negative base: minus for odd y, NaN for y not whole (but −∞ has no sign to lose).
    let half = y * x.of(0.5);
    let whole = y.floor().equal(y);
    let odd = whole & !half.floor().equal(half);
    let m = m.bit_or(V::select(odd, x.bit_and(x.of(-0.0)), zero));
    let none = (x.less(zero) & x.of(f64::NEG_INFINITY).less(x) & !whole) | !x.equal(x) | !y.equal(y);
    let m = V::select(none, x.of(f64::NAN), m);
    V::select(x.equal(one) | y.equal(zero), one, m)
}

/// xʸ in f32.
pub(crate) struct Pow32;
impl<V: Widen> Binary<V> for Pow32 {
    #[inline(always)]
    fn apply(x: V, y: V) -> V {
        finish(x, y, x.widened::<Single>(y))
    }
}

/// xʸ in f64.
pub(crate) struct Pow64;
impl<V: Float> Binary<V> for Pow64 {
    #[inline(always)]
    fn apply(x: V, y: V) -> V {
        finish(x, y, double(x, y))
    }
}
