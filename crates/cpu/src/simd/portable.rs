//! Vectors for any machine, left to the compiler: plain numbers as vectors of one lane, and arrays of numbers as the
//! vectors of blocks.

use super::{Binary, Float, Fold, GemmVector, MAX_LANES, Num, Vector, Widen};

/// 1 × f32.
pub(crate) type F32x1 = f32;
/// 1 × f64.
pub(crate) type F64x1 = f64;
/// 1 × i32.
pub(crate) type I32x1 = i32;

/// A number as a vector.
macro_rules! vector {
    ($($t:ident),+) => {$(
        impl Vector for $t {
            type Elem = $t;
            const LANES: usize = 1;

            #[inline(always)]
            unsafe fn splat(x: $t) -> $t {
                x
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> $t {
                // SAFETY: the caller promises one element at `p`.
                unsafe { p.read_unaligned() }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $t) {
                // SAFETY: the caller promises room for one element at `p`.
                unsafe { p.write_unaligned(self) }
            }
        }
    )+};
}
vector!(f32, f64, i32);

/// The methods of all numbers; a truth value with the bit operators of the trait is `bool` itself.
macro_rules! shared {
    ($t:ident) => {
        type Mask = bool;

        #[inline(always)]
        unsafe fn load_part(_: *const $t, _: usize, rest: $t) -> $t {
            rest
        }
        #[inline(always)]
        unsafe fn store_part(self, _: *mut $t, _: usize) {}
        #[inline(always)]
        fn equal(self, b: $t) -> bool {
            self == b
        }
        #[inline(always)]
        fn less(self, b: $t) -> bool {
            self < b
        }
        #[inline(always)]
        fn at_most(self, b: $t) -> bool {
            self <= b
        }
        #[inline(always)]
        fn select(m: bool, a: $t, b: $t) -> $t {
            if m { a } else { b }
        }
        #[inline(always)]
        fn mask_bits(m: bool) -> u32 {
            m as u32
        }
        #[inline(always)]
        fn fold_sum(self) -> $t {
            self
        }
        #[inline(always)]
        fn fold_max(self) -> $t {
            self
        }
        #[inline(always)]
        fn fold_each<F: Fold<$t>>(rows: &[$t; MAX_LANES]) -> $t {
            rows[0]
        }
    };
}

macro_rules! float {
    ($t:ident, $int:ident, $double:literal, $rounder:expr, $bias:expr, $shift:literal) => {
        impl Num for $t {
            shared!($t);
            const LEAST: $t = $t::NEG_INFINITY;
            const ZERO: $t = 0.0;

            #[inline(always)]
            fn plus(self, b: $t) -> $t {
                self + b
            }
            #[inline(always)]
            fn minus(self, b: $t) -> $t {
                self - b
            }
            #[inline(always)]
            fn times(self, b: $t) -> $t {
                self * b
            }
            #[inline(always)]
            fn max(self, b: $t) -> $t {
                let larger = if b > self { b } else { self };
                if b.is_nan() { b } else { larger }
            }
            #[inline(always)]
            fn min(self, b: $t) -> $t {
                let smaller = if b < self { b } else { self };
                if b.is_nan() { b } else { smaller }
            }
            #[inline(always)]
            fn negated(self) -> $t {
                -self
            }
            #[inline(always)]
            fn abs(self) -> $t {
                $t::abs(self)
            }
            #[inline(always)]
            fn sign(self) -> $t {
                if self > 0.0 {
                    1.0
                } else if self < 0.0 {
                    -1.0
                } else {
                    self
                }
            }
            #[inline(always)]
            fn truth(self, m: bool) -> $t {
                if m { 1.0 } else { 0.0 }
            }
        }

        impl Float for $t {
            const FMA: bool = false;
            const DOUBLE: bool = $double;
            const ROUNDER: f64 = $rounder;
            const BIAS: f64 = $bias;

            #[inline(always)]
            fn of(self, x: f64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn of_bits(self, bits: u64) -> $t {
                $t::from_bits(bits as $int)
            }
            #[inline(always)]
            fn mul_add(self, b: $t, c: $t) -> $t {
                self * b + c
            }
            #[inline(always)]
            fn sqrt(self) -> $t {
                $t::sqrt(self)
            }
            // Without SSE4.1 or the like `floor` is a call. Adding 2²³ or 2⁵² with the sign of x rounds to a whole
            // number; larger numbers are already whole.
            #[inline(always)]
            fn floor(self) -> $t {
                let large = ($rounder / 1.5) as $t;
                let shift = $t::copysign(large, self);
                let near = (self + shift) - shift;
                let down = if near > self { near - 1.0 } else { near };
                if $t::abs(self) < large { $t::copysign(down, self) } else { self }
            }
            #[inline(always)]
            fn clamp(self, low: f64, high: f64) -> $t {
                let x = if self > high as $t { high as $t } else { self };
                if x < low as $t { low as $t } else { x }
            }
            #[inline(always)]
            fn bit_and(self, b: $t) -> $t {
                $t::from_bits(self.to_bits() & b.to_bits())
            }
            #[inline(always)]
            fn bit_or(self, b: $t) -> $t {
                $t::from_bits(self.to_bits() | b.to_bits())
            }
            #[inline(always)]
            fn bit_add(self, b: $t) -> $t {
                $t::from_bits(self.to_bits().wrapping_add(b.to_bits()))
            }
            #[inline(always)]
            fn bit_sub(self, b: $t) -> $t {
                $t::from_bits(self.to_bits().wrapping_sub(b.to_bits()))
            }
            #[inline(always)]
            fn field_down(self) -> $t {
                $t::from_bits(self.to_bits() >> $shift)
            }
            #[inline(always)]
            fn field_up(self) -> $t {
                $t::from_bits(self.to_bits() << $shift)
            }
            #[inline(always)]
            fn round(self) -> $t {
                (self + $rounder) - $rounder
            }
            #[inline(always)]
            fn each(self, f: fn($t) -> $t) -> $t {
                f(self)
            }
        }
    };
}

float!(f32, u32, false, 12582912.0, 127.0, 23);
float!(f64, u64, true, 6755399441055744.0, 1023.0, 52);

impl Widen for f32 {
    type Wide = f64;
    #[inline(always)]
    fn widened<O: Binary<f64>>(self, b: f32) -> f32 {
        O::apply(self as f64, b as f64) as f32
    }
}

impl Num for i32 {
    shared!(i32);
    const LEAST: i32 = i32::MIN;
    const ZERO: i32 = 0;

    #[inline(always)]
    fn plus(self, b: i32) -> i32 {
        self.wrapping_add(b)
    }
    #[inline(always)]
    fn minus(self, b: i32) -> i32 {
        self.wrapping_sub(b)
    }
    #[inline(always)]
    fn times(self, b: i32) -> i32 {
        self.wrapping_mul(b)
    }
    #[inline(always)]
    fn max(self, b: i32) -> i32 {
        Ord::max(self, b)
    }
    #[inline(always)]
    fn min(self, b: i32) -> i32 {
        Ord::min(self, b)
    }
    #[inline(always)]
    fn negated(self) -> i32 {
        self.wrapping_neg()
    }
    #[inline(always)]
    fn abs(self) -> i32 {
        self.wrapping_abs()
    }
    #[inline(always)]
    fn sign(self) -> i32 {
        self.signum()
    }
    #[inline(always)]
    fn truth(self, m: bool) -> i32 {
        m as i32
    }
}

/// An array as a vector of blocks.
macro_rules! block {
    ($($t:ident),+) => {$(
        impl<const L: usize> Vector for [$t; L] {
            type Elem = $t;
            const LANES: usize = L;

            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                [x; L]
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> Self {
                // SAFETY: the caller's promise about `p`.
                unsafe { p.cast::<Self>().read_unaligned() }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $t) {
                // SAFETY: the caller's promise about `p`.
                unsafe { p.cast::<Self>().write_unaligned(self) }
            }
        }

        impl<const L: usize> GemmVector for [$t; L] {
            type Lanes = (usize, usize);
            const FREE_MASK: bool = false;

            #[inline(always)]
            unsafe fn lanes(from: usize, to: usize) -> (usize, usize) {
                (from, to)
            }
            #[inline(always)]
            unsafe fn load_lanes(p: *const $t, (from, to): (usize, usize)) -> Self {
                // SAFETY: only these lanes are read.
                std::array::from_fn(|i| if i >= from && i < to { unsafe { *p.add(i) } } else { 0.0 })
            }
            #[inline(always)]
            unsafe fn store_lanes(self, p: *mut $t, (from, to): (usize, usize)) {
                for (i, x) in self.iter().enumerate().take(to).skip(from) {
                    // SAFETY: only these lanes are written.
                    unsafe { *p.add(i) = *x }
                }
            }
            // Two roundings: `mul_add` would be a library call without the instruction.
            #[inline(always)]
            fn fma(self, b: Self, c: Self) -> Self {
                std::array::from_fn(|i| self[i] * b[i] + c[i])
            }
            #[inline(always)]
            fn add(self, b: Self) -> Self {
                std::array::from_fn(|i| self[i] + b[i])
            }
            #[inline(always)]
            fn sum(self) -> $t {
                self.iter().sum()
            }
            #[inline(always)]
            fn transpose(r: &mut [Self; MAX_LANES]) {
                for i in 1..L {
                    for j in 0..i {
                        (r[i][j], r[j][i]) = (r[j][i], r[i][j]);
                    }
                }
            }
        }
    )+};
}
block!(f32, f64);
