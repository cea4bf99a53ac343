//! Large products: both operands are packed block by block into panels that fit the caches.
//!
//! For each block of columns and each block of the contraction, B's panels are packed once; for each block of rows, A's
//! panels are packed and the tiles of C computed. Block sizes depend on shapes only, so every element of C is summed in
//! one order for any team.

use super::direct::TASK_MULTIPLICATIONS;
use super::kernel::GemmTile;
use super::pack::{MAX_TILE_ELEMENTS, pack, unpack};
use super::plan::{Matrices, Problem};
use crate::gemm::kernel_tables::{Kernels, Real};
use crate::runtime::thread_pool::Team;
use std::mem::MaybeUninit;

/// Block sizes of a large product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    /// Contraction block: a panel of B of this length stays in the first-level cache.
    kc: usize,
    /// Rows packed at a time.
    mo: usize,
    /// Columns packed at a time.
    no: usize,
    /// Rows of a task: a block of A of this height stays in the second-level cache.
    mt: usize,
    /// Columns of a task.
    nt: usize,
    /// Columns of a tile.
    nr: usize,
}

/// `len` cut into equal parts of at most `most`, each a multiple of `unit` but for the last.
pub(crate) fn part(len: usize, most: usize, unit: usize) -> usize {
    let parts = len.div_ceil(most).max(1);
    len.div_ceil(parts).next_multiple_of(unit)
}

/// Panels packed together.
const PANELS_PER_PACK: usize = 8;

/// Packs up to [`PANELS_PER_PACK`] panels of width at most `most` with `all` elements across.
///
/// # Safety
/// See [`pack`].
pub(crate) unsafe fn pack_some<T: Real>(
    kernels: &Kernels<T>,
    src: *const T,
    steps: (isize, isize),
    (most, all, len): (usize, usize, usize),
    dst: *mut T,
) {
    // If the panels are neighbours in memory, they advance together, so that every page is visited once.
    let block = if steps.0 == 1 && all > most { 16 } else { len };
    for k in (0..len).step_by(block) {
        for i in (0..all.min(PANELS_PER_PACK * most)).step_by(most) {
            let width = most.min(all - i);
            // SAFETY: inside the panels, by the caller's promise.
            unsafe {
                let src = src.offset(i as isize * steps.0 + k as isize * steps.1);
                pack(kernels, src, steps, width, block.min(len - k), dst.add(i * len + k * width), width);
            }
        }
    }
}

impl Blocked {
    /// Chooses the blocks for a product.
    pub(crate) fn new<T: Real>(kernels: &Kernels<T>, p: &Problem) -> Blocked {
        let bytes = size_of::<T>();
        let mr = kernels.mr();
        let nr = part(p.n, kernels.nr, 1);
        let kc = part(p.k, 1600 / bytes, 1);
        let mt = part(p.m, 768 / bytes, mr);
        // Enough tasks for a team, but each worth handing out.
        let (tall, wide) = (p.m.div_ceil(mt), p.n.div_ceil(240));
        let tasks = (p.m * p.n * kc / (3 * TASK_MULTIPLICATIONS)).min(16);
        let nt = part(p.n, p.n.div_ceil(wide.max(tasks / tall)), nr);
        Blocked { kc, nr, mo: part(p.m, 3072, mr), no: part(p.n, 3072, nr), mt, nt }
    }

    /// Elements of workspace one product needs.
    pub(crate) fn workspace(&self, p: &Problem) -> usize {
        self.kc * (self.a_room(p) + self.no.min(p.n.next_multiple_of(self.nr)))
    }

    /// Rows and columns of a task.
    pub(crate) fn task(&self, p: &Problem) -> (usize, usize) {
        (self.mt.min(p.m), self.nt.min(p.n))
    }

    /// Number of tasks that complete a part of C each.
    pub(crate) fn tasks(&self, p: &Problem) -> usize {
        let cuts = |all: usize, outer: usize, inner: usize| {
            (0..all).step_by(outer).map(|at| outer.min(all - at).div_ceil(inner)).sum::<usize>()
        };
        cuts(p.m, self.mo, self.mt) * cuts(p.n, self.no, self.nt)
    }

    fn a_room(&self, p: &Problem) -> usize {
        // Sixteen-element steps keep the panels of B aligned.
        self.mo.min(p.m).next_multiple_of(16)
    }

    /// Computes one product, with the team or alone, and calls `then` for every complete part of C: number, first row
    /// and column, their ends, and the worker.
    ///
    /// # Safety
    /// The matrices must be good for the problem, `work` for [`Blocked::workspace`] elements.
    pub(crate) unsafe fn run<T: Real>(
        &self,
        kernels: &Kernels<T>,
        p: &Problem,
        team: Option<&Team>,
        x: Matrices<T>,
        work: *mut T,
        then: &(dyn Fn(usize, (usize, usize), (usize, usize), usize) + Sync),
    ) {
        let each = |tasks: usize, f: &(dyn Fn(usize, usize) + Sync)| match team {
            Some(team) => team.run_with(tasks, f),
            None => (0..tasks).for_each(|task| f(task, 0)),
        };
        let mr = kernels.mr();
        let ap = Matrices { c: work, ..x };
        // SAFETY: inside `work`.
        let bp = Matrices { c: unsafe { work.add(self.kc * self.a_room(p)) }, ..x };
        let mut complete = 0;
        for j0 in (0..p.n).step_by(self.no) {
            let n = self.no.min(p.n - j0);
            for k0 in (0..p.k).step_by(self.kc) {
                let len = self.kc.min(p.k - k0);
                let last = k0 + len == p.k;
                for i0 in (0..p.m).step_by(self.mo) {
                    let m = self.mo.min(p.m - i0);
                    let a_panels = m.div_ceil(mr);
                    let b_panels = if i0 == 0 { n.div_ceil(self.nr) } else { 0 };
                    // Several panels a task: enough work to be worth handing out.
                    let (a_tasks, b_tasks) = (a_panels.div_ceil(PANELS_PER_PACK), b_panels.div_ceil(PANELS_PER_PACK));
                    each(a_tasks + b_tasks, &|t, _| {
                        // SAFETY: every panel is written by one task, inside the workspace.
                        unsafe {
                            if t < a_tasks {
                                let i = t * PANELS_PER_PACK * mr;
                                let src = x.a_at(p, i0 + i, k0);
                                pack_some(kernels, src, p.a, (mr, m - i, len), ap.c().add(i * len));
                            } else {
                                let j = (t - a_tasks) * PANELS_PER_PACK * self.nr;
                                let src = x.b_at(p, k0, j0 + j);
                                pack_some(kernels, src, (p.b.1, p.b.0), (self.nr, n - j, len), bp.c().add(j * len));
                            }
                        }
                    });
                    let tall = m.div_ceil(self.mt);
                    let tasks = tall * n.div_ceil(self.nt);
                    each(tasks, &|t, worker| {
                        let (i, j) = (t % tall * self.mt, t / tall * self.nt);
                        let (rows, cols) = (self.mt.min(m - i), self.nt.min(n - j));
                        // SAFETY: the tasks' parts of C do not overlap; the panels are packed.
                        unsafe {
                            self.tiles(
                                kernels,
                                p,
                                (rows, cols, len),
                                ap.c().add(i * len),
                                bp.c().add(j * len),
                                x.c_at(p, i0 + i, j0 + j),
                                p.accumulate || k0 > 0,
                            );
                        }
                        if last {
                            let start = (i0 + i, j0 + j);
                            then(complete + t, start, (start.0 + rows, start.1 + cols), worker);
                        }
                    });
                    complete += if last { tasks } else { 0 };
                }
            }
        }
    }

    /// The tiles of one task.
    ///
    /// # Safety
    /// The panels at `a` and `b` are packed for m rows, n columns and `len` terms, and the m × n elements at `c` are this task's.
    #[expect(clippy::too_many_arguments, reason = "one product: its sizes and its three places")]
    unsafe fn tiles<T: Real>(
        &self,
        kernels: &Kernels<T>,
        p: &Problem,
        (m, n, len): (usize, usize, usize),
        a: *const T,
        b: *const T,
        c: *mut T,
        accumulate: bool,
    ) {
        let mr = kernels.mr();
        for j in (0..n).step_by(self.nr) {
            let cols = self.nr.min(n - j);
            for i in (0..m).step_by(mr) {
                let rows = mr.min(m - i);
                // SAFETY: the tile lies inside the task's panels and its part of C.
                unsafe {
                    let to = c.offset(i as isize * p.c.0 + j as isize * p.c.1);
                    let (a, b) = (a.add(i * len), b.add(j * len));
                    put(
                        kernels,
                        (rows, cols),
                        (1, len),
                        (a, rows as isize, 0),
                        (b, cols as isize, 0, 1),
                        to,
                        p.c,
                        accumulate,
                    );
                }
            }
        }
    }
}

/// One tile of C via registers, for any strides of C.
///
/// # Safety
/// See [`GemmTile`]; `a` is (place, step, skip), `b` is (place, step, skip, column).
#[inline]
#[expect(clippy::too_many_arguments, reason = "one product: its sizes and its three places")]
pub(crate) unsafe fn put<T: Real>(
    kernels: &Kernels<T>,
    (height, cols): (usize, usize),
    (rows, len): (usize, usize),
    (a, a_step, a_skip): (*const T, isize, isize),
    (b, b_step, b_skip, b_col): (*const T, isize, isize, isize),
    c: *mut T,
    (c_row, c_col): (isize, isize),
    accumulate: bool,
) {
    let t = GemmTile { rows, len, a, a_step, a_skip, b, b_step, b_skip, b_col, c, c_col, last: 0, accumulate };
    // SAFETY: passed on; the temporary has room for the largest tile.
    unsafe {
        if c_row == 1 || height == 1 {
            kernels.tile(height, cols, t);
        } else {
            let mut room = MaybeUninit::<[T; MAX_TILE_ELEMENTS]>::uninit();
            let tmp = room.as_mut_ptr().cast::<T>();
            kernels.tile(height, cols, GemmTile { c: tmp, c_col: height as isize, accumulate: false, ..t });
            unpack(kernels, tmp, (height, cols), c, (c_row, c_col), accumulate);
        }
    }
}
