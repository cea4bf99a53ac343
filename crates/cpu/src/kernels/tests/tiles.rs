//! Every kernel on every instruction set against one-element-at-a-time references, for all short lengths, in place and
//! apart, at starts that are not multiples of a register.

use crate::kernels::*;
use bilevel_graph::scalar;
use std::fmt::Debug;

/// Lengths below, at and above the register widths.
fn lengths() -> impl Iterator<Item = usize> {
    (0..70).chain([1000])
}

/// A type of element: values for tests and the reference functions.
trait Element: Copy + PartialEq + Debug + 'static {
    const DTYPE: DType;
    /// Filler that no kernel writes.
    const GUARD: Self;
    /// The i-th test value, special ones among them.
    fn sample(i: usize) -> Self;
    /// The bits, with every NaN alike.
    fn bits(self) -> u64;
    fn unary(op: UnaryOp, a: Self) -> Option<Self>;
    fn binary(op: BinaryOp, a: Self, b: Self) -> Option<Self>;
    fn fused(op: FusedOp, a: Self, b: Self, c: Self) -> Self;
    fn is_zero(self) -> bool;
    fn larger(a: Self, b: Self) -> Self;
    fn from_f64(x: f64) -> Self;
    fn to_f64(self) -> f64;
}

macro_rules! floats {
    ($t:ident, $dtype:expr) => {
        impl Element for $t {
            const DTYPE: DType = $dtype;
            const GUARD: $t = 12345.0;

            fn sample(i: usize) -> $t {
                let special =
                    [0.0, -0.0, 1.0, -1.0, $t::INFINITY, $t::NEG_INFINITY, $t::NAN, 2.5, -2.5, $t::MIN_POSITIVE];
                match i.wrapping_mul(7) % 31 {
                    k if k < special.len() => special[k],
                    k => (k as $t - 20.0) * 1.37 + (i % 13) as $t * 0.25,
                }
            }
            fn bits(self) -> u64 {
                if self.is_nan() { u64::MAX } else { self.to_bits() as u64 }
            }
            fn unary(op: UnaryOp, a: $t) -> Option<$t> {
                use UnaryOp::{Abs, Floor, Neg, Recip, Sign, Sqrt};
                let exact = matches!(op, Neg | Abs | Sign | Floor | Recip | Sqrt);
                exact.then(|| scalar::unary(op, a as f64, $dtype) as $t)
            }
            fn binary(op: BinaryOp, a: $t, b: $t) -> Option<$t> {
                (op != BinaryOp::Pow).then(|| scalar::binary(op, a as f64, b as f64, $dtype) as $t)
            }
            fn fused(op: FusedOp, a: $t, b: $t, c: $t) -> $t {
                match op {
                    FusedOp::MulAdd => a * b + c,
                    FusedOp::MulSub => a * b - c,
                    FusedOp::SubMul => c - a * b,
                }
            }
            fn is_zero(self) -> bool {
                self == 0.0
            }
            fn larger(a: $t, b: $t) -> $t {
                Self::binary(BinaryOp::Max, a, b).unwrap()
            }
            fn from_f64(x: f64) -> $t {
                x as $t
            }
            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    };
}
floats!(f32, DType::F32);
floats!(f64, DType::F64);

impl Element for i32 {
    const DTYPE: DType = DType::I32;
    const GUARD: i32 = 12345;

    fn sample(i: usize) -> i32 {
        let special = [0, 1, -1, i32::MAX, i32::MIN, 65536];
        match i.wrapping_mul(7) % 31 {
            k if k < special.len() => special[k],
            k => (k as i32 - 18) * 1234567 + i as i32,
        }
    }
    fn bits(self) -> u64 {
        self as u32 as u64
    }
    fn unary(op: UnaryOp, a: i32) -> Option<i32> {
        match op {
            UnaryOp::Neg => Some(a.wrapping_neg()),
            UnaryOp::Abs => Some(a.wrapping_abs()),
            UnaryOp::Sign => Some(a.signum()),
            _ => None,
        }
    }
    fn binary(op: BinaryOp, a: i32, b: i32) -> Option<i32> {
        Some(match op {
            BinaryOp::Add => a.wrapping_add(b),
            BinaryOp::Sub => a.wrapping_sub(b),
            BinaryOp::Mul => a.wrapping_mul(b),
            BinaryOp::Max => a.max(b),
            BinaryOp::Min => a.min(b),
            BinaryOp::Eq => (a == b) as i32,
            BinaryOp::Ne => (a != b) as i32,
            BinaryOp::Lt => (a < b) as i32,
            BinaryOp::Le => (a <= b) as i32,
            BinaryOp::Div | BinaryOp::Pow | BinaryOp::Polygamma => return None,
        })
    }
    fn fused(op: FusedOp, a: i32, b: i32, c: i32) -> i32 {
        match op {
            FusedOp::MulAdd => a.wrapping_mul(b).wrapping_add(c),
            FusedOp::MulSub => a.wrapping_mul(b).wrapping_sub(c),
            FusedOp::SubMul => c.wrapping_sub(a.wrapping_mul(b)),
        }
    }
    fn is_zero(self) -> bool {
        self == 0
    }
    fn larger(a: i32, b: i32) -> i32 {
        a.max(b)
    }
    fn from_f64(x: f64) -> i32 {
        x as i32
    }
    fn to_f64(self) -> f64 {
        self as f64
    }
}

/// Runs a check for every element type.
macro_rules! for_types {
    ($($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            for isa in Isa::available() {
                checks::$name::<f32>(isa);
                checks::$name::<f64>(isa);
                checks::$name::<i32>(isa);
            }
        })+
    };
}
for_types!(unary_kernels, binary_kernels, ternary_kernels, moving_kernels, row_kernels, accumulating_kernels);

#[test]
fn rounding_kernels() {
    Isa::available().into_iter().for_each(checks::rounding);
}

/// A tile of n samples from the k-th on, one element past an aligned start, with guards before and after.
struct GuardedTile<T> {
    all: Vec<T>,
    n: usize,
}

impl<T: Element> GuardedTile<T> {
    fn new(n: usize, k: usize) -> GuardedTile<T> {
        let mut all = vec![T::GUARD; n + 18];
        all.iter_mut().skip(1).take(n).enumerate().for_each(|(i, x)| *x = T::sample(i * 3 + k));
        GuardedTile { all, n }
    }
    fn at(&mut self) -> *mut u8 {
        self.all[1..].as_mut_ptr().cast()
    }
    fn values(&self) -> &[T] {
        &self.all[1..1 + self.n]
    }
    /// Panics where an element is not the wanted one, or a guard was written.
    fn expect(&self, what: &str, want: impl Fn(usize) -> T) {
        for (i, &x) in self.values().iter().enumerate() {
            assert_eq!(x.bits(), want(i).bits(), "{what}, n {}, element {i}: {x:?}, want {:?}", self.n, want(i));
        }
        let guards = self.all[..1].iter().chain(&self.all[1 + self.n..]);
        guards.for_each(|g| assert_eq!(*g, T::GUARD, "{what}, n {}: wrote outside", self.n));
    }
}

const ARITIES: [Arity; 2] = [Arity::Tile, Arity::Scalar];

/// The element an operand shows at place i.
fn seen<T: Copy>(values: &[T], arity: Arity, i: usize) -> T {
    values[if arity == Arity::Scalar { 0 } else { i }]
}

mod checks {
    use super::*;

    pub fn unary_kernels<T: Element>(isa: Isa) {
        for op in UnaryOp::ALL {
            let Some(f) = unary(isa, op, T::DTYPE) else {
                assert!(T::DTYPE == DType::I32 && T::unary(op, T::sample(0)).is_none());
                continue;
            };
            for n in lengths() {
                let what = format!("{isa:?} {} {op:?}", T::DTYPE);
                let (mut a, mut d) = (GuardedTile::<T>::new(n, n), GuardedTile::<T>::new(n, 0));
                kernel!(f(d.at(), a.at(), n));
                let source = a.values().to_vec();
                if T::unary(op, T::sample(0)).is_some() {
                    d.expect(&what, |i| T::unary(op, source[i]).unwrap());
                } else {
                    // Accuracy is checked elsewhere; here only that an answer does not depend on its place.
                    let mut one = GuardedTile::<T>::new(n, 0);
                    for i in 0..n {
                        kernel!(f(one.at().add(i * T::DTYPE.size()), a.at().add(i * T::DTYPE.size()), 1));
                    }
                    let alone = one.values().to_vec();
                    d.expect(&what, |i| alone[i]);
                }
                kernel!(f(a.at(), a.at(), n));
                a.expect(&format!("{what} in place"), |i| d.values()[i]);
            }
        }
    }

    pub fn binary_kernels<T: Element>(isa: Isa) {
        for op in BinaryOp::ALL {
            for (x, y) in ARITIES.iter().flat_map(|&x| ARITIES.map(|y| (x, y))) {
                let Some(f) = binary(isa, op, T::DTYPE, x, y) else {
                    assert!(T::binary(op, T::sample(0), T::sample(1)).is_none());
                    continue;
                };
                for n in lengths() {
                    let what = format!("{isa:?} {} {op:?} {x:?} {y:?}", T::DTYPE);
                    let (mut a, mut b) = (GuardedTile::<T>::new(n.max(1), n), GuardedTile::<T>::new(n.max(1), 5));
                    let mut d = GuardedTile::<T>::new(n, 0);
                    kernel!(f(d.at(), a.at(), b.at(), n));
                    let (u, v) = (a.values().to_vec(), b.values().to_vec());
                    let whole = d.values().to_vec();
                    let size = T::DTYPE.size();
                    d.expect(&what, |i| {
                        T::binary(op, seen(&u, x, i), seen(&v, y, i)).unwrap_or_else(|| {
                            let mut one = [T::GUARD];
                            let place = |arity| if arity == Arity::Scalar { 0 } else { i * size };
                            let (p, q) = (u.as_ptr().cast::<u8>(), v.as_ptr().cast::<u8>());
                            kernel!(f(one.as_mut_ptr().cast(), p.add(place(x)), q.add(place(y)), 1));
                            one[0]
                        })
                    });
                    if n > 0 && x == Arity::Tile {
                        kernel!(f(a.at(), a.at(), b.at(), n));
                        a.expect(&format!("{what} onto a"), |i| whole[i]);
                    }
                    if n > 0 && y == Arity::Tile {
                        let mut a = GuardedTile::<T>::new(n, n);
                        kernel!(f(b.at(), a.at(), b.at(), n));
                        b.expect(&format!("{what} onto b"), |i| whole[i]);
                    }
                }
            }
        }
    }

    pub fn ternary_kernels<T: Element>(isa: Isa) {
        for (x, y) in ARITIES.iter().flat_map(|&x| ARITIES.map(|y| (x, y))) {
            for z in ARITIES {
                for n in lengths() {
                    let [mut a, mut b, mut c] = [n, 5, 9].map(|k| GuardedTile::<T>::new(n.max(1), k));
                    let (u, v, w) = (a.values().to_vec(), b.values().to_vec(), c.values().to_vec());
                    for op in FusedOp::ALL {
                        let mut d = GuardedTile::<T>::new(n, 0);
                        let f = fused(isa, op, T::DTYPE, x, y, z);
                        kernel!(f(d.at(), a.at(), b.at(), c.at(), n));
                        let what = format!("{isa:?} {} {op:?} {x:?} {y:?} {z:?}", T::DTYPE);
                        d.expect(&what, |i| T::fused(op, seen(&u, x, i), seen(&v, y, i), seen(&w, z, i)));
                        if n > 0 && z == Arity::Tile {
                            let mut c = GuardedTile::<T>::new(n, 9);
                            kernel!(f(c.at(), a.at(), b.at(), c.at(), n));
                            c.expect(&what, |i| d.values()[i]);
                        }
                    }
                    let mut d = GuardedTile::<T>::new(n, 0);
                    let f = select(isa, T::DTYPE, y, z);
                    kernel!(f(d.at(), a.at(), b.at(), c.at(), n));
                    let what = format!("{isa:?} {} select {y:?} {z:?}", T::DTYPE);
                    d.expect(&what, |i| if u[i].is_zero() { seen(&w, z, i) } else { seen(&v, y, i) });
                    if n > 0 {
                        let mut m = GuardedTile::<T>::new(n, n);
                        kernel!(f(m.at(), m.at(), b.at(), c.at(), n));
                        m.expect(&what, |i| d.values()[i]);
                    }
                }
            }
        }
    }

    pub fn moving_kernels<T: Element>(isa: Isa) {
        for n in lengths() {
            let what = |name: &str| format!("{isa:?} {} {name}", T::DTYPE);
            let mut a = GuardedTile::<T>::new(n, n);
            let u = a.values().to_vec();
            let mut d = GuardedTile::<T>::new(n, 1);
            kernel!(copy(T::DTYPE)(d.at(), a.at(), n));
            d.expect(&what("copy"), |i| u[i]);
            let mut d = GuardedTile::<T>::new(n, 1);
            let value = [T::sample(20)];
            kernel!(fill(isa, T::DTYPE)(d.at(), value.as_ptr().cast(), n));
            d.expect(&what("fill"), |_| value[0]);
            let mut d = GuardedTile::<T>::new(n, 1);
            kernel!(iota(isa, T::DTYPE)(d.at(), -3.0, 5.0, n));
            d.expect(&what("iota"), |i| T::from_f64(i as f64 * 5.0 - 3.0));
            for stride in [-3isize, -1, 0, 1, 2, 7] {
                let source: Vec<T> = (0..n.max(1) * 7).map(T::sample).collect();
                let start = if stride < 0 { source.len() - 1 } else { 0 };
                let mut d = GuardedTile::<T>::new(n, 1);
                kernel!(copy_strided(isa, T::DTYPE)(d.at(), source[start..].as_ptr().cast(), stride, n));
                d.expect(&what("copy_strided"), |i| source[(start as isize + stride * i as isize) as usize]);
            }
            for l in [1, 2, 3, 8, 10, 16, 17, 64, 100] {
                if n <= 70 {
                    let mut d = GuardedTile::<T>::new(n * l, 1);
                    kernel!(repeat(isa, T::DTYPE)(d.at(), a.at(), n, l));
                    d.expect(&what(&format!("repeat {l}")), |i| u[i / l]);
                }
            }
            convert_to::<T, f32>(isa, n, |x| x as f32);
            convert_to::<T, f64>(isa, n, |x| x);
            convert_to::<T, i32>(isa, n, |x| x as i32);
        }
    }

    /// Every conversion goes through f64 without loss, so `as` from there is the reference.
    fn convert_to<T: Element, U: Element>(isa: Isa, n: usize, of: fn(f64) -> U) {
        let what = format!("{isa:?} {} to {}", T::DTYPE, U::DTYPE);
        let mut a = GuardedTile::<T>::new(n, n);
        for (i, x) in [2147483648.0, -2147483904.0, 3e9, -3e9, 2147483520.0, 0.99, -0.99, 1e30].iter().enumerate() {
            if i < n {
                a.all[1 + i] = T::from_f64(*x);
            }
        }
        let u = a.values().to_vec();
        let mut d = GuardedTile::<U>::new(n, 1);
        let f = convert(isa, T::DTYPE, U::DTYPE);
        kernel!(f(d.at(), a.at(), n));
        d.expect(&what, |i| of(u[i].to_f64()));
        if T::DTYPE.size() == U::DTYPE.size() {
            kernel!(f(a.at(), a.at(), n));
            let after: Vec<U> = (0..n).map(|i| kernel!(a.at().cast::<U>().add(i).read())).collect();
            after.iter().enumerate().for_each(|(i, x)| assert_eq!(x.bits(), d.values()[i].bits(), "{what} in place"));
        }
    }

    /// Rounded as [`Precision::round`] says, apart and in place.
    pub fn rounding(isa: Isa) {
        for n in lengths() {
            for precision in Precision::ALL {
                let what = format!("{isa:?} {precision}");
                let mut a = GuardedTile::<f32>::new(n, n);
                for (i, x) in [1.0 + 1.0 / 256.0, f32::MAX, 1e-40, 1.0 + 3.0 / 2048.0].iter().enumerate() {
                    if i < n {
                        a.all[1 + i] = *x;
                    }
                }
                let u = a.values().to_vec();
                let mut d = GuardedTile::<f32>::new(n, 1);
                kernel!(round(isa, precision)(d.at(), a.at(), n));
                d.expect(&what, |i| precision.round(u[i]));
                kernel!(round(isa, precision)(a.at(), a.at(), n));
                a.expect(&format!("{what} in place"), |i| precision.round(u[i]));
            }
        }
    }

    pub fn row_kernels<T: Element>(isa: Isa) {
        for l in (0..70).chain([127, 128, 129, 256, 1000, 4096, 5000]) {
            for r in [0, 1, 3, 8, 16, 17, 70] {
                if r * l > 20_000 {
                    continue;
                }
                let what = |name: &str| format!("{isa:?} {} {name} [{r}, {l}]", T::DTYPE);
                let (mut a, mut b) = (GuardedTile::<T>::new(r * l, l), GuardedTile::<T>::new(r * l, 3));
                let (u, v) = (a.values().to_vec(), b.values().to_vec());
                let row = |i: usize| u[i * l..(i + 1) * l].iter().copied();
                let mut d = GuardedTile::<T>::new(r, 1);
                kernel!(row_max(isa, T::DTYPE)(d.at(), a.at(), r, l));
                if l > 0 {
                    d.expect(&what("row_max"), |i| plus_zero(row(i).reduce(T::larger).unwrap(), d.values()[i]));
                    let mut d = GuardedTile::<i32>::new(r, 1);
                    kernel!(row_argmax(isa, T::DTYPE)(d.at(), a.at(), r, l));
                    d.expect(&what("row_argmax"), |i| {
                        let top = row(i).reduce(T::larger).unwrap();
                        let is = |x: T| {
                            if top.bits() == u64::MAX { x.bits() == u64::MAX } else { x == top }
                        };
                        row(i).position(is).unwrap() as i32
                    });
                }
                // The order is that of a row on its own, on every instruction set.
                let mut d = GuardedTile::<T>::new(r, 1);
                kernel!(row_sum(isa, T::DTYPE)(d.at(), a.at(), r, l));
                let alone = |a: &[T]| {
                    let mut one = [T::GUARD];
                    let f = row_sum(Isa::Portable, T::DTYPE);
                    kernel!(f(one.as_mut_ptr().cast(), a.as_ptr().cast(), 1, l));
                    one[0]
                };
                d.expect(&what("row_sum"), |i| alone(&u[i * l..(i + 1) * l]));
                let mut d = GuardedTile::<T>::new(r, 1);
                kernel!(row_dot(isa, T::DTYPE)(d.at(), a.at(), b.at(), r, l));
                let product: Vec<T> =
                    u.iter().zip(&v).map(|(&x, &y)| T::binary(BinaryOp::Mul, x, y).unwrap()).collect();
                d.expect(&what("row_dot"), |i| alone(&product[i * l..(i + 1) * l]));
            }
        }
    }

    /// Which of two equal zeros is the largest is not told.
    fn plus_zero<T: Element>(want: T, got: T) -> T {
        if want.is_zero() && got.is_zero() { got } else { want }
    }

    pub fn accumulating_kernels<T: Element>(isa: Isa) {
        for n in lengths() {
            let mut a = GuardedTile::<T>::new(n, 2);
            let before = GuardedTile::<T>::new(n, 11).values().to_vec();
            let u = a.values().to_vec();
            let mut d = GuardedTile::<T>::new(n, 11);
            kernel!(accumulate(isa, T::DTYPE)(d.at(), a.at(), n));
            d.expect("accumulate", |i| T::binary(BinaryOp::Add, before[i], u[i]).unwrap());
            let mut d = GuardedTile::<T>::new(n, 11);
            kernel!(accumulate_max(isa, T::DTYPE)(d.at(), a.at(), n));
            d.expect("accumulate_max", |i| T::larger(before[i], u[i]));
        }
    }
}

#[test]
fn sums_are_accurate() {
    for isa in Isa::available() {
        for l in [1000, 3000, 10_000, 100_000] {
            let x: Vec<f32> = (0..l).map(|i| ((i * 7919) % 10007) as f32 / 10007.0).collect();
            let want: f64 = x.iter().map(|&x| x as f64).sum();
            let mut got = [0f32];
            kernel!(row_sum(isa, DType::F32)(got.as_mut_ptr().cast(), x.as_ptr().cast(), 1, l));
            assert!((got[0] as f64 - want).abs() < 1e-6 * want, "{isa:?} {l}");
        }
        let mut got = [1f64];
        kernel!(row_sum(isa, DType::F64)(got.as_mut_ptr().cast(), std::ptr::dangling(), 1, 0));
        assert_eq!(got, [0.0]);
        kernel!(row_max(isa, DType::F64)(got.as_mut_ptr().cast(), std::ptr::dangling(), 1, 0));
        assert_eq!(got, [f64::NEG_INFINITY]);
    }
}
