//! The bodies compiled once for every instruction set, and the tables that find them.
//!
//! The wrappers here are the only functions with target features, but for the random draws; everything they call is inlined into
//! them. Their callers promise those features, and the requirements of `kernels/mod.rs` on the pointers of a kernel.

/// The unary functions all floats share.
macro_rules! floats {
    ($v:ty, $t:ty, $op:expr) => {
        match $op {
            UnaryOp::Neg => map1::<$v, basic::Neg>,
            UnaryOp::Abs => map1::<$v, basic::Abs>,
            UnaryOp::Sign => map1::<$v, basic::Sign>,
            UnaryOp::Floor => map1::<$v, basic::Floor>,
            UnaryOp::Recip => map1::<$v, basic::Recip>,
            UnaryOp::Sqrt => map1::<$v, basic::Sqrt>,
            UnaryOp::Exp => map1::<$v, exp::Exp>,
            UnaryOp::Expm1 => map1::<$v, exp::Expm1>,
            UnaryOp::Log => map1::<$v, log::Log>,
            UnaryOp::Log1p => map1::<$v, log::Log1p>,
            UnaryOp::Sin => map1::<$v, trig::Sin>,
            UnaryOp::Cos => map1::<$v, trig::Cos>,
            UnaryOp::Tanh => map1::<$v, exp::Tanh>,
            UnaryOp::Sigmoid => map1::<$v, exp::Sigmoid>,
            UnaryOp::Erf => map1::<$v, erf::Erf>,
            _ => scalar_loop::unary::<$t>($op),
        }
    };
}

/// The binary functions all types share.
macro_rules! numbers {
    ($v:ty, $op:expr, $a:expr, $b:expr, $div:expr, $pow:expr, $other:expr) => {
        match $op {
            BinaryOp::Add => pick2::<$v, basic::Add>($a, $b),
            BinaryOp::Sub => pick2::<$v, basic::Sub>($a, $b),
            BinaryOp::Mul => pick2::<$v, basic::Mul>($a, $b),
            BinaryOp::Div => $div,
            BinaryOp::Max => pick2::<$v, basic::Max>($a, $b),
            BinaryOp::Min => pick2::<$v, basic::Min>($a, $b),
            BinaryOp::Pow => $pow,
            BinaryOp::Eq => pick2::<$v, basic::Eq>($a, $b),
            BinaryOp::Ne => pick2::<$v, basic::Ne>($a, $b),
            BinaryOp::Lt => pick2::<$v, basic::Lt>($a, $b),
            BinaryOp::Le => pick2::<$v, basic::Le>($a, $b),
            _ => $other,
        }
    };
}

/// One generic item for each type.
macro_rules! by_type {
    ($dtype:expr, $f32:expr, $f64:expr, $i32:expr) => {
        match $dtype {
            DType::F32 => $f32,
            DType::F64 => $f64,
            DType::I32 => $i32,
        }
    };
}

/// The body of a wrapper.
macro_rules! inlined {
    ($body:expr) => {
        // SAFETY: the wrapper's caller promises its features and the requirements of `kernels/mod.rs` on its pointers.
        unsafe { $body }
    };
}

/// Makes a module with the wrappers and tables of one instruction set, from its vector types, narrower ones for short
/// rows, and the number of registers of 32-bit and 64-bit elements in 64 bytes.
macro_rules! target {
    (
        $name:ident, $doc:literal, $(#[$feature:meta])*,
        $own:ident::{$f32:ident, $f64:ident, $i32:ident},
        $narrower:ident::{$short_f32:ident, $short_f64:ident, $short_i32:ident},
        $k32:literal, $k64:literal
    ) => {
        #[doc = $doc]
        pub(crate) mod $name {
            use super::super::maps::{self, Binary, Ternary, Unary};
            use super::super::moves::{self, Cast, Made};
            use super::super::rows;
            use crate::simd::{Fold, Num};
            use crate::simd::$narrower as narrower;
            use crate::simd::$own::{$f32 as F32, $f64 as F64, $i32 as I32};
            use super::super::math::{basic, erf, exp, log, pow, trig};
            use super::super::scalar_loop;
            use super::super::{Arity, BinaryFn, FusedOp, IotaFn, Rows2Fn, RowsFn, StridedFn, TernaryFn, UnaryFn};
            use bilevel_graph::{BinaryOp, DType, Precision, UnaryOp};


            $(#[$feature])*
            unsafe fn map1<V: Num, O: Unary<V>>(dst: *mut u8, a: *const u8, n: usize) {
                inlined! { maps::unary::<V, O>(dst, a, n) }
            }

            $(#[$feature])*
            unsafe fn map2<V: Num, O: Binary<V>, const A: bool, const B: bool>(
                dst: *mut u8,
                a: *const u8,
                b: *const u8,
                n: usize,
            ) {
                inlined! { maps::binary::<V, O, A, B>(dst, a, b, n) }
            }

            $(#[$feature])*
            unsafe fn map3<V: Num, O: Ternary<V>, const A: bool, const B: bool, const C: bool>(
                dst: *mut u8,
                a: *const u8,
                b: *const u8,
                c: *const u8,
                n: usize,
            ) {
                inlined! { maps::ternary::<V, O, A, B, C>(dst, a, b, c, n) }
            }

            $(#[$feature])*
            unsafe fn onto<V: Num, O: Binary<V>>(dst: *mut u8, a: *const u8, n: usize) {
                inlined! { maps::binary::<V, O, false, false>(dst, dst, a, n) }
            }

            $(#[$feature])*
            unsafe fn fold<V: Num, F: Fold<V> + Fold<V::Elem>, const K: usize>(
                dst: *mut u8,
                a: *const u8,
                r: usize,
                l: usize,
            ) {
                inlined! { rows::reduce::<V, F, K>(dst, a, r, l) }
            }

            $(#[$feature])*
            unsafe fn dots<V: Num, const K: usize>(dst: *mut u8, a: *const u8, b: *const u8, r: usize, l: usize) {
                inlined! { rows::dot::<V, K>(dst, a, b, r, l) }
            }

            $(#[$feature])*
            unsafe fn firsts<V: Num, const K: usize>(dst: *mut u8, a: *const u8, r: usize, l: usize) {
                inlined! { rows::argmax::<V, K>(dst, a, r, l) }
            }

            $(#[$feature])*
            unsafe fn casts<T: Cast<U>, U: Copy>(dst: *mut u8, a: *const u8, n: usize) {
                inlined! { moves::convert::<T, U>(dst, a, n) }
            }

            $(#[$feature])*
            unsafe fn fills<V: Num>(dst: *mut u8, value: *const u8, n: usize) {
                inlined! { moves::fill::<V>(dst, value, n) }
            }

            $(#[$feature])*
            unsafe fn repeats<V: Num, H: Num<Elem = V::Elem>>(dst: *mut u8, a: *const u8, r: usize, l: usize) {
                inlined! { moves::repeat::<V, H>(dst, a, r, l) }
            }

            $(#[$feature])*
            unsafe fn iotas<T: Made>(dst: *mut u8, start: f64, step: f64, n: usize) {
                inlined! { moves::iota::<T>(dst, start, step, n) }
            }

            $(#[$feature])*
            unsafe fn gathers<T: Copy>(dst: *mut u8, a: *const u8, stride: isize, n: usize) {
                inlined! { moves::copy_strided::<T>(dst, a, stride, n) }
            }

            pub(crate) fn unary(op: UnaryOp, dtype: DType) -> Option<UnaryFn> {
                Some(match (dtype, op) {
                    (DType::F32, op) => floats!(F32, f32, op),
                    (DType::F64, op) => floats!(F64, f64, op),
                    (DType::I32, UnaryOp::Neg) => map1::<I32, basic::Neg>,
                    (DType::I32, UnaryOp::Abs) => map1::<I32, basic::Abs>,
                    (DType::I32, UnaryOp::Sign) => map1::<I32, basic::Sign>,
                    (DType::I32, _) => return None,
                })
            }

            fn pick2<V: Num, O: Binary<V>>(a: Arity, b: Arity) -> BinaryFn {
                match (a, b) {
                    (Arity::Tile, Arity::Tile) => map2::<V, O, false, false>,
                    (Arity::Tile, Arity::Scalar) => map2::<V, O, false, true>,
                    (Arity::Scalar, Arity::Tile) => map2::<V, O, true, false>,
                    (Arity::Scalar, Arity::Scalar) => map2::<V, O, true, true>,
                }
            }

            pub(crate) fn binary(op: BinaryOp, dtype: DType, a: Arity, b: Arity) -> Option<BinaryFn> {
                Some(match dtype {
                    DType::F32 => {
                        let (div, pow) = (pick2::<F32, basic::Div>(a, b), pick2::<F32, pow::Pow32>(a, b));
                        numbers!(F32, op, a, b, div, pow, scalar_loop::binary::<f32>(op, a, b))
                    }
                    DType::F64 => {
                        let (div, pow) = (pick2::<F64, basic::Div>(a, b), pick2::<F64, pow::Pow64>(a, b));
                        numbers!(F64, op, a, b, div, pow, scalar_loop::binary::<f64>(op, a, b))
                    }
                    DType::I32 => numbers!(I32, op, a, b, return None, return None, return None),
                })
            }

            fn pick3<V: Num, O: Ternary<V>>(a: Arity, b: Arity, c: Arity) -> TernaryFn {
                match (a == Arity::Scalar, b == Arity::Scalar, c == Arity::Scalar) {
                    (false, false, false) => map3::<V, O, false, false, false>,
                    (false, false, true) => map3::<V, O, false, false, true>,
                    (false, true, false) => map3::<V, O, false, true, false>,
                    (false, true, true) => map3::<V, O, false, true, true>,
                    (true, false, false) => map3::<V, O, true, false, false>,
                    (true, false, true) => map3::<V, O, true, false, true>,
                    (true, true, false) => map3::<V, O, true, true, false>,
                    (true, true, true) => map3::<V, O, true, true, true>,
                }
            }

            pub(crate) fn select(dtype: DType, a: Arity, b: Arity) -> TernaryFn {
                fn of<V: Num>(a: Arity, b: Arity) -> TernaryFn {
                    match (a, b) {
                        (Arity::Tile, Arity::Tile) => map3::<V, basic::Select, false, false, false>,
                        (Arity::Tile, Arity::Scalar) => map3::<V, basic::Select, false, false, true>,
                        (Arity::Scalar, Arity::Tile) => map3::<V, basic::Select, false, true, false>,
                        (Arity::Scalar, Arity::Scalar) => map3::<V, basic::Select, false, true, true>,
                    }
                }
                by_type!(dtype, of::<F32>(a, b), of::<F64>(a, b), of::<I32>(a, b))
            }

            pub(crate) fn fused(op: FusedOp, dtype: DType, a: Arity, b: Arity, c: Arity) -> TernaryFn {
                fn of<V: Num>(op: FusedOp, a: Arity, b: Arity, c: Arity) -> TernaryFn {
                    match op {
                        FusedOp::MulAdd => pick3::<V, basic::MulAdd>(a, b, c),
                        FusedOp::MulSub => pick3::<V, basic::MulSub>(a, b, c),
                        FusedOp::SubMul => pick3::<V, basic::SubMul>(a, b, c),
                    }
                }
                by_type!(dtype, of::<F32>(op, a, b, c), of::<F64>(op, a, b, c), of::<I32>(op, a, b, c))
            }

            pub(crate) fn convert(from: DType, to: DType) -> UnaryFn {
                match (from, to) {
                    (DType::F32, DType::F64) => casts::<f32, f64>,
                    (DType::F64, DType::F32) => casts::<f64, f32>,
                    (DType::F32, DType::I32) => casts::<f32, i32>,
                    (DType::F64, DType::I32) => casts::<f64, i32>,
                    (DType::I32, DType::F32) => casts::<i32, f32>,
                    (DType::I32, DType::F64) => casts::<i32, f64>,
                    _ => super::super::copy(from),
                }
            }

            pub(crate) fn round(precision: Precision) -> UnaryFn {
                match precision {
                    Precision::Full => super::super::copy(DType::F32),
                    Precision::Tf32 => casts::<f32, moves::Tf32>,
                    Precision::Bf16 => casts::<f32, moves::Bf16>,
                }
            }

            pub(crate) fn fill(dtype: DType) -> UnaryFn {
                by_type!(dtype, fills::<F32>, fills::<F64>, fills::<I32>)
            }

            pub(crate) fn repeat(dtype: DType) -> RowsFn {
                by_type!(
                    dtype,
                    repeats::<F32, narrower::$short_f32>,
                    repeats::<F64, narrower::$short_f64>,
                    repeats::<I32, narrower::$short_i32>
                )
            }

            pub(crate) fn iota(dtype: DType) -> IotaFn {
                by_type!(dtype, iotas::<f32>, iotas::<f64>, iotas::<i32>)
            }

            pub(crate) fn copy_strided(dtype: DType) -> StridedFn {
                by_type!(dtype, gathers::<u32>, gathers::<u64>, gathers::<u32>)
            }

            pub(crate) fn row_sum(dtype: DType) -> RowsFn {
                by_type!(
                    dtype,
                    fold::<F32, rows::Sum, $k32>,
                    fold::<F64, rows::Sum, $k64>,
                    fold::<I32, rows::Sum, $k32>
                )
            }

            pub(crate) fn row_max(dtype: DType) -> RowsFn {
                by_type!(
                    dtype,
                    fold::<F32, rows::Max, $k32>,
                    fold::<F64, rows::Max, $k64>,
                    fold::<I32, rows::Max, $k32>
                )
            }

            pub(crate) fn row_argmax(dtype: DType) -> RowsFn {
                by_type!(dtype, firsts::<F32, $k32>, firsts::<F64, $k64>, firsts::<I32, $k32>)
            }

            pub(crate) fn row_dot(dtype: DType) -> Rows2Fn {
                by_type!(dtype, dots::<F32, $k32>, dots::<F64, $k64>, dots::<I32, $k32>)
            }

            pub(crate) fn accumulate(dtype: DType) -> UnaryFn {
                by_type!(dtype, onto::<F32, basic::Add>, onto::<F64, basic::Add>, onto::<I32, basic::Add>)
            }

            pub(crate) fn accumulate_max(dtype: DType) -> UnaryFn {
                by_type!(dtype, onto::<F32, basic::Max>, onto::<F64, basic::Max>, onto::<I32, basic::Max>)
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
target!(
    wide,
    "AVX-512.",
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")],
    avx512::{F32x16, F64x8, I32x16},
    avx2::{F32x8, F64x4, I32x8},
    1,
    1
);
#[cfg(target_arch = "x86_64")]
target!(
    middle,
    "AVX2 with FMA.",
    #[target_feature(enable = "avx2,fma")],
    avx2::{F32x8, F64x4, I32x8},
    avx2::{F32x8, F64x4, I32x8},
    2,
    2
);
target!(
    plain,
    "Any machine.",
    ,
    portable::{F32x1, F64x1, I32x1},
    portable::{F32x1, F64x1, I32x1},
    16,
    8
);
