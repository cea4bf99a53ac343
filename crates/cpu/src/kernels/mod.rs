//! Kernels on tiles: each instruction of a fused program is one call of one of these, found when the program is planned.
//!
//! A kernel is a plain function pointer on raw bytes. Pointers are aligned to the element, not more. `dst` may be
//! exactly one of the operands if element sizes agree (in place); otherwise nothing overlaps. The result of an element
//! does not depend on its place in the tile.
//!
//! Every kernel is an `unsafe fn`. Its caller promises that [`Isa::available`] lists the instruction set it was asked for, and that
//! behind each pointer are as many elements as the comment on its type says.

mod maps;
mod math;
mod moves;
mod random;
mod rows;
mod scalar_loop;
mod targets;
#[cfg(test)]
mod tests;

pub use crate::simd::Isa;
use bilevel_graph::{BinaryOp, DType, Precision, RandomKind, UnaryOp};

/// How an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arity {
    /// One element for each element of the result.
    Tile,
    /// The pointer addresses one element, used for all.
    Scalar,
}

/// A product and a sum in one pass, rounded twice: the same bits as the two instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FusedOp {
    /// a·b + c
    MulAdd,
    /// a·b − c
    MulSub,
    /// c − a·b
    SubMul,
}

impl FusedOp {
    /// Every fused pair, for tests and tables.
    pub const ALL: [FusedOp; 3] = [FusedOp::MulAdd, FusedOp::MulSub, FusedOp::SubMul];
}

/// (dst, a, n)
pub type UnaryFn = unsafe fn(dst: *mut u8, a: *const u8, n: usize);
/// (dst, a, b, n)
pub type BinaryFn = unsafe fn(dst: *mut u8, a: *const u8, b: *const u8, n: usize);
/// (dst, a, b, c, n)
pub type TernaryFn = unsafe fn(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize);
/// (dst, start, step, n)
pub type IotaFn = unsafe fn(dst: *mut u8, start: f64, step: f64, n: usize);
/// (dst, a, stride in elements, n)
pub type StridedFn = unsafe fn(dst: *mut u8, a: *const u8, stride: isize, n: usize);
/// (dst, a, rows, row length)
pub type RowsFn = unsafe fn(dst: *mut u8, a: *const u8, r: usize, l: usize);
/// (dst, a, b, rows, row length)
pub type Rows2Fn = unsafe fn(dst: *mut u8, a: *const u8, b: *const u8, r: usize, l: usize);

/// (dst, key, counter, stream, index of the first element, n)
pub type RandomFn = unsafe fn(dst: *mut u8, key: [u32; 2], counter: u32, stream: u32, first: u64, n: usize);

/// Looks up a kernel in the table of one instruction set.
macro_rules! ask {
    ($isa:expr, $table:ident($($arg:expr),*)) => {
        match $isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => targets::wide::$table($($arg),*),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => targets::middle::$table($($arg),*),
            #[allow(unreachable_patterns)]
            _ => targets::plain::$table($($arg),*),
        }
    };
}

/// dst\[i\] = f(a\[i\]); `None` if integers have no such function.
pub fn unary(isa: Isa, op: UnaryOp, dtype: DType) -> Option<UnaryFn> {
    ask!(isa, unary(op, dtype))
}

/// dst\[i\] = f(a\[i\], b\[i\]); `None` if integers have no such function.
pub fn binary(isa: Isa, op: BinaryOp, dtype: DType, a: Arity, b: Arity) -> Option<BinaryFn> {
    ask!(isa, binary(op, dtype, a, b))
}

/// dst\[i\] = mask\[i\] ≠ 0 ? a\[i\] : b\[i\], called as (dst, mask, a, b, n) with the mask a tile of the same type.
pub fn select(isa: Isa, dtype: DType, a: Arity, b: Arity) -> TernaryFn {
    ask!(isa, select(dtype, a, b))
}

/// A product and a sum, called as (dst, a, b, c, n).
pub fn fused(isa: Isa, op: FusedOp, dtype: DType, a: Arity, b: Arity, c: Arity) -> TernaryFn {
    ask!(isa, fused(op, dtype, a, b, c))
}

/// dst\[i\] = a\[i\] in another type, as Rust's `as`; in place only between types of one size.
pub fn convert(isa: Isa, from: DType, to: DType) -> UnaryFn {
    ask!(isa, convert(from, to))
}

/// dst\[i\] = a\[i\], both 32-bit floats, as a product of this precision multiplies it.
pub fn round(isa: Isa, precision: Precision) -> UnaryFn {
    ask!(isa, round(precision))
}

/// dst\[i\] = the one element at the second pointer.
pub fn fill(isa: Isa, dtype: DType) -> UnaryFn {
    ask!(isa, fill(dtype))
}

/// dst\[i\] = a\[i\]
pub fn copy(dtype: DType) -> UnaryFn {
    unsafe fn bytes<const SIZE: usize>(dst: *mut u8, a: *const u8, n: usize) {
        // SAFETY: n elements of this size behind each pointer are the caller's promise.
        unsafe { std::ptr::copy(a, dst, n * SIZE) }
    }
    if dtype.size() == 8 { bytes::<8> } else { bytes::<4> }
}

/// dst\[i\] = a\[i·stride\]
pub fn copy_strided(isa: Isa, dtype: DType) -> StridedFn {
    ask!(isa, copy_strided(dtype))
}

/// dst\[i\] = start + step·i, computed in f64 and rounded; for n below 2³¹ and whole values in range for integers.
pub fn iota(isa: Isa, dtype: DType) -> IotaFn {
    ask!(isa, iota(dtype))
}

/// dst\[i, j\] = a\[i\] for the tile `[r, l]`
pub fn repeat(isa: Isa, dtype: DType) -> RowsFn {
    ask!(isa, repeat(dtype))
}

/// dst\[i\] = Σⱼ a\[i, j\], in an order that depends on l alone and is the same for every instruction set.
pub fn row_sum(isa: Isa, dtype: DType) -> RowsFn {
    ask!(isa, row_sum(dtype))
}

/// dst\[i\] = maxⱼ a\[i, j\], NaN where any is; −∞ or the least integer for l = 0.
pub fn row_max(isa: Isa, dtype: DType) -> RowsFn {
    ask!(isa, row_max(dtype))
}

/// dst\[i\] (`i32`) = the first j with the largest a\[i, j\]; a NaN is larger than any number. For l ≥ 1.
pub fn row_argmax(isa: Isa, dtype: DType) -> RowsFn {
    ask!(isa, row_argmax(dtype))
}

/// dst\[i\] = Σⱼ a\[i, j\]·b\[i, j\]: the bits of the product followed by `row_sum`.
pub fn row_dot(isa: Isa, dtype: DType) -> Rows2Fn {
    ask!(isa, row_dot(dtype))
}

/// dst\[i\] += a\[i\]
pub fn accumulate(isa: Isa, dtype: DType) -> UnaryFn {
    ask!(isa, accumulate(dtype))
}

/// dst\[i\] = max(dst\[i\], a\[i\]), NaN where either is
pub fn accumulate_max(isa: Isa, dtype: DType) -> UnaryFn {
    ask!(isa, accumulate_max(dtype))
}

/// Elements first.. of the draw specified in `bilevel_graph::random`, the same bits for every instruction set; `None` for
/// kinds the type does not have.
pub fn random(isa: Isa, kind: RandomKind, dtype: DType) -> Option<RandomFn> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => random::wide(kind, dtype),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => random::middle(kind, dtype),
        #[allow(unreachable_patterns)]
        _ => random::plain(kind, dtype),
    }
}
