//! Moves matrix elements between strided memory and the contiguous panels the kernels read.

use super::kernel::BlockCopy;
use crate::gemm::kernel_tables::{Kernels, Real};

/// Elements a tile of C can have, on any machine.
pub(crate) const MAX_TILE_ELEMENTS: usize = 512;

/// Packs one panel: dst[k·dst_row + i] = src[i·step_i + k·step_k] for i < width, k < len.
///
/// # Safety
/// All addresses the formula names must be good.
pub(crate) unsafe fn pack<T: Real>(
    kernels: &Kernels<T>,
    src: *const T,
    (step_i, step_k): (isize, isize),
    width: usize,
    len: usize,
    dst: *mut T,
    dst_row: usize,
) {
    let l = kernels.lanes;
    // SAFETY: the caller's promise; blocks are cut off at `width` and `len`.
    unsafe {
        if step_i == 1 {
            (kernels.copy)(&BlockCopy { src, src_row: step_k, rows: len, cols: width, dst, dst_row: dst_row as isize });
        } else if step_k == 1 && width > 1 {
            for k in (0..len).step_by(l) {
                for i in (0..width).step_by(l) {
                    (kernels.transpose)(&BlockCopy {
                        src: src.offset(i as isize * step_i + k as isize),
                        src_row: step_i,
                        rows: l.min(width - i),
                        cols: l.min(len - k),
                        dst: dst.add(k * dst_row + i),
                        dst_row: dst_row as isize,
                    });
                }
            }
        } else {
            for k in 0..len {
                let (mut from, to) = (src.offset(k as isize * step_k), dst.add(k * dst_row));
                for i in 0..width {
                    *to.add(i) = *from;
                    from = from.wrapping_offset(step_i);
                }
            }
        }
    }
}

/// Writes a finished tile out: c[i·row + j·col] (+)= tile[j·height + i] for i < height, j < cols.
///
/// # Safety
/// All addresses the formula names must be good.
pub(crate) unsafe fn unpack<T: Real>(
    kernels: &Kernels<T>,
    tile: *const T,
    (height, cols): (usize, usize),
    c: *mut T,
    (row, col): (isize, isize),
    accumulate: bool,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if col == 1 && !accumulate {
            let l = kernels.lanes;
            for j in (0..cols).step_by(l) {
                for i in (0..height).step_by(l) {
                    (kernels.transpose)(&BlockCopy {
                        src: tile.add(j * height + i),
                        src_row: height as isize,
                        rows: l.min(cols - j),
                        cols: l.min(height - i),
                        dst: c.offset(i as isize * row + j as isize),
                        dst_row: row,
                    });
                }
            }
            return;
        }
        for j in 0..cols {
            for i in 0..height {
                let p = c.offset(i as isize * row + j as isize * col);
                let x = *tile.add(j * height + i);
                *p = if accumulate { *p + x } else { x };
            }
        }
    }
}
