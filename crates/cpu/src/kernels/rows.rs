//! Reductions over the rows of a contiguous tile `[r, l]`, in an order that depends on l alone.
//!
//! Element j of a row belongs to lane j mod W of 64 bytes (W = 16 or 8), in four such lanes sets for long rows, whatever
//! the width of the machine's registers; lanes are then added by halves. So every instruction set gives the same bits,
//! and the error of a sum of n positive numbers grows like n/(4·W) at worst.

use super::simd::Num;

/// Longest run summed in lanes before the partial sum is put aside: keeps the error of very long rows small.
const RUN: usize = 4096;

/// How a row is combined.
pub(crate) trait Fold<V: Num> {
    /// The value that changes nothing.
    const START: V::Elem;
    /// Combines two vectors.
    fn two(a: V, b: V) -> V;
    /// Combines the lanes of a vector by halves.
    fn lanes(a: V) -> V::Elem;
}

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

/// What a row holds: the elements themselves, or products of two rows.
pub(crate) trait Row<V: Num>: Copy {
    /// Lanes from element i on.
    unsafe fn full(self, i: usize) -> V;
    /// The first n lanes from element i on, the others `rest`.
    unsafe fn part(self, i: usize, n: usize, rest: V) -> V;
}

impl<V: Num> Row<V> for *const V::Elem {
    #[inline(always)]
    unsafe fn full(self, i: usize) -> V {
        unsafe { V::load(self.add(i)) }
    }
    #[inline(always)]
    unsafe fn part(self, i: usize, n: usize, rest: V) -> V {
        unsafe { V::load_part(self.add(i), n, rest) }
    }
}

impl<V: Num> Row<V> for (*const V::Elem, *const V::Elem) {
    #[inline(always)]
    unsafe fn full(self, i: usize) -> V {
        unsafe { V::load(self.0.add(i)).times(V::load(self.1.add(i))) }
    }
    #[inline(always)]
    unsafe fn part(self, i: usize, n: usize, rest: V) -> V {
        let zero = V::splat(V::ZERO);
        unsafe { V::load_part(self.0.add(i), n, zero).times(V::load_part(self.1.add(i), n, rest)) }
    }
}

/// Combines elements `from..to` of a row: K registers make up 64 bytes.
#[inline(always)]
unsafe fn fold_run<V: Num, F: Fold<V>, R: Row<V>, const K: usize>(row: R, from: usize, to: usize) -> V::Elem {
    let start = V::splat(F::START);
    let wide = K * V::LANES;
    let mut lanes = [start; K];
    let mut i = from;
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
        for lane in lanes.iter_mut() {
            if i + V::LANES <= to {
                *lane = F::two(*lane, row.full(i));
                i += V::LANES;
            } else if i < to {
                *lane = F::two(*lane, row.part(i, to - i, start));
                i = to;
            }
        }
    }
    let mut k = K;
    while k > 1 {
        k /= 2;
        for j in 0..k {
            lanes[j] = F::two(lanes[j], lanes[j + k]);
        }
    }
    F::lanes(lanes[0])
}

/// Combines one row of length l.
#[inline(always)]
unsafe fn fold_row<V: Num, F: Fold<V> + Fold<V::Elem>, R: Row<V>, const K: usize>(row: R, l: usize) -> V::Elem {
    unsafe {
        let mut from = 0;
        let mut total = fold_run::<V, F, R, K>(row, 0, l.min(RUN));
        while from + RUN < l {
            from += RUN;
            let next = fold_run::<V, F, R, K>(row, from, l.min(from + RUN));
            total = <F as Fold<V::Elem>>::two(total, next);
        }
        total
    }
}

/// dst\[i\] = Σⱼ a\[i, j\], or the largest
#[inline(always)]
pub(crate) unsafe fn reduce<V: Num, F: Fold<V> + Fold<V::Elem>, const K: usize>(
    dst: *mut u8,
    a: *const u8,
    r: usize,
    l: usize,
) {
    unsafe {
        let (dst, a) = (dst.cast::<V::Elem>(), a.cast::<V::Elem>());
        for i in 0..r {
            fold_row::<V, F, _, K>(a.add(i * l), l).store(dst.add(i));
        }
    }
}

/// dst\[i\] = Σⱼ a\[i, j\]·b\[i, j\]: the same bits as the product followed by the sum.
#[inline(always)]
pub(crate) unsafe fn dot<V: Num, const K: usize>(dst: *mut u8, a: *const u8, b: *const u8, r: usize, l: usize) {
    unsafe {
        let (dst, a, b) = (dst.cast::<V::Elem>(), a.cast::<V::Elem>(), b.cast::<V::Elem>());
        for i in 0..r {
            fold_row::<V, Sum, _, K>((a.add(i * l), b.add(i * l)), l).store(dst.add(i));
        }
    }
}

/// dst\[i\] = the first j with the largest a\[i, j\], a NaN counting as larger than any number.
///
/// The largest value is found first, then the first lane that holds it; a NaN largest is the only one unequal to itself.
#[inline(always)]
pub(crate) unsafe fn argmax<V: Num, const K: usize>(dst: *mut u8, a: *const u8, r: usize, l: usize) {
    unsafe {
        let (dst, a) = (dst.cast::<i32>(), a.cast::<V::Elem>());
        for i in 0..r {
            let row = a.add(i * l);
            let top = V::splat(fold_row::<V, Max, _, K>(row, l));
            let found = |v: V| V::mask_bits(v.equal(top) | !v.equal(v));
            let mut j = 0;
            let mut hit = 0;
            while j + V::LANES <= l {
                hit = found(V::load(row.add(j)));
                if hit != 0 {
                    break;
                }
                j += V::LANES;
            }
            if hit == 0 && j < l {
                // Lanes past the end repeat `top` at worst, after the first true lane.
                hit = found(V::load_part(row.add(j), l - j, top));
            }
            dst.add(i).write_unaligned((j as u32 + hit.trailing_zeros()) as i32);
        }
    }
}
