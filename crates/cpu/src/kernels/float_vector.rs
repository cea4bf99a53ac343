//! Float vectors of x86: the common part of AVX2 and AVX-512, from the names of their intrinsics.

/// Intrinsics on vectors that exist already.
macro_rules! on_vectors {
    ($body:expr) => {
        // SAFETY: an operand is a vector of the instruction set, or what is inside one, which is proof that the machine has it.
        unsafe { $body }
    };
}

/// Intrinsics in an `unsafe fn` whose caller promises what they need.
macro_rules! promised {
    ($body:expr) => {
        // SAFETY: the caller promises the instruction set and the memory, as the trait says.
        unsafe { $body }
    };
}

/// Operators and both traits of a float vector, from its intrinsics; operations on masks are given by each instruction
/// set.
macro_rules! float_vector {
    ($t:ident, $elem:ident, $mask:ty, $lanes:literal, $double:literal, $rounder:expr, $bias:expr, $int:ident,
     $set1:ident $loadu:ident $storeu:ident
     $add:ident $sub:ident $mul:ident $div:ident $max:ident $min:ident
     $fma:ident $sqrt:ident $round:ident $and:ident $or:ident $xor:ident
     $iadd:ident $isub:ident $srl:ident $sll:ident $shift:literal $cast:ident $back:ident $each:ident,
     num { $($num:tt)* } float { $($float:tt)* }) => {
        impl Add for $t {
            type Output = $t;
            #[inline(always)]
            fn add(self, b: $t) -> $t {
                on_vectors!($t($add(self.0, b.0)))
            }
        }
        impl Sub for $t {
            type Output = $t;
            #[inline(always)]
            fn sub(self, b: $t) -> $t {
                on_vectors!($t($sub(self.0, b.0)))
            }
        }
        impl Mul for $t {
            type Output = $t;
            #[inline(always)]
            fn mul(self, b: $t) -> $t {
                on_vectors!($t($mul(self.0, b.0)))
            }
        }
        impl Div for $t {
            type Output = $t;
            #[inline(always)]
            fn div(self, b: $t) -> $t {
                on_vectors!($t($div(self.0, b.0)))
            }
        }
        impl Neg for $t {
            type Output = $t;
            #[inline(always)]
            fn neg(self) -> $t {
                on_vectors!($t($xor(self.0, $set1(-0.0))))
            }
        }

        impl Num for $t {
            type Elem = $elem;
            type Mask = $mask;
            const LANES: usize = $lanes;
            const LEAST: $elem = $elem::NEG_INFINITY;
            const ZERO: $elem = 0.0;

            #[inline(always)]
            unsafe fn splat(x: $elem) -> Self {
                promised!($t($set1(x)))
            }
            #[inline(always)]
            unsafe fn load(p: *const $elem) -> Self {
                promised!($t($loadu(p)))
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $elem) {
                promised!($storeu(p, self.0))
            }
            #[inline(always)]
            fn plus(self, b: Self) -> Self {
                self + b
            }
            #[inline(always)]
            fn minus(self, b: Self) -> Self {
                self - b
            }
            #[inline(always)]
            fn times(self, b: Self) -> Self {
                self * b
            }
            #[inline(always)]
            fn negated(self) -> Self {
                -self
            }
            #[inline(always)]
            unsafe fn fold_each<F: Fold<Self>>(rows: *const Self) -> Self {
                promised!($each::<F>(rows))
            }
            $($num)*
        }

        impl Float for $t {
            const FMA: bool = true;
            const DOUBLE: bool = $double;
            const ROUNDER: f64 = $rounder;
            const BIAS: f64 = $bias;

            #[inline(always)]
            fn of(self, x: f64) -> Self {
                self.all(x as $elem)
            }
            #[inline(always)]
            fn of_bits(self, bits: u64) -> Self {
                self.all($elem::from_bits(bits as $int))
            }
            #[inline(always)]
            fn mul_add(self, b: Self, c: Self) -> Self {
                on_vectors!($t($fma(self.0, b.0, c.0)))
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                on_vectors!($t($sqrt(self.0)))
            }
            #[inline(always)]
            fn floor(self) -> Self {
                on_vectors!($t($round::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(self.0)))
            }
            #[inline(always)]
            fn round(self) -> Self {
                on_vectors!($t($round::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)))
            }
            // Either bound is the first operand, so that a NaN in the second passes.
            #[inline(always)]
            fn clamp(self, low: f64, high: f64) -> Self {
                on_vectors!($t($max($set1(low as $elem), $min($set1(high as $elem), self.0))))
            }
            #[inline(always)]
            fn bit_and(self, b: Self) -> Self {
                on_vectors!($t($and(self.0, b.0)))
            }
            #[inline(always)]
            fn bit_or(self, b: Self) -> Self {
                on_vectors!($t($or(self.0, b.0)))
            }
            #[inline(always)]
            fn bit_add(self, b: Self) -> Self {
                on_vectors!($t($back($iadd($cast(self.0), $cast(b.0)))))
            }
            #[inline(always)]
            fn bit_sub(self, b: Self) -> Self {
                on_vectors!($t($back($isub($cast(self.0), $cast(b.0)))))
            }
            #[inline(always)]
            fn field_down(self) -> Self {
                on_vectors!($t($back($srl::<$shift>($cast(self.0)))))
            }
            #[inline(always)]
            fn field_up(self) -> Self {
                on_vectors!($t($back($sll::<$shift>($cast(self.0)))))
            }
            #[inline(always)]
            fn each(self, f: fn($elem) -> $elem) -> Self {
                let mut lanes = [0.0; $lanes];
                // SAFETY: `lanes` has room for a vector, and `self` is proof of the instruction set.
                unsafe {
                    self.store(lanes.as_mut_ptr());
                    lanes.iter_mut().for_each(|x| *x = f(*x));
                    Self::load(lanes.as_ptr())
                }
            }
            $($float)*
        }
    };
}

pub(super) use {float_vector, on_vectors, promised};
