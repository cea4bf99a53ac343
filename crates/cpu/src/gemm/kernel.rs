//! The innermost loops, generic over the vector type: a tile of outer products, a tile of inner products, a transposed
//! block copy.

use crate::simd::{GemmVector, MAX_LANES, Num};

/// A tile of C with the vector axis contiguous:
///
/// c[i + j·c_col] (+)= Σ_r Σ_t a[i + …]·b[j·b_col + …]
///
/// The sum runs over `rows` × `len` terms: `a` and `b` move by their step after each term and by their skip after each
/// row, so that a contraction over the pixels of an image needs no copy of it.
pub(crate) struct GemmTile<T> {
    /// Number of rows of terms.
    pub rows: usize,
    /// Terms in a row.
    pub len: usize,
    /// First vector of the left operand; contiguous along i.
    pub a: *const T,
    /// Distance of `a` between terms.
    pub a_step: isize,
    /// Extra distance of `a` between rows.
    pub a_skip: isize,
    /// First broadcast element.
    pub b: *const T,
    /// Distance of `b` between terms.
    pub b_step: isize,
    /// Extra distance of `b` between rows.
    pub b_skip: isize,
    /// Distance of `b` between columns of the tile (taken as 1 by the unit kernels).
    pub b_col: isize,
    /// First element of the result.
    pub c: *mut T,
    /// Distance of `c` between columns of the tile.
    pub c_col: isize,
    /// Elements meant in the last vector along i, 1..=LANES.
    pub last: usize,
    /// Add to `c`, instead of replacing it.
    pub accumulate: bool,
}

/// A tile of `MV` vectors by `NR` columns; `UNIT` takes `b_col` as 1.
///
/// # Safety
/// All addresses the formula of [`GemmTile`] names must be good; the machine must have the instructions of `V`.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "constant ranges unroll into registers")]
pub(crate) unsafe fn tile<V: GemmVector, const MV: usize, const NR: usize, const UNIT: bool>(t: &GemmTile<V::Elem>) {
    // SAFETY: the caller's promise; masked accesses stay below `last`.
    unsafe {
        let full = t.last == V::LANES;
        let mask = V::lanes(0, t.last);
        let zero = V::splat(V::Elem::ZERO);
        let mut acc = [[zero; MV]; NR];
        let (mut a, mut b) = (t.a, t.b);
        let col = if UNIT { 1 } else { t.b_col };
        if t.rows * t.len >= 16 {
            // The result's lines arrive while the sum is made.
            for j in 0..NR {
                for v in 0..MV {
                    V::prefetch(t.c.wrapping_offset(j as isize * t.c_col).wrapping_add(v * V::LANES));
                }
            }
        }
        for _ in 0..t.rows {
            for _ in 0..t.len {
                let mut av = [zero; MV];
                for v in 0..MV {
                    let p = a.wrapping_add(v * V::LANES);
                    av[v] = if v + 1 < MV || (full && !V::FREE_MASK) { V::load(p) } else { V::load_lanes(p, mask) };
                }
                // Columns in threes from one address each, so that the addresses of twelve columns fit in registers.
                let mut three = b;
                for (j, acc) in acc.iter_mut().enumerate() {
                    let at = if UNIT { b.wrapping_add(j) } else { three.wrapping_offset((j % 3) as isize * col) };
                    let bv = V::splat(*at);
                    if j % 3 == 2 {
                        three = three.wrapping_offset(3 * col);
                    }
                    for v in 0..MV {
                        acc[v] = av[v].fma(bv, acc[v]);
                    }
                }
                a = a.wrapping_offset(t.a_step);
                b = b.wrapping_offset(t.b_step);
            }
            a = a.wrapping_offset(t.a_skip);
            b = b.wrapping_offset(t.b_skip);
        }
        let mut c = t.c;
        for acc in acc {
            for (v, mut x) in acc.into_iter().enumerate() {
                let p = c.wrapping_add(v * V::LANES);
                if v + 1 < MV || full {
                    if t.accumulate {
                        x = V::load(p).add(x);
                    }
                    x.store(p);
                } else {
                    if t.accumulate {
                        x = V::load_lanes(p, mask).add(x);
                    }
                    x.store_lanes(p, mask);
                }
            }
            c = c.wrapping_offset(t.c_col);
        }
    }
}

/// A tile of inner products: c[i·c_row + j·c_col] (+)= Σ_k a[i·a_row + k]·b[j·b_col + k].
pub(crate) struct Dots<T> {
    /// Terms in each sum.
    pub len: usize,
    /// First element of the left operand; contiguous along k.
    pub a: *const T,
    /// Distance of `a` between rows.
    pub a_row: isize,
    /// First element of the right operand; contiguous along k.
    pub b: *const T,
    /// Distance of `b` between columns.
    pub b_col: isize,
    /// First element of the result.
    pub c: *mut T,
    /// Distance of `c` between rows.
    pub c_row: isize,
    /// Distance of `c` between columns.
    pub c_col: isize,
    /// Add to `c`, instead of replacing it.
    pub accumulate: bool,
}

/// `DR` × `DC` inner products at once, each in one vector accumulator.
///
/// # Safety
/// All addresses the formula of [`Dots`] names must be good; the machine must have the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn dots<V: GemmVector, const DR: usize, const DC: usize>(t: &Dots<V::Elem>) {
    // SAFETY: the caller's promise; the masked tail stays below `len`.
    unsafe {
        let mut acc = [[V::splat(V::Elem::ZERO); DR]; DC];
        let a: [*const V::Elem; DR] = std::array::from_fn(|i| t.a.wrapping_offset(i as isize * t.a_row));
        let b: [*const V::Elem; DC] = std::array::from_fn(|j| t.b.wrapping_offset(j as isize * t.b_col));
        let whole = t.len - t.len % V::LANES;
        let mut k = 0;
        while k < whole {
            let av: [V; DR] = std::array::from_fn(|i| V::load(a[i].add(k)));
            for j in 0..DC {
                let bv = V::load(b[j].add(k));
                for i in 0..DR {
                    acc[j][i] = av[i].fma(bv, acc[j][i]);
                }
            }
            k += V::LANES;
        }
        if k < t.len {
            let mask = V::lanes(0, t.len - k);
            let av: [V; DR] = std::array::from_fn(|i| V::load_lanes(a[i].add(k), mask));
            for j in 0..DC {
                let bv = V::load_lanes(b[j].add(k), mask);
                for i in 0..DR {
                    acc[j][i] = av[i].fma(bv, acc[j][i]);
                }
            }
        }
        for (j, acc) in acc.iter().enumerate() {
            for (i, acc) in acc.iter().enumerate() {
                let p = t.c.wrapping_offset(i as isize * t.c_row + j as isize * t.c_col);
                let x = acc.sum();
                *p = if t.accumulate { (*p).plus(x) } else { x };
            }
        }
    }
}

/// A transposed copy: dst[j·dst_row + i] = src[i·src_row + j] for i < rows, j < cols, both at most `LANES`.
pub(crate) struct BlockCopy<T> {
    /// First source element.
    pub src: *const T,
    /// Distance between source rows.
    pub src_row: isize,
    /// Source rows.
    pub rows: usize,
    /// Source columns.
    pub cols: usize,
    /// First destination element.
    pub dst: *mut T,
    /// Distance between destination rows.
    pub dst_row: isize,
}

/// See [`BlockCopy`].
///
/// # Safety
/// All addresses the formula names must be good; the machine must have the instructions of `V`.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "constant ranges unroll into registers")]
pub(crate) unsafe fn transpose<V: GemmVector>(t: &BlockCopy<V::Elem>) {
    // SAFETY: the caller's promise; masked accesses stay inside the block.
    unsafe {
        let mut r = [V::splat(V::Elem::ZERO); MAX_LANES];
        let at = |i: usize| t.src.wrapping_offset(i as isize * t.src_row);
        let to = |j: usize| t.dst.wrapping_offset(j as isize * t.dst_row);
        if t.rows == V::LANES && t.cols == V::LANES {
            for i in 0..V::LANES {
                r[i] = V::load(at(i));
            }
            V::transpose(&mut r);
            for j in 0..V::LANES {
                r[j].store(to(j));
            }
        } else {
            let (have, want) = (V::lanes(0, t.cols), V::lanes(0, t.rows));
            for i in 0..V::LANES {
                if i < t.rows {
                    r[i] = V::load_lanes(at(i), have);
                }
            }
            V::transpose(&mut r);
            for j in 0..V::LANES {
                if j < t.cols {
                    r[j].store_lanes(to(j), want);
                }
            }
        }
    }
}

/// Rows copied as they are: dst[i·dst_row + j] = src[i·src_row + j] for i < rows, j < cols of a [`BlockCopy`].
///
/// # Safety
/// All addresses the formula names must be good; the machine must have the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn copy<V: GemmVector>(t: &BlockCopy<V::Elem>) {
    // SAFETY: the caller's promise; the masked tail stays inside the row.
    unsafe {
        let whole = t.cols - t.cols % V::LANES;
        let tail = V::lanes(0, t.cols - whole);
        let (mut src, mut dst) = (t.src, t.dst);
        for _ in 0..t.rows {
            let mut j = 0;
            while j < whole {
                // Rows far apart are beyond the machine's own prefetching.
                V::prefetch(src.wrapping_offset(16 * t.src_row).wrapping_add(j));
                V::load(src.add(j)).store(dst.add(j));
                j += V::LANES;
            }
            if whole < t.cols {
                V::load_lanes(src.add(j), tail).store_lanes(dst.add(j), tail);
            }
            src = src.wrapping_offset(t.src_row);
            dst = dst.wrapping_offset(t.dst_row);
        }
    }
}

/// Most taps of one [`Patch`].
pub(crate) const TAPS: usize = 16;

/// Patches of a run of pixels under a row of taps, by channel r and tap t:
///
/// dst[r·dst_row + t·dst_tap + j] = src[r·src_row + t·src_tap + j] where j is in inside[t], else 0, for j < cols.
pub(crate) struct Patch<'a, T> {
    /// The element that the first pixel reads under the first tap; elements not inside are never touched.
    pub src: *const T,
    /// Channels.
    pub rows: usize,
    /// Distance of `src` between channels.
    pub src_row: isize,
    /// Distance of `src` between taps.
    pub src_tap: isize,
    /// By tap, the pixels that read the image; at most [`TAPS`].
    pub inside: &'a [(usize, usize)],
    /// Pixels, at most two vectors.
    pub cols: usize,
    /// First destination element.
    pub dst: *mut T,
    /// Distance of `dst` between channels.
    pub dst_row: isize,
    /// Distance of `dst` between taps.
    pub dst_tap: usize,
}

/// See [`Patch`].
///
/// # Safety
/// All addresses the formula names must be good; the machine must have the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn patch<V: GemmVector>(p: &Patch<'_, V::Elem>) {
    // SAFETY: the caller's promise; masked accesses stay inside.
    unsafe {
        let mut read = [[V::lanes(0, 0); 2]; TAPS];
        for (read, &(low, high)) in read.iter_mut().zip(p.inside) {
            for (v, read) in read.iter_mut().enumerate() {
                let part = |x: usize| x.clamp(v * V::LANES, (v + 1) * V::LANES) - v * V::LANES;
                *read = V::lanes(part(low), part(high));
            }
        }
        let two = p.cols > V::LANES;
        let last = p.cols - if two { V::LANES } else { 0 };
        let write = V::lanes(0, last);
        let (mut src, mut dst) = (p.src, p.dst);
        // Channel by channel, so that every page is visited once; destinations follow each other.
        for _ in 0..p.rows {
            let (mut from, mut to) = (src, dst);
            for read in &read[..p.inside.len()] {
                if two {
                    V::load_lanes(from, read[0]).store(to);
                    let second = V::load_lanes(from.wrapping_add(V::LANES), read[1]);
                    second.store_lanes(to.wrapping_add(V::LANES), write);
                } else {
                    V::load_lanes(from, read[0]).store_lanes(to, write);
                }
                from = from.wrapping_offset(p.src_tap);
                to = to.wrapping_add(p.dst_tap);
            }
            src = src.wrapping_offset(p.src_row);
            dst = dst.wrapping_offset(p.dst_row);
        }
    }
}
