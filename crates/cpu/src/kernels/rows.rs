//! Reductions over the rows of a contiguous tile `[r, l]`, in an order that depends on l alone.
//!
//! Element j of a row belongs to lane j mod W of 64 bytes (W = 16 or 8), in four such sets of lanes for long rows, for
//! any width of the machine's registers; lanes are then added by halves. So every instruction set gives the same bits,
//! and the error of a sum of n positive numbers grows like n/(4·W) at worst.
//!
//! The callers of its kernels promise that the machine has the instruction set of `V`, and the requirements of
//! `kernels/mod.rs` on the pointers of a kernel: r·l elements behind an operand, and room for r behind `dst`.

use crate::simd::{Fold, MAX_LANES, Num, Vector};

/// Longest run summed in lanes before the partial sum is put aside: keeps the error of very long rows small.
const MAX_RUN: usize = 4096;

/// Sum.
pub(crate) struct Sum;
/// Largest, NaN where any is.
pub(crate) struct Max;

impl<V: Num> Fold<V> for Sum {
    const START: V::Elem = V::ZERO;
    #[inline(always)]
    fn two(a: V, b: V) -> V {
        a.plus(b)
    }
    #[inline(always)]
    fn lanes(a: V) -> V::Elem {
        a.fold_sum()
    }
}

impl<V: Num> Fold<V> for Max {
    const START: V::Elem = V::LEAST;
    #[inline(always)]
    fn two(a: V, b: V) -> V {
        a.max(b)
    }
    #[inline(always)]
    fn lanes(a: V) -> V::Elem {
        a.fold_max()
    }
}

/// The content of a row: elements, or products of two rows.
///
/// # Safety
/// The callers of its functions promise that the requested elements can be read, and that the machine has the
/// instruction set of `V`.
pub(crate) trait Row<V: Num>: Copy {
    /// Lanes from element i on.
    unsafe fn full(self, i: usize) -> V;
    /// The first n lanes from element i on, the others `rest`.
    unsafe fn part(self, i: usize, n: usize, rest: V) -> V;
    /// The row that begins n elements further on.
    unsafe fn skip(self, n: usize) -> Self;
}

impl<V: Num> Row<V> for *const V::Elem {
    #[inline(always)]
    unsafe fn full(self, i: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load(self.add(i)) }
    }
    #[inline(always)]
    unsafe fn part(self, i: usize, n: usize, rest: V) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_part(self.add(i), n, rest) }
    }
    #[inline(always)]
    unsafe fn skip(self, n: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe { self.add(n) }
    }
}

impl<V: Num> Row<V> for (*const V::Elem, *const V::Elem) {
    #[inline(always)]
    unsafe fn full(self, i: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load(self.0.add(i)).times(V::load(self.1.add(i))) }
    }
    #[inline(always)]
    unsafe fn part(self, i: usize, n: usize, rest: V) -> V {
        let zero = rest.all(V::ZERO);
        // SAFETY: the caller's promise.
        unsafe { V::load_part(self.0.add(i), n, zero).times(V::load_part(self.1.add(i), n, rest)) }
    }
    #[inline(always)]
    unsafe fn skip(self, n: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe { (self.0.add(n), self.1.add(n)) }
    }
}

/// Combines K registers that make up 64 bytes into one, by halves.
#[inline(always)]
fn narrow<V: Num, F: Fold<V>, const K: usize>(mut lanes: [V; K]) -> V {
    let mut k = K;
    while k > 1 {
        k /= 2;
        for j in 0..k {
            lanes[j] = F::two(lanes[j], lanes[j + k]);
        }
    }
    lanes[0]
}

/// The last elements `i..to` of a row, fewer than 64 bytes of them, combined into the lanes.
///
/// # Safety
/// The row has `to` elements.
#[inline(always)]
unsafe fn finish<V: Num, F: Fold<V>, R: Row<V>, const K: usize>(row: R, mut i: usize, to: usize, lanes: &mut [V; K]) {
    for lane in lanes.iter_mut() {
        // SAFETY: neither branch reads beyond element `to`.
        unsafe {
            if i + V::LANES <= to {
                *lane = F::two(*lane, row.full(i));
            } else if i < to {
                *lane = F::two(*lane, row.part(i, to - i, lane.all(F::START)));
            }
        }
        i += V::LANES;
    }
}

/// Combines elements `from..to` of a row into one register.
///
/// # Safety
/// The row has `to` elements, and the machine the instruction set of `V`.
#[inline(always)]
unsafe fn run<V: Num, F: Fold<V>, R: Row<V>, const K: usize>(row: R, from: usize, to: usize) -> V {
    // SAFETY: the caller's promise.
    let start = unsafe { V::splat(F::START) };
    let wide = K * V::LANES;
    let mut lanes = [start; K];
    let mut i = from;
    // SAFETY: each loop ends before it would read beyond element `to`.
    unsafe {
        if to - from >= 4 * wide {
            // Four independent sets hide the latency of the adder.
            let mut sets = [[start; K]; 4];
            while i + 4 * wide <= to {
                for (s, set) in sets.iter_mut().enumerate() {
                    for (k, lane) in set.iter_mut().enumerate() {
                        *lane = F::two(*lane, row.full(i + s * wide + k * V::LANES));
                    }
                }
                i += 4 * wide;
            }
            for (k, lane) in lanes.iter_mut().enumerate() {
                *lane = F::two(F::two(sets[0][k], sets[1][k]), F::two(sets[2][k], sets[3][k]));
            }
        }
        while i + wide <= to {
            for (k, lane) in lanes.iter_mut().enumerate() {
                *lane = F::two(*lane, row.full(i + k * V::LANES));
            }
            i += wide;
        }
        finish::<V, F, R, K>(row, i, to, &mut lanes);
    }
    narrow::<V, F, K>(lanes)
}

/// Combines one row of length l.
///
/// # Safety
/// The row has l elements, and the machine the instruction set of `V`.
#[inline(always)]
unsafe fn one<V: Num, F: Fold<V> + Fold<V::Elem>, R: Row<V>, const K: usize>(row: R, l: usize) -> V::Elem {
    // SAFETY: no run goes beyond element l.
    unsafe {
        let mut from = 0;
        let mut total = F::lanes(run::<V, F, R, K>(row, 0, l.min(MAX_RUN)));
        while from + MAX_RUN < l {
            from += MAX_RUN;
            let next = F::lanes(run::<V, F, R, K>(row, from, l.min(from + MAX_RUN)));
            total = <F as Fold<V::Elem>>::two(total, next);
        }
        total
    }
}

/// Combines r rows of length l.
///
/// Rows are taken `LANES` at a time, so that folding the lanes is shared between them; the order within a row is that of
/// a row on its own. Rows shorter than 64 bytes skip the loops of longer ones.
///
/// # Safety
/// See the head of this file.
#[inline(always)]
unsafe fn all<V: Num, F: Fold<V> + Fold<V::Elem>, R: Row<V>, const K: usize>(
    dst: *mut V::Elem,
    row: R,
    r: usize,
    l: usize,
) {
    // SAFETY: i + LANES ≤ r rows are read in the first loop, one row at a time in the second; `rows` holds the
    // most lanes there are.
    unsafe {
        let mut i = 0;
        if V::LANES > 1 && l <= MAX_RUN {
            let start = V::splat(<F as Fold<V>>::START);
            let mut rows = [start; MAX_LANES];
            while i + V::LANES <= r {
                if l < K * V::LANES {
                    for (j, lane) in rows[..V::LANES].iter_mut().enumerate() {
                        let mut lanes = [start; K];
                        finish::<V, F, R, K>(row.skip((i + j) * l), 0, l, &mut lanes);
                        *lane = narrow::<V, F, K>(lanes);
                    }
                } else {
                    for (j, lane) in rows[..V::LANES].iter_mut().enumerate() {
                        *lane = run::<V, F, R, K>(row.skip((i + j) * l), 0, l);
                    }
                }
                V::fold_each::<F>(&rows).store(dst.add(i));
                i += V::LANES;
            }
        }
        while i < r {
            one::<V, F, R, K>(row.skip(i * l), l).store(dst.add(i));
            i += 1;
        }
    }
}

/// dst\[i\] = Σⱼ a\[i, j\], or the largest
///
/// # Safety
/// See the head of this file.
#[inline(always)]
pub(crate) unsafe fn reduce<V: Num, F: Fold<V> + Fold<V::Elem>, const K: usize>(
    dst: *mut u8,
    a: *const u8,
    r: usize,
    l: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { all::<V, F, _, K>(dst.cast(), a.cast::<V::Elem>(), r, l) }
}

/// dst\[i\] = Σⱼ a\[i, j\]·b\[i, j\]: the same bits as the product followed by the sum.
///
/// # Safety
/// See the head of this file.
#[inline(always)]
pub(crate) unsafe fn dot<V: Num, const K: usize>(dst: *mut u8, a: *const u8, b: *const u8, r: usize, l: usize) {
    // SAFETY: the caller's promise.
    unsafe { all::<V, Sum, _, K>(dst.cast(), (a.cast::<V::Elem>(), b.cast::<V::Elem>()), r, l) }
}

/// dst\[i\] = the first j with the largest a\[i, j\], a NaN counting as larger than any number.
///
/// The largest values of 64 rows are found first, then in each row the first lane that holds it. If the largest is NaN,
/// the first element unequal to itself is sought.
///
/// # Safety
/// See the head of this file.
#[inline(always)]
pub(crate) unsafe fn argmax<V: Num, const K: usize>(dst: *mut u8, a: *const u8, r: usize, l: usize) {
    // SAFETY: i + rows ≤ r, and `tops` holds the 64 rows that are processed together.
    unsafe {
        let (dst, a) = (dst.cast::<i32>(), a.cast::<V::Elem>());
        let mut tops = [V::LEAST; 64];
        let mut i = 0;
        while i < r {
            let rows = (r - i).min(64);
            all::<V, Max, _, K>(tops.as_mut_ptr(), a.add(i * l), rows, l);
            for (k, &top) in tops[..rows].iter().enumerate() {
                dst.add(i + k).write_unaligned(first_at::<V>(a.add((i + k) * l), l, V::splat(top)));
            }
            i += rows;
        }
    }
}

/// The first index of `top`, or of NaN, in a row that holds one.
///
/// # Safety
/// The row has l elements.
#[inline(always)]
unsafe fn first_at<V: Num>(row: *const V::Elem, l: usize, top: V) -> i32 {
    let mut j = 0;
    // SAFETY: j + LANES ≤ l in the loop, and l − j elements are left after it.
    unsafe {
        while j + V::LANES <= l {
            let v = V::load(row.add(j));
            let hit = V::mask_bits(v.equal(top) | !v.equal(v));
            if hit != 0 {
                return j as i32 + hit.trailing_zeros() as i32;
            }
            j += V::LANES;
        }
        // Lanes past the end repeat `top`, but the row's own comes before them.
        let v = V::load_part(row.add(j), l - j, top);
        j as i32 + V::mask_bits(v.equal(top) | !v.equal(v)).trailing_zeros() as i32
    }
}
