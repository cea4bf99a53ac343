//! The default kernel of an elementwise function: one element after the other, by the reference's formula of one number.
//!
//! A function that is worth vector instructions has a kernel in `targets.rs`; any other needs nothing here.

use super::{Arity, BinaryFn, UnaryFn};
use bilevel_graph::{BinaryOp, DType, UnaryOp, scalar};

/// A float type, whose numbers are all f64s.
pub(crate) trait ScalarFloat: Copy {
    const DTYPE: DType;
    fn wide(self) -> f64;
    fn of(x: f64) -> Self;
}

impl ScalarFloat for f32 {
    const DTYPE: DType = DType::F32;
    fn wide(self) -> f64 {
        self.into()
    }
    fn of(x: f64) -> Self {
        x as f32
    }
}

impl ScalarFloat for f64 {
    const DTYPE: DType = DType::F64;
    fn wide(self) -> f64 {
        self
    }
    fn of(x: f64) -> Self {
        x
    }
}

/// The length of the tables below.
const MAX_OPS: usize = 32;
const _: () = assert!(UnaryOp::COUNT <= MAX_OPS && BinaryOp::COUNT <= MAX_OPS);

/// dst\[i\] = f(a\[i\]) for the function of this number.
///
/// # Safety
/// n elements are behind each pointer.
unsafe fn map1<T: ScalarFloat, const OP: usize>(dst: *mut u8, a: *const u8, n: usize) {
    let op = const { UnaryOp::ALL[OP % UnaryOp::COUNT] };
    let (dst, a) = (dst.cast::<T>(), a.cast::<T>());
    for i in 0..n {
        // SAFETY: i is below n, and each element is read before its place is written.
        unsafe { dst.add(i).write_unaligned(T::of(scalar::unary(op, a.add(i).read_unaligned().wide(), T::DTYPE))) }
    }
}

/// dst\[i\] = f(a\[i·A\], b\[i·B\]) for the function of this number: the step of a scalar operand is 0.
///
/// # Safety
/// n elements, or the one of a scalar operand, are behind each pointer.
unsafe fn map2<T: ScalarFloat, const A: usize, const B: usize, const OP: usize>(
    dst: *mut u8,
    a: *const u8,
    b: *const u8,
    n: usize,
) {
    let op = const { BinaryOp::ALL[OP % BinaryOp::COUNT] };
    let (dst, a, b) = (dst.cast::<T>(), a.cast::<T>(), b.cast::<T>());
    for i in 0..n {
        // SAFETY: i is below n, and each element of a tile is read before its place is written.
        unsafe {
            let (x, y) = (a.add(i * A).read_unaligned().wide(), b.add(i * B).read_unaligned().wide());
            dst.add(i).write_unaligned(T::of(scalar::binary(op, x, y, T::DTYPE)));
        }
    }
}

/// A generic kernel for every number of an operation.
macro_rules! table {
    ($f:ident::<$($of:tt),*>) => {
        table!($f::<$($of),*>; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    ($f:ident::<$a:tt>; $($op:literal)*) => { [$($f::<$a, $op>),*] };
    ($f:ident::<$a:tt, $b:tt, $c:tt>; $($op:literal)*) => { [$($f::<$a, $b, $c, $op>),*] };
}

/// The kernel of a function of one number.
pub(crate) fn unary<T: ScalarFloat>(op: UnaryOp) -> UnaryFn {
    let table: [UnaryFn; MAX_OPS] = table!(map1::<T>);
    table[op as usize]
}

/// The kernel of a function of two numbers.
pub(crate) fn binary<T: ScalarFloat>(op: BinaryOp, a: Arity, b: Arity) -> BinaryFn {
    let table: [BinaryFn; MAX_OPS] = match (a, b) {
        (Arity::Tile, Arity::Tile) => table!(map2::<T, 1, 1>),
        (Arity::Tile, Arity::Scalar) => table!(map2::<T, 1, 0>),
        (Arity::Scalar, Arity::Tile) => table!(map2::<T, 0, 1>),
        (Arity::Scalar, Arity::Scalar) => table!(map2::<T, 0, 0>),
    };
    table[op as usize]
}
