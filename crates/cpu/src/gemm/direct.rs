//! Small and thin products: the kernels read B in place, and also A if its columns are contiguous.

use super::blocked::{pack_some, part, put};
use super::plan::{Matrices, Problem};
use crate::gemm::kernel_tables::{Kernels, Real};

/// How a small or thin product is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direct {
    /// Contraction block.
    kc: usize,
    /// Columns of a tile.
    nr: usize,
    /// A is copied into panels first.
    pack: bool,
    /// Rows of a task.
    mt: usize,
    /// Columns of a task.
    nt: usize,
}

/// Least work, in multiplications, worth handing to another thread.
pub(crate) const TASK_MULTIPLICATIONS: usize = 100_000;

/// Bytes of A beyond which it is not in a private cache when read.
const MAX_CACHED_BYTES: usize = 1 << 21;

/// Panels of A copied at a time.
const PANELS_PER_COPY: usize = 2;

impl Direct {
    /// Chooses the cuts for a product.
    pub(crate) fn new<T: Real>(kernels: &Kernels<T>, p: &Problem) -> Direct {
        let mr = kernels.mr();
        let nr = part(p.n, kernels.nr, 1);
        let tasks = (p.m * p.n * p.k / TASK_MULTIPLICATIONS).clamp(1, 32);
        let tall = tasks.min(p.m.div_ceil(mr));
        // Long steps between columns fall on few cache sets; a copy pays off if it is read a few times, or if its
        // source is in memory, because the copy prefetches its rows.
        let far = p.k >= 32 && p.a.1.unsigned_abs() > 2 * mr;
        let pack = p.m > 1 && (p.a.0 != 1 || (far && (p.n > 3 * nr || p.m * p.k * size_of::<T>() > MAX_CACHED_BYTES)));
        // Tasks side by side each copy A for themselves.
        let most = p.n.div_ceil(if pack { 4 * nr } else { nr });
        let wide = (tasks / tall).clamp(1, most);
        let (mt, nt) = (p.m.div_ceil(tall).next_multiple_of(mr), p.n.div_ceil(wide).next_multiple_of(nr));
        Direct { kc: part(p.k, 1024, 1), nr, pack, mt, nt }
    }

    /// The same product as one task.
    pub(crate) fn whole(self, p: &Problem) -> Direct {
        Direct { mt: p.m, nt: p.n, ..self }
    }

    /// Elements of workspace one worker needs.
    pub(crate) fn workspace<T: Real>(&self, kernels: &Kernels<T>) -> usize {
        if self.pack { self.kc * kernels.mr() * PANELS_PER_COPY } else { 0 }
    }

    /// Number of independent tasks.
    pub(crate) fn tasks(&self, p: &Problem) -> usize {
        p.m.div_ceil(self.mt) * p.n.div_ceil(self.nt)
    }

    /// First row and column of a task, and their ends.
    pub(crate) fn range(&self, p: &Problem, task: usize) -> ((usize, usize), (usize, usize)) {
        let tall = p.m.div_ceil(self.mt);
        let (i, j) = (task % tall * self.mt, task / tall * self.nt);
        ((i, j), (p.m.min(i + self.mt), p.n.min(j + self.nt)))
    }

    /// Computes one task.
    ///
    /// # Safety
    /// The matrices must be good for the problem, `work` for [`Direct::workspace`] elements.
    pub(crate) unsafe fn task<T: Real>(
        &self,
        kernels: &Kernels<T>,
        p: &Problem,
        task: usize,
        x: &Matrices<T>,
        work: *mut T,
    ) {
        // Whole products come here in thousands: no division, and `while` because `step_by` divides too.
        let ((i0, j0), (i_end, j1)) =
            if task == 0 { ((0, 0), (p.m.min(self.mt), p.n.min(self.nt))) } else { self.range(p, task) };
        let mr = kernels.mr();
        let mut i0 = i0;
        while i0 < i_end {
            let i1 = i_end.min(i0 + PANELS_PER_COPY * mr);
            let mut k = 0;
            while k < p.k {
                let len = self.kc.min(p.k - k);
                // SAFETY: everything stays inside the three matrices and the worker's panels.
                unsafe {
                    if self.pack {
                        pack_some(kernels, x.a_at(p, i0, k), p.a, (mr, i1 - i0, len), work);
                    }
                    // All panels meet a tile's columns before the next are fetched.
                    let mut j = j0;
                    while j < j1 {
                        let b = (x.b_at(p, k, j), p.b.0, 0, p.b.1);
                        let cols = self.nr.min(j1 - j);
                        let mut i = i0;
                        while i < i1 {
                            let rows = mr.min(i1 - i);
                            let a = if self.pack {
                                (work.add((i - i0) * len).cast_const(), rows as isize, 0)
                            } else {
                                (x.a_at(p, i, k), p.a.1, 0)
                            };
                            put(kernels, (rows, cols), (1, len), a, b, x.c_at(p, i, j), p.c, p.accumulate || k > 0);
                            i += mr;
                        }
                        j += self.nr;
                    }
                }
                k += self.kc;
            }
            i0 += PANELS_PER_COPY * mr;
        }
    }
}
