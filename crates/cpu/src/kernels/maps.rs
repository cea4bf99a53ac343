//! Loops that apply one function to every element of a tile, with a masked tail.
//!
//! Their callers promise that the machine has the instruction set of `V`, and the requirements of `kernels/mod.rs` on
//! the pointers of a kernel: n elements, or one of a scalar, behind each.

pub(crate) use crate::simd::Binary;
use crate::simd::Num;

/// A function of one vector.
pub(crate) trait Unary<V> {
    /// The function, lane by lane.
    fn apply(a: V) -> V;
}

/// A function of three vectors.
pub(crate) trait Ternary<V> {
    /// The function, lane by lane.
    fn apply(a: V, b: V, c: V) -> V;
}

/// An operand: a tile read along, or one element held in all lanes.
struct Operand<V: Num, const SCALAR: bool> {
    at: *const V::Elem,
    held: V,
}

impl<V: Num, const SCALAR: bool> Operand<V, SCALAR> {
    /// # Safety
    /// The machine must have the instruction set of `V`; a scalar can be read at `at`, and elsewhere every element that
    /// is read later.
    #[inline(always)]
    unsafe fn new(at: *const u8) -> Self {
        let at = at.cast::<V::Elem>();
        // SAFETY: the caller's promise.
        let held = unsafe { V::splat(if SCALAR { at.read_unaligned() } else { V::ZERO }) };
        Operand { at, held }
    }
    /// Elements i.. that fill a vector.
    ///
    /// # Safety
    /// A tile has them.
    #[inline(always)]
    unsafe fn full(&self, i: usize) -> V {
        // SAFETY: the caller's promise; `held` is proof of the instruction set.
        if SCALAR { self.held } else { unsafe { V::load(self.at.add(i)) } }
    }
    /// The n elements from i on, fewer than fill a vector.
    ///
    /// # Safety
    /// A tile has them.
    #[inline(always)]
    unsafe fn part(&self, i: usize, n: usize) -> V {
        // SAFETY: the caller's promise.
        if SCALAR { self.held } else { unsafe { V::load_part(self.at.add(i), n, self.held) } }
    }
}

/// dst\[i\] = f(a\[i\])
///
/// # Safety
/// See the head of this file.
#[inline(always)]
pub(crate) unsafe fn unary<V: Num, O: Unary<V>>(dst: *mut u8, a: *const u8, n: usize) {
    // SAFETY: i + LANES ≤ n in the loop, and n − i elements are left after it.
    unsafe {
        let (dst, a) = (dst.cast::<V::Elem>(), Operand::<V, false>::new(a));
        let mut i = 0;
        while i + V::LANES <= n {
            O::apply(a.full(i)).store(dst.add(i));
            i += V::LANES;
        }
        if i < n {
            O::apply(a.part(i, n - i)).store_part(dst.add(i), n - i);
        }
    }
}

/// dst\[i\] = f(a\[i\], b\[i\]), where a scalar operand is the same for all i.
///
/// # Safety
/// See the head of this file.
#[inline(always)]
pub(crate) unsafe fn binary<V: Num, O: Binary<V>, const A: bool, const B: bool>(
    dst: *mut u8,
    a: *const u8,
    b: *const u8,
    n: usize,
) {
    // SAFETY: i + LANES ≤ n in the loop, and n − i elements are left after it.
    unsafe {
        let (dst, a, b) = (dst.cast::<V::Elem>(), Operand::<V, A>::new(a), Operand::<V, B>::new(b));
        let mut i = 0;
        while i + V::LANES <= n {
            O::apply(a.full(i), b.full(i)).store(dst.add(i));
            i += V::LANES;
        }
        if i < n {
            O::apply(a.part(i, n - i), b.part(i, n - i)).store_part(dst.add(i), n - i);
        }
    }
}

/// dst\[i\] = f(a\[i\], b\[i\], c\[i\]), where a scalar operand is the same for all i.
///
/// # Safety
/// See the head of this file.
#[inline(always)]
pub(crate) unsafe fn ternary<V: Num, O: Ternary<V>, const A: bool, const B: bool, const C: bool>(
    dst: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    n: usize,
) {
    // SAFETY: i + LANES ≤ n in the loop, and n − i elements are left after it.
    unsafe {
        let dst = dst.cast::<V::Elem>();
        let (a, b, c) = (Operand::<V, A>::new(a), Operand::<V, B>::new(b), Operand::<V, C>::new(c));
        let mut i = 0;
        while i + V::LANES <= n {
            O::apply(a.full(i), b.full(i), c.full(i)).store(dst.add(i));
            i += V::LANES;
        }
        if i < n {
            let m = n - i;
            O::apply(a.part(i, m), b.part(i, m), c.part(i, m)).store_part(dst.add(i), m);
        }
    }
}
