//! Long contractions with small results: the contraction is cut into a number of chunks fixed by the shape. Each chunk
//! is summed into a separate slab, and the slabs are added in order.

use super::batch::BatchAxis;
use super::direct::TASK_MULTIPLICATIONS;
use super::plan::{GemmPlan, GemmSpec, Strides};
use crate::gemm::kernel_tables::Real;
use crate::runtime::thread_pool::Team;
use crate::simd::Isa;

/// A product over a long contraction.
pub(crate) struct Split<T: Real> {
    m: usize,
    n: usize,
    c: Strides,
    accumulate: bool,
    /// Chunks of one length, as a batch; then the rest.
    plans: Vec<GemmPlan<T>>,
    /// How far A, B and the slab of the last plan are from the first, in elements.
    tail: (isize, isize, usize),
    slabs: usize,
}

/// Least length of a chunk.
const MIN_CHUNK_TERMS: usize = 1024;

impl<T: Real> Split<T> {
    /// Cuts a product, or leaves it whole if that does not pay off.
    pub(crate) fn new(spec: &GemmSpec, isa: Isa) -> Option<Split<T>> {
        let (m, n) = (spec.m, spec.n);
        let chunks = (spec.k / MIN_CHUNK_TERMS).min(16).min(m * n * spec.k / (2 * TASK_MULTIPLICATIONS));
        // Larger results have enough tiles to share.
        if chunks < 2 || m * n > 64 * 64 || spec.batch.iter().any(|x| x.len != 1) {
            return None;
        }
        let len = spec.k / chunks / 16 * 16;
        let (whole, rest) = (spec.k / len, spec.k % len);
        let step = len as isize;
        let (a, b) = (spec.a.col * step, spec.b.row * step);
        let c = Strides { row: n as isize, col: 1 };
        let axis = BatchAxis { len: whole, a, b, c: (m * n) as isize };
        let part = |k: usize, batch: Vec<BatchAxis>| {
            GemmPlan::with(&GemmSpec { k, c, batch, accumulate: false, ..spec.clone() }, isa)
        };
        let mut plans = vec![part(len, vec![axis])?];
        if rest > 0 {
            plans.push(part(rest, vec![])?);
        }
        let tail = (a * whole as isize, b * whole as isize, m * n * whole);
        Some(Split { m, n, c: spec.c, accumulate: spec.accumulate, slabs: whole + plans.len() - 1, plans, tail })
    }

    /// Bytes of the slabs.
    fn room(&self) -> usize {
        (self.slabs * self.m * self.n * size_of::<T>()).next_multiple_of(64)
    }

    /// Bytes of workspace.
    pub(crate) fn workspace_bytes(&self, threads: usize) -> usize {
        self.room() + 64 + self.plans.iter().map(|p| p.workspace_bytes(threads)).max().unwrap_or(0)
    }

    /// # Safety
    /// See [`GemmPlan::run`].
    pub(crate) unsafe fn run(&self, team: &Team, a: *const T, b: *const T, c: *mut T, workspace: *mut u8) {
        let slabs = workspace.wrapping_add(workspace.align_offset(64));
        let (work, slabs) = (slabs.wrapping_add(self.room()), slabs.cast::<T>());
        for (i, plan) in self.plans.iter().enumerate() {
            let (da, db, dc) = if i == 0 { (0, 0, 0) } else { self.tail };
            // SAFETY: the caller's promise; the slabs lie in the workspace.
            unsafe { plan.run(team, a.wrapping_offset(da), b.wrapping_offset(db), slabs.wrapping_add(dc), work) };
        }
        for i in 0..self.m {
            for j in 0..self.n {
                let at = i * self.n + j;
                // SAFETY: inside C and the slabs.
                unsafe {
                    let p = c.wrapping_offset(i as isize * self.c.row + j as isize * self.c.col);
                    let first = *slabs.add(at);
                    let sum = (1..self.slabs).fold(first, |s, q| s + *slabs.add(q * self.m * self.n + at));
                    *p = if self.accumulate { *p + sum } else { sum };
                }
            }
        }
    }
}
