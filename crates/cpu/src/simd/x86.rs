//! Vectors of x86 from the names of their intrinsics: the common part of AVX2 and AVX-512.

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

/// Methods that compute a register from registers, one per line.
macro_rules! lanewise {
    ($($name:ident($a:ident $(, $b:ident)*) = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self $(, $b: Self)*) -> Self {
            let $a = self.0;
            $(let $b = $b.0;)*
            on_vectors!(Self($body))
        }
    )*};
}

/// Methods that compute a mask from vectors, one per line.
macro_rules! masks {
    ($mask:ty: $($name:ident($a:ident, $b:ident) = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $b: Self) -> $mask {
            let $a = self;
            $body
        }
    )*};
}

/// Methods that move the bits of 32-bit or 64-bit lanes by a constant.
macro_rules! shifts {
    ($($name:ident($a:ident, $n:ident) = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name<const $n: u32>(self) -> Self {
            let $a = self.0;
            on_vectors!(Self($body))
        }
    )*};
}

/// Operators on vectors of one type.
macro_rules! operators {
    ($t:ident: $($op:ident $name:ident $f:ident),+) => {$(
        impl $op for $t {
            type Output = $t;
            #[inline(always)]
            fn $name(self, b: $t) -> $t {
                on_vectors!($t($f(self.0, b.0)))
            }
        }
    )+};
}

/// A vector around a register, and its access to memory.
macro_rules! vector {
    ($(#[$doc:meta])* $t:ident($register:ty), $elem:ident, $lanes:literal, $set1:ident $load:ident $store:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $t(pub(super) $register);

        impl Vector for $t {
            type Elem = $elem;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn splat(x: $elem) -> Self {
                promised!($t($set1(x)))
            }
            #[inline(always)]
            unsafe fn load(p: *const $elem) -> Self {
                promised!($t($load(p.cast())))
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $elem) {
                promised!($store(p.cast(), self.0))
            }
        }
    };
}

/// The traits of a float vector, whose type gives `blend` (the first operand where the mask is true), `compare` and the
/// methods in `num`, `float` and `block`.
macro_rules! float_vector {
    ($t:ident: $elem:ident as $int:ident, $mask:ty, $double:literal, $rounder:literal, $bias:literal,
     $set1:ident $add:ident $sub:ident $mul:ident $div:ident $max:ident $min:ident
     $fma:ident $sqrt:ident $round:ident $and:ident $or:ident $xor:ident
     $iadd:ident $isub:ident $srl:ident $sll:ident $shift:literal $cast:ident $back:ident,
     num { $($num:tt)* } float { $($float:tt)* } block { $($block:tt)* }) => {
        operators!($t: Add add $add, Sub sub $sub, Mul mul $mul, Div div $div);

        impl Neg for $t {
            type Output = $t;
            #[inline(always)]
            fn neg(self) -> $t {
                on_vectors!($t($xor(self.0, $set1(-0.0))))
            }
        }

        impl Num for $t {
            type Mask = $mask;
            const LEAST: $elem = $elem::NEG_INFINITY;
            const ZERO: $elem = 0.0;

            lanewise! {
                plus(a, b) = $add(a, b);
                minus(a, b) = $sub(a, b);
                times(a, b) = $mul(a, b);
                negated(a) = $xor(a, $set1(-0.0));
            }
            masks! { $mask:
                equal(a, b) = a.compare::<_CMP_EQ_OQ>(b);
                less(a, b) = a.compare::<_CMP_LT_OQ>(b);
                at_most(a, b) = a.compare::<_CMP_LE_OQ>(b);
            }
            // The machine's max(b, a) answers a when they are equal or either is NaN, so only a NaN b is left to mend.
            #[inline(always)]
            fn max(self, b: Self) -> Self {
                Self::select(b.compare::<_CMP_UNORD_Q>(b), b, on_vectors!($t($max(b.0, self.0))))
            }
            #[inline(always)]
            fn min(self, b: Self) -> Self {
                Self::select(b.compare::<_CMP_UNORD_Q>(b), b, on_vectors!($t($min(b.0, self.0))))
            }
            // 0 and NaN are not ordered away from 0: they stay.
            #[inline(always)]
            fn sign(self) -> Self {
                let unit = self.all(1.0).copysign(self);
                Self::select(self.compare::<_CMP_NEQ_OQ>(self.all(0.0)), unit, self)
            }
            $($num)*
        }

        impl Float for $t {
            const FMA: bool = true;
            const DOUBLE: bool = $double;
            const ROUNDER: f64 = $rounder;
            const BIAS: f64 = $bias;

            lanewise! {
                mul_add(a, b, c) = $fma(a, b, c);
                sqrt(a) = $sqrt(a);
                floor(a) = $round::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a);
                round(a) = $round::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
                bit_and(a, b) = $and(a, b);
                bit_or(a, b) = $or(a, b);
                bit_add(a, b) = $back($iadd($cast(a), $cast(b)));
                bit_sub(a, b) = $back($isub($cast(a), $cast(b)));
                field_down(a) = $back($srl::<$shift>($cast(a)));
                field_up(a) = $back($sll::<$shift>($cast(a)));
            }
            #[inline(always)]
            fn of(self, x: f64) -> Self {
                self.all(x as $elem)
            }
            #[inline(always)]
            fn of_bits(self, bits: u64) -> Self {
                self.all($elem::from_bits(bits as $int))
            }
            // Either bound is the first operand, so that a NaN in the second passes.
            #[inline(always)]
            fn clamp(self, low: f64, high: f64) -> Self {
                on_vectors!($t($max($set1(low as $elem), $min($set1(high as $elem), self.0))))
            }
            #[inline(always)]
            fn each(self, f: fn($elem) -> $elem) -> Self {
                let mut lanes = [0.0; Self::LANES];
                // SAFETY: `lanes` has room for a vector, and `self` is proof of the instruction set.
                unsafe {
                    self.store(lanes.as_mut_ptr());
                    lanes.iter_mut().for_each(|x| *x = f(*x));
                    Self::load(lanes.as_ptr())
                }
            }
            $($float)*
        }

        impl GemmVector for $t {
            lanewise! {
                fma(a, b, c) = $fma(a, b, c);
                add(a, b) = $add(a, b);
            }
            #[inline(always)]
            fn prefetch(p: *const $elem) {
                // SAFETY: a prefetch may name any address, and every x86-64 has it.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
            }
            $($block)*
        }
    };
}

/// The trait of a vector of integers, whose type gives the methods in `num`.
macro_rules! int_vector {
    ($t:ident: $mask:ty, $add:ident $sub:ident $mul:ident $max:ident $min:ident $abs:ident, num { $($num:tt)* }) => {
        impl Num for $t {
            type Mask = $mask;
            const LEAST: i32 = i32::MIN;
            const ZERO: i32 = 0;

            lanewise! {
                plus(a, b) = $add(a, b);
                minus(a, b) = $sub(a, b);
                times(a, b) = $mul(a, b);
                max(a, b) = $max(a, b);
                min(a, b) = $min(a, b);
                abs(a) = $abs(a);
            }
            #[inline(always)]
            fn negated(self) -> Self {
                self.all(0).minus(self)
            }
            #[inline(always)]
            fn sign(self) -> Self {
                self.min(self.all(1)).max(self.all(-1))
            }
            $($num)*
        }
    };
}

/// The trait of a vector of words, whose type gives the methods in `words`.
macro_rules! word_vector {
    ($(#[$doc:meta])* $t:ident($register:ty), $f64:ident, $f32:ident, $lanes:literal,
     $set1:ident $add64:ident $sub64:ident $add32:ident $sub32:ident $mul:ident $xor:ident $and:ident $or:ident
     $to_f64:ident $from_f64:ident $to_f32:ident $from_f32:ident $convert:ident, words { $($words:tt)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $t($register);

        impl Words for $t {
            type F64 = $f64;
            type F32 = $f32;
            const LANES: usize = $lanes;

            lanewise! {
                add64(a, b) = $add64(a, b);
                sub64(a, b) = $sub64(a, b);
                add32(a, b) = $add32(a, b);
                sub32(a, b) = $sub32(a, b);
                mul_low(a, b) = $mul(a, b);
                xor(a, b) = $xor(a, b);
                and(a, b) = $and(a, b);
                or(a, b) = $or(a, b);
            }
            #[inline(always)]
            unsafe fn splat(x: u64) -> Self {
                promised!($t($set1(x as i64)))
            }
            #[inline(always)]
            fn as_f64(self) -> $f64 {
                on_vectors!($f64($to_f64(self.0)))
            }
            #[inline(always)]
            fn from_f64(x: $f64) -> Self {
                on_vectors!($t($from_f64(x.0)))
            }
            #[inline(always)]
            fn as_f32(self) -> $f32 {
                on_vectors!($f32($to_f32(self.0)))
            }
            #[inline(always)]
            fn from_f32(x: $f32) -> Self {
                on_vectors!($t($from_f32(x.0)))
            }
            #[inline(always)]
            fn to_f32(self) -> $f32 {
                on_vectors!($f32($convert(self.0)))
            }
            $($words)*
        }
    };
}

pub(super) use {
    float_vector, int_vector, lanewise, masks, on_vectors, operators, promised, shifts, vector, word_vector,
};
