//! Products whose operands are contiguous along the contraction: vectors run along k, and sums end in a lane sum.

use super::blocked::part;
use super::direct::TASK_MULTIPLICATIONS;
use super::kernel::Dots;
use super::pack::pack;
use super::plan::{Matrices, Problem};
use crate::gemm::kernel_tables::{Kernels, Real};

/// How a product of rows with columns is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner {
    /// Contraction block.
    kc: usize,
    /// Rows of a tile.
    dr: usize,
    /// Columns of a tile.
    dc: usize,
    /// B is copied into contiguous columns first.
    pack: bool,
    /// Rows of a task.
    mt: usize,
}

impl Inner {
    /// Chooses the cuts for a product.
    pub(crate) fn new<T: Real>(kernels: &Kernels<T>, p: &Problem) -> Inner {
        let dr = kernels.dr;
        let tasks = (p.m * p.n * p.k / TASK_MULTIPLICATIONS).clamp(1, 32);
        Inner {
            kc: part(p.k, 4096, kernels.lanes),
            dr,
            dc: part(p.n, kernels.dc, 1),
            pack: p.b.0 != 1,
            mt: p.m.div_ceil(tasks).next_multiple_of(dr),
        }
    }

    /// Elements of workspace the product needs, shared by all workers.
    pub(crate) fn workspace(&self, p: &Problem) -> usize {
        if self.pack { p.k * p.n } else { 0 }
    }

    /// Number of independent tasks.
    pub(crate) fn tasks(&self, p: &Problem) -> usize {
        p.m.div_ceil(self.mt)
    }

    /// First row of a task, and the end of its rows.
    pub(crate) fn range(&self, p: &Problem, task: usize) -> (usize, usize) {
        (task * self.mt, p.m.min((task + 1) * self.mt))
    }

    /// Copies B into contiguous columns if needed. To be called once, before the tasks.
    ///
    /// # Safety
    /// The matrices must be good for the problem, `work` for [`Inner::workspace`] elements.
    pub(crate) unsafe fn prepare<T: Real>(&self, kernels: &Kernels<T>, p: &Problem, x: &Matrices<T>, work: *mut T) {
        if self.pack {
            // A panel as wide as the contraction: work[j·k + i] = b[i, j].
            // SAFETY: the caller's promise.
            unsafe { pack(kernels, x.b_at(p, 0, 0), p.b, p.k, p.n, work, p.k) }
        }
    }

    /// Computes one task.
    ///
    /// # Safety
    /// The matrices must be good for the problem; `work` as [`Inner::prepare`] left it.
    pub(crate) unsafe fn task<T: Real>(
        &self,
        kernels: &Kernels<T>,
        p: &Problem,
        task: usize,
        x: &Matrices<T>,
        work: *const T,
    ) {
        let (i0, i1) = self.range(p, task);
        for k in (0..p.k).step_by(self.kc) {
            for i in (i0..i1).step_by(self.dr) {
                for j in (0..p.n).step_by(self.dc) {
                    // SAFETY: everything stays inside the three matrices.
                    unsafe {
                        let (b, b_col) =
                            if self.pack { (work.add(j * p.k + k), p.k as isize) } else { (x.b_at(p, k, j), p.b.1) };
                        let t = Dots {
                            len: self.kc.min(p.k - k),
                            a: x.a_at(p, i, k),
                            a_row: p.a.0,
                            b,
                            b_col,
                            c: x.c_at(p, i, j),
                            c_row: p.c.0,
                            c_col: p.c.1,
                            accumulate: p.accumulate || k > 0,
                        };
                        kernels.dots(self.dr.min(i1 - i), self.dc.min(p.n - j), &t);
                    }
                }
            }
        }
    }
}
