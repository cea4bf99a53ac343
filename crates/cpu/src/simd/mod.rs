//! Vectors of numbers, and the instruction sets that have them: one trait for what every kernel needs, and one each for
//! numbers, floats, 64-bit words and blocks of matrices. Each instruction set gives types that implement them
//! (`avx512.rs`, `avx2.rs`, `portable.rs`).
//!
//! A vector is proof that the machine has its instruction set. Only `unsafe` functions make one from nothing: they may
//! be called only in code that is inlined into a function compiled for that set, as in `kernels/targets.rs` and
//! `gemm/kernel_tables.rs`. Such a function is returned only for sets listed by [`Isa::available`]. Every other function
//! has a vector among its operands, so that it may use the set's instructions.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod isa;
pub(crate) mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use isa::Isa;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

/// The most lanes of any vector.
pub(crate) const MAX_LANES: usize = 16;

/// A function of two vectors.
pub(crate) trait Binary<V> {
    /// The function, lane by lane.
    fn apply(a: V, b: V) -> V;
}

/// How a row is combined.
pub(crate) trait Fold<V: Num> {
    /// The value that changes nothing.
    const START: V::Elem;
    /// Combines two vectors.
    fn two(a: V, b: V) -> V;
    /// Combines the lanes of a vector by halves.
    fn lanes(a: V) -> V::Elem;
}

/// A vector of `LANES` elements of type `Elem`.
pub(crate) trait Vector: Copy + 'static {
    /// One element.
    type Elem: Num<Elem = Self::Elem> + 'static;
    /// How many elements a vector holds.
    const LANES: usize;

    /// All lanes the same.
    ///
    /// # Safety
    /// The machine must have the instruction set of this type.
    unsafe fn splat(x: Self::Elem) -> Self;
    /// Reads `LANES` elements, any alignment.
    ///
    /// # Safety
    /// The machine must have the instruction set of this type, and `LANES` elements can be read from `p` on.
    unsafe fn load(p: *const Self::Elem) -> Self;
    /// Writes `LANES` elements, any alignment.
    ///
    /// # Safety
    /// `LANES` elements can be written from `p` on.
    unsafe fn store(self, p: *mut Self::Elem);
    /// All lanes `x`, in a vector of the same type.
    #[inline(always)]
    fn all(self, x: Self::Elem) -> Self {
        // SAFETY: `self` is proof of the instruction set.
        unsafe { Self::splat(x) }
    }
}

/// A vector of numbers.
pub(crate) trait Num: Vector {
    /// A truth value for each lane.
    type Mask: Copy + BitAnd<Output = Self::Mask> + BitOr<Output = Self::Mask> + Not<Output = Self::Mask>;
    /// The identity of `max`: −∞ or the least integer.
    const LEAST: Self::Elem;
    /// The identity of `add`.
    const ZERO: Self::Elem;

    /// Reads the first `n < LANES` elements only; the other lanes are those of `rest`.
    ///
    /// # Safety
    /// `n` elements can be read from `p` on.
    unsafe fn load_part(p: *const Self::Elem, n: usize, rest: Self) -> Self;
    /// Writes the first `n < LANES` lanes only.
    ///
    /// # Safety
    /// `n` elements can be written from `p` on.
    unsafe fn store_part(self, p: *mut Self::Elem, n: usize);

    /// a + b, wrapping for integers.
    fn plus(self, b: Self) -> Self;
    /// a − b, wrapping for integers.
    fn minus(self, b: Self) -> Self;
    /// a·b, wrapping for integers.
    fn times(self, b: Self) -> Self;
    /// The larger, the first where equal, NaN where either is.
    fn max(self, b: Self) -> Self;
    /// The smaller, the first where equal, NaN where either is.
    fn min(self, b: Self) -> Self;
    /// −a
    fn negated(self) -> Self;
    /// |a|, wrapping for the least integer.
    fn abs(self) -> Self;
    /// −1, 0 or 1; ±0 and NaN stay themselves.
    fn sign(self) -> Self;
    /// a = b
    fn equal(self, b: Self) -> Self::Mask;
    /// a < b
    fn less(self, b: Self) -> Self::Mask;
    /// a ≤ b
    fn at_most(self, b: Self) -> Self::Mask;
    /// `a` where the mask is true, else `b`.
    fn select(m: Self::Mask, a: Self, b: Self) -> Self;
    /// 1 where true, else 0.
    fn truth(self, m: Self::Mask) -> Self;
    /// The mask as bits, lane 0 lowest.
    fn mask_bits(m: Self::Mask) -> u32;
    /// Sum of the lanes by halves: lane i + lane i + LANES/2, and so on.
    fn fold_sum(self) -> Self::Elem;
    /// Largest lane; NaN where any is.
    fn fold_max(self) -> Self::Elem;
    /// Folds the first `LANES` vectors at once, each by halves: lane i of the answer is the fold of `rows[i]`.
    fn fold_each<F: Fold<Self>>(rows: &[Self; MAX_LANES]) -> Self;
}

/// A vector of floats.
pub(crate) trait Float:
    Num + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// True where `mul_add` rounds once, in one instruction.
    const FMA: bool;
    /// True for f64, false for f32: picks constants and polynomial lengths.
    const DOUBLE: bool;
    /// 1.5·2²³ or 1.5·2⁵²: adding it to a small number rounds that to a whole one, held in the low bits of the sum.
    const ROUNDER: f64;
    /// The exponent field of 1: 127 or 1023.
    const BIAS: f64;

    /// All lanes this constant (rounded to f32 if the lanes are f32), in a vector of the same type.
    fn of(self, x: f64) -> Self;
    /// All lanes this pattern: the low 32 bits, or all 64.
    fn of_bits(self, bits: u64) -> Self;
    /// a·b + c, fused if that is one instruction, otherwise with two roundings.
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// √a
    fn sqrt(self) -> Self;
    /// Largest whole number not above a.
    fn floor(self) -> Self;
    /// a held within [low, high]; NaN stays.
    fn clamp(self, low: f64, high: f64) -> Self;
    /// Bitwise and of the patterns.
    fn bit_and(self, b: Self) -> Self;
    /// Bitwise or of the patterns.
    fn bit_or(self, b: Self) -> Self;
    /// Sum of the patterns as integers.
    fn bit_add(self, b: Self) -> Self;
    /// Difference of the patterns as integers.
    fn bit_sub(self, b: Self) -> Self;
    /// The exponent field moved down to the lowest bits.
    fn field_down(self) -> Self;
    /// The lowest bits moved up to the exponent field and sign.
    fn field_up(self) -> Self;
    /// Applies a function of one element lane by lane: the slow road for rare arguments.
    fn each(self, f: fn(Self::Elem) -> Self::Elem) -> Self;

    /// Nearest whole number, ties to even, for |a| < 2²² or 2⁵¹.
    #[inline(always)]
    fn round(self) -> Self {
        (self + self.of(Self::ROUNDER)) - self.of(Self::ROUNDER)
    }

    /// |a| with the sign bit of b.
    #[inline(always)]
    fn copysign(self, b: Self) -> Self {
        self.abs().bit_or(b.bit_and(b.of(-0.0)))
    }

    /// 2ⁿ for whole n in the range of normal numbers: n + bias shifted into the exponent field.
    #[inline(always)]
    fn exp2i(n: Self) -> Self {
        (n + n.of(Self::ROUNDER + Self::BIAS)).field_up()
    }

    /// a·2ⁿ for whole |n| up to twice the exponent range, in two steps so that overflow and gradual underflow are
    /// right; the first step is exact for a near 1.
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        let half = (n * n.of(0.5)).round();
        self * Self::exp2i(half) * Self::exp2i(n - half)
    }

    /// (e, m) with a = 2ᵉ·m and m in [√½, √2), for positive normal a.
    ///
    /// Subtracting the pattern of √½ moves the borrow point of the exponent there; adding that of 1 keeps it positive.
    #[inline(always)]
    fn split(self) -> (Self, Self) {
        let one = self.of(1.0);
        let field = self.bit_sub(self.of(std::f64::consts::FRAC_1_SQRT_2)).bit_add(one).field_down();
        let m = self.bit_sub(field.field_up()).bit_add(one);
        // field < 2048 under the exponent of 2^FRACTION is the float 2^FRACTION + field.
        let base = if Self::DOUBLE { 4503599627370496.0 } else { 8388608.0 };
        (field.bit_or(self.of(base)) - self.of(base + Self::BIAS), m)
    }
}

/// f32 lanes that can be worked on in f64.
pub(crate) trait Widen: Float {
    /// f64 lanes of the same instruction set.
    type Wide: Float;
    /// Applies a function of f64 lanes to all lanes, rounding the answer to f32.
    fn widened<O: Binary<Self::Wide>>(self, b: Self) -> Self;
}

/// A register of random bits, seen as 64-bit words or as twice as many 32-bit words.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) trait Words: Copy {
    /// The f64 vector of the same size.
    type F64: Float<Elem = f64>;
    /// The f32 vector of the same size.
    type F32: Float<Elem = f32>;
    /// How many 64-bit words a vector holds.
    const LANES: usize;

    /// All 64-bit lanes the same.
    ///
    /// # Safety
    /// The machine must have the instruction set of this type.
    unsafe fn splat(x: u64) -> Self;
    /// All 64-bit lanes `x`, in a vector of the same type.
    #[inline(always)]
    fn all(self, x: u64) -> Self {
        // SAFETY: `self` is proof of the instruction set.
        unsafe { Self::splat(x) }
    }
    /// 64-bit lanes 0, 1, 2, …, in a vector of the same type.
    fn iota(self) -> Self;
    /// a + b by 64-bit lanes.
    fn add64(self, b: Self) -> Self;
    /// a − b by 64-bit lanes.
    fn sub64(self, b: Self) -> Self;
    /// a + b by 32-bit lanes.
    fn add32(self, b: Self) -> Self;
    /// a − b by 32-bit lanes.
    fn sub32(self, b: Self) -> Self;
    /// By 64-bit lanes, the 64-bit product of the low halves.
    fn mul_low(self, b: Self) -> Self;
    /// Exclusive or.
    fn xor(self, b: Self) -> Self;
    /// Bitwise and.
    fn and(self, b: Self) -> Self;
    /// Bitwise or.
    fn or(self, b: Self) -> Self;
    /// Logical shift right of 64-bit lanes.
    fn shr64<const N: u32>(self) -> Self;
    /// Shift left of 64-bit lanes.
    fn shl64<const N: u32>(self) -> Self;
    /// Logical shift right of 32-bit lanes.
    fn shr32<const N: u32>(self) -> Self;
    /// Shift left of 32-bit lanes.
    fn shl32<const N: u32>(self) -> Self;
    /// The bits as f64 lanes.
    fn as_f64(self) -> Self::F64;
    /// The bits of f64 lanes.
    fn from_f64(x: Self::F64) -> Self;
    /// The bits as f32 lanes.
    fn as_f32(self) -> Self::F32;
    /// The bits of f32 lanes.
    fn from_f32(x: Self::F32) -> Self;
    /// The signed 32-bit lanes rounded to f32.
    fn to_f32(self) -> Self::F32;
    /// a₀ b₀ a₁ b₁ … by 64-bit lanes, in two vectors.
    fn interleave64(self, b: Self) -> (Self, Self);
    /// a₀ b₀ a₁ b₁ … by 32-bit lanes, in two vectors.
    fn interleave32(self, b: Self) -> (Self, Self);
}

/// A vector of floats as blocks of matrices are read, transposed and multiplied.
pub(crate) trait GemmVector: Vector {
    /// The lanes that are accessed.
    type Lanes: Copy;
    /// A masked load costs no more than a plain one.
    const FREE_MASK: bool;

    /// The lanes from..to, from ≤ to ≤ `LANES`.
    ///
    /// # Safety
    /// The machine must have the instruction set of this type.
    unsafe fn lanes(from: usize, to: usize) -> Self::Lanes;
    /// Reads these lanes from `p`, and sets the others, whose memory is not touched, to 0.
    ///
    /// # Safety
    /// The machine must have the instruction set of this type, and these elements can be read.
    unsafe fn load_lanes(p: *const Self::Elem, lanes: Self::Lanes) -> Self;
    /// Writes these lanes to `p`; the memory of the others is not touched.
    ///
    /// # Safety
    /// These elements can be written.
    unsafe fn store_lanes(self, p: *mut Self::Elem, lanes: Self::Lanes);
    /// a·b + c
    fn fma(self, b: Self, c: Self) -> Self;
    /// a + b
    fn add(self, b: Self) -> Self;
    /// The sum of all lanes, in an order fixed by the type.
    fn sum(self) -> Self::Elem;
    /// Transposes the first `LANES` × `LANES` elements in place: lane j of vector i ↔ lane i of vector j.
    fn transpose(r: &mut [Self; MAX_LANES]);
    /// Prefetches the cache line of `p`, which may be any address.
    #[inline(always)]
    fn prefetch(_p: *const Self::Elem) {}
}
