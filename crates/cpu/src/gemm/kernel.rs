//! The innermost loops, generic over the vector type: a tile of outer products, a tile of inner products, a transposed
//! block copy.

use super::simd::Simd;

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
/// All addresses the formula of [`GemmTile`] names must be good; the machine must have the instructions of `S`.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "constant ranges unroll into registers")]
pub(crate) unsafe fn tile<S: Simd, const MV: usize, const NR: usize, const UNIT: bool>(t: &GemmTile<S::T>) {
    // SAFETY: the caller's promise; masked accesses stay below `last`.
    unsafe {
        let full = t.last == S::LANES;
        let mask = S::mask(t.last);
        let mut acc = [[S::zero(); MV]; NR];
        let (mut a, mut b) = (t.a, t.b);
        let col = if UNIT { 1 } else { t.b_col };
        if t.rows * t.len >= 16 {
            // The result's lines arrive while the sum is made.
            for j in 0..NR {
                for v in 0..MV {
                    S::prefetch(t.c.wrapping_offset(j as isize * t.c_col).wrapping_add(v * S::LANES));
                }
            }
        }
        for _ in 0..t.rows {
            for _ in 0..t.len {
                let mut av = [S::zero(); MV];
                for v in 0..MV {
                    let p = a.wrapping_add(v * S::LANES);
                    av[v] = if v + 1 < MV || (full && !S::FREE_MASK) { S::load(p) } else { S::load_mask(p, mask) };
                }
                // Columns in threes from one address each, so that the addresses of twelve columns fit in registers.
                let mut three = b;
                for (j, acc) in acc.iter_mut().enumerate() {
                    let bv =
                        S::splat(if UNIT { b.wrapping_add(j) } else { three.wrapping_offset((j % 3) as isize * col) });
                    if j % 3 == 2 {
                        three = three.wrapping_offset(3 * col);
                    }
                    for v in 0..MV {
                        acc[v] = S::fma(av[v], bv, acc[v]);
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
                let p = c.wrapping_add(v * S::LANES);
                if v + 1 < MV || full {
                    if t.accumulate {
                        x = S::add(S::load(p), x);
                    }
                    S::store(p, x);
                } else {
                    if t.accumulate {
                        x = S::add(S::load_mask(p, mask), x);
                    }
                    S::store_mask(p, x, mask);
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
/// All addresses the formula of [`Dots`] names must be good; the machine must have the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn dots<S: Simd, const DR: usize, const DC: usize>(t: &Dots<S::T>)
where
    S::T: std::ops::Add<Output = S::T>,
{
    // SAFETY: the caller's promise; the masked tail stays below `len`.
    unsafe {
        let mut acc = [[S::zero(); DR]; DC];
        let a: [*const S::T; DR] = std::array::from_fn(|i| t.a.wrapping_offset(i as isize * t.a_row));
        let b: [*const S::T; DC] = std::array::from_fn(|j| t.b.wrapping_offset(j as isize * t.b_col));
        let whole = t.len - t.len % S::LANES;
        let mut k = 0;
        while k < whole {
            let av: [S::V; DR] = std::array::from_fn(|i| S::load(a[i].add(k)));
            for j in 0..DC {
                let bv = S::load(b[j].add(k));
                for i in 0..DR {
                    acc[j][i] = S::fma(av[i], bv, acc[j][i]);
                }
            }
            k += S::LANES;
        }
        if k < t.len {
            let mask = S::mask(t.len - k);
            let av: [S::V; DR] = std::array::from_fn(|i| S::load_mask(a[i].add(k), mask));
            for j in 0..DC {
                let bv = S::load_mask(b[j].add(k), mask);
                for i in 0..DR {
                    acc[j][i] = S::fma(av[i], bv, acc[j][i]);
                }
            }
        }
        for (j, acc) in acc.iter().enumerate() {
            for (i, acc) in acc.iter().enumerate() {
                let p = t.c.wrapping_offset(i as isize * t.c_row + j as isize * t.c_col);
                let x = S::sum(*acc);
                *p = if t.accumulate { *p + x } else { x };
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
/// All addresses the formula names must be good; the machine must have the instructions of `S`.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "constant ranges unroll into registers")]
pub(crate) unsafe fn transpose<S: Simd>(t: &BlockCopy<S::T>) {
    // SAFETY: the caller's promise; masked accesses stay inside the block.
    unsafe {
        let mut r = [S::zero(); 16];
        let at = |i: usize| t.src.wrapping_offset(i as isize * t.src_row);
        let to = |j: usize| t.dst.wrapping_offset(j as isize * t.dst_row);
        if t.rows == S::LANES && t.cols == S::LANES {
            for i in 0..S::LANES {
                r[i] = S::load(at(i));
            }
            S::transpose(&mut r);
            for j in 0..S::LANES {
                S::store(to(j), r[j]);
            }
        } else {
            let (have, want) = (S::mask(t.cols), S::mask(t.rows));
            for i in 0..S::LANES {
                if i < t.rows {
                    r[i] = S::load_mask(at(i), have);
                }
            }
            S::transpose(&mut r);
            for j in 0..S::LANES {
                if j < t.cols {
                    S::store_mask(to(j), r[j], want);
                }
            }
        }
    }
}

/// Rows copied as they are: dst[i·dst_row + j] = src[i·src_row + j] for i < rows, j < cols of a [`BlockCopy`].
///
/// # Safety
/// All addresses the formula names must be good; the machine must have the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn copy<S: Simd>(t: &BlockCopy<S::T>) {
    // SAFETY: the caller's promise; the masked tail stays inside the row.
    unsafe {
        let whole = t.cols - t.cols % S::LANES;
        let tail = S::mask(t.cols - whole);
        let (mut src, mut dst) = (t.src, t.dst);
        for _ in 0..t.rows {
            let mut j = 0;
            while j < whole {
                // Rows far apart are beyond the machine's own prefetching.
                S::prefetch(src.wrapping_offset(16 * t.src_row).wrapping_add(j));
                S::store(dst.add(j), S::load(src.add(j)));
                j += S::LANES;
            }
            if whole < t.cols {
                S::store_mask(dst.add(j), S::load_mask(src.add(j), tail), tail);
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
/// All addresses the formula names must be good; the machine must have the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn patch<S: Simd>(p: &Patch<'_, S::T>) {
    // SAFETY: the caller's promise; masked accesses stay inside.
    unsafe {
        let mut read = [[S::mask(0); 2]; TAPS];
        for (read, &(low, high)) in read.iter_mut().zip(p.inside) {
            for (v, read) in read.iter_mut().enumerate() {
                let part = |x: usize| x.clamp(v * S::LANES, (v + 1) * S::LANES) - v * S::LANES;
                *read = S::mask_between(part(low), part(high));
            }
        }
        let two = p.cols > S::LANES;
        let last = p.cols - if two { S::LANES } else { 0 };
        let write = S::mask(last);
        let (mut src, mut dst) = (p.src, p.dst);
        // Channel by channel, so that every page is visited once; destinations follow each other.
        for _ in 0..p.rows {
            let (mut from, mut to) = (src, dst);
            for read in &read[..p.inside.len()] {
                if two {
                    S::store(to, S::load_mask(from, read[0]));
                    S::store_mask(to.wrapping_add(S::LANES), S::load_mask(from.wrapping_add(S::LANES), read[1]), write);
                } else {
                    S::store_mask(to, S::load_mask(from, read[0]), write);
                }
                from = from.wrapping_offset(p.src_tap);
                to = to.wrapping_add(p.dst_tap);
            }
            src = src.wrapping_offset(p.src_row);
            dst = dst.wrapping_offset(p.dst_row);
        }
    }
}
