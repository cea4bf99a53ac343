//! The plan of a matrix product, computed once from its shape: vector axis, method, blocks and workspace.

use super::batch::{BatchAxis, Walk, merge};
use super::blocked::Blocked;
use super::choose::choose;
use super::direct::{Direct, TASK_MULTIPLICATIONS};
use super::inner::Inner;
use super::split::Split;
use crate::gemm::kernel_tables::{Kernels, Real};
use crate::gemm::output_tile::{Piece, Pieces, Then, has_stretches};
use crate::runtime::thread_pool::Team;
use crate::simd::Isa;

/// A product of fewer multiplications than this, about twenty microseconds of work, wakes no workers.
const BRIEF_MULTIPLICATIONS: usize = 1 << 20;

fn launch(team: &Team, brief: bool, tasks: usize, task: &(dyn Fn(usize, usize) + Sync)) {
    if brief { team.run_briefly(tasks, task) } else { team.run_with(tasks, task) }
}

/// Element strides of a matrix; any sign, 0 for a repeated axis of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// Distance between rows.
    pub row: isize,
    /// Distance between columns.
    pub col: isize,
}

/// A batched matrix product, C = A·B or C += A·B, with A m×k, B k×n and C m×n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GemmSpec {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B: the axis summed over.
    pub k: usize,
    /// Strides of A.
    pub a: Strides,
    /// Strides of B.
    pub b: Strides,
    /// Strides of C; no two elements of C may share a place.
    pub c: Strides,
    /// Batch axes, outermost first.
    pub batch: Vec<BatchAxis>,
    /// Add to C instead of replacing it.
    pub accumulate: bool,
}

/// One product as the methods see it: the vector axis is m. Strides are (row, column).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: (isize, isize),
    pub b: (isize, isize),
    pub c: (isize, isize),
    pub accumulate: bool,
}

impl Problem {
    /// The same product written Cᵀ = Bᵀ·Aᵀ.
    pub(crate) fn swapped(self) -> Problem {
        let t = |(r, c): (isize, isize)| (c, r);
        Problem { m: self.n, n: self.m, a: t(self.b), b: t(self.a), c: t(self.c), ..self }
    }
}

/// First elements of the three matrices, shared by the workers of one call.
#[derive(Clone, Copy)]
pub(crate) struct Matrices<T> {
    pub a: *const T,
    pub b: *const T,
    pub c: *mut T,
}

// SAFETY: only an address; who follows it promises that tasks write to separate places.
unsafe impl<T> Sync for Matrices<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Matrices<T> {}

impl<T> Matrices<T> {
    pub fn a_at(&self, p: &Problem, i: usize, k: usize) -> *const T {
        self.a.wrapping_offset(i as isize * p.a.0 + k as isize * p.a.1)
    }
    pub fn b_at(&self, p: &Problem, k: usize, j: usize) -> *const T {
        self.b.wrapping_offset(k as isize * p.b.0 + j as isize * p.b.1)
    }
    pub fn c_at(&self, p: &Problem, i: usize, j: usize) -> *mut T {
        self.c.wrapping_offset(i as isize * p.c.0 + j as isize * p.c.1)
    }
    /// C, or its replacement.
    pub fn c(&self) -> *mut T {
        self.c
    }
    fn moved(&self, w: &Walk<'_>) -> Matrices<T> {
        Matrices { a: self.a.wrapping_offset(w.a), b: self.b.wrapping_offset(w.b), c: self.c.wrapping_offset(w.c) }
    }
}

/// How one product is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GemmMethod {
    /// C has no element.
    Nothing,
    /// The sum is empty.
    Zero,
    Direct(Direct),
    Inner(Inner),
    Blocked(Blocked),
    /// A few multiplications, one by one.
    Tiny,
}

/// A planned matrix product.
pub struct GemmPlan<T: Real> {
    kernels: &'static Kernels<T>,
    problem: Problem,
    swap: bool,
    method: GemmMethod,
    axes: Vec<BatchAxis>,
    batches: usize,
    /// Products of one task, if tasks are whole products; 0 if the team works inside one product.
    group: usize,
    /// Takes the place of all the rest.
    split: Option<Box<Split<T>>>,
}

impl<T: Real> GemmPlan<T> {
    /// Plans a product for this machine.
    pub fn new(spec: &GemmSpec) -> GemmPlan<T> {
        Self::with(spec, Isa::detect()).expect("the detected kernels are available")
    }

    /// Plans a product for one kind of kernels; `None` if this machine lacks them.
    pub fn with(spec: &GemmSpec, isa: Isa) -> Option<GemmPlan<T>> {
        let kernels = T::kernels(isa)?;
        let mut axes = merge(&spec.batch);
        let mut p = Problem {
            m: spec.m,
            n: spec.n,
            k: spec.k,
            a: (spec.a.row, spec.a.col),
            b: (spec.b.row, spec.b.col),
            c: (spec.c.row, spec.c.col),
            accumulate: spec.accumulate,
        };
        // A batch axis that only repeats B (or A) is more rows (or columns).
        while let Some(&x) = axes.last() {
            let (m, n) = (p.m as isize, p.n as isize);
            if x.b == 0 && x.a == m * p.a.0 && x.c == m * p.c.0 {
                p.m *= x.len;
            } else if x.a == 0 && x.b == n * p.b.1 && x.c == n * p.c.1 {
                p.n *= x.len;
            } else {
                break;
            }
            axes.pop();
        }
        let batches: usize = axes.iter().map(|x| x.len).product();
        let (swap, method) = if p.m * p.n * batches == 0 {
            (false, GemmMethod::Nothing)
        } else if p.k == 0 {
            (false, GemmMethod::Zero)
        } else if p.m * p.n * p.k <= 32 {
            (false, GemmMethod::Tiny)
        } else {
            let straight = choose(kernels, &p);
            let turned = choose(kernels, &p.swapped());
            let swap = turned.0 < straight.0;
            (swap, if swap { turned.1 } else { straight.1 })
        };
        if swap {
            p = p.swapped();
            axes.iter_mut().for_each(|x| (x.a, x.b) = (x.b, x.a));
        }
        let work = (p.m * p.n * p.k).max(1);
        let alone = match method {
            GemmMethod::Nothing => false,
            GemmMethod::Zero | GemmMethod::Tiny => true,
            GemmMethod::Direct(d) => batches >= 16 || (d.tasks(&p) == 1 && batches > 1),
            GemmMethod::Inner(d) => batches >= 16 || (d.tasks(&p) == 1 && batches > 1),
            GemmMethod::Blocked(_) => batches >= 16 && work < 1 << 26,
        };
        let method = match method {
            GemmMethod::Direct(d) if alone => GemmMethod::Direct(d.whole(&p)),
            _ => method,
        };
        // Sixty-four tasks at most; at least a task's worth of work in each.
        let group = if alone { (TASK_MULTIPLICATIONS / work).max(batches / 64).max(1) } else { 0 };
        let split = Split::new(spec, isa).map(Box::new);
        Some(GemmPlan { kernels, problem: p, swap, method, axes, batches, group, split })
    }

    /// Bytes of workspace [`GemmPlan::run`] needs with a team of `threads`.
    pub fn workspace_bytes(&self, threads: usize) -> usize {
        if let Some(split) = &self.split {
            return split.workspace_bytes(threads);
        }
        let copies = if self.group > 0 { threads.max(1) } else { 1 };
        let elements = match self.method {
            GemmMethod::Direct(_) => self.room() * threads.max(1),
            _ => self.room() * copies,
        };
        if elements == 0 { 0 } else { elements * size_of::<T>() + 64 }
    }

    /// Elements of workspace of one product or worker, rounded to whole cache lines.
    fn room(&self) -> usize {
        let p = &self.problem;
        let elements = match self.method {
            GemmMethod::Nothing | GemmMethod::Zero | GemmMethod::Tiny => 0,
            GemmMethod::Direct(d) => d.workspace(self.kernels),
            GemmMethod::Inner(d) => d.workspace(p),
            GemmMethod::Blocked(d) => d.workspace(p),
        };
        elements.next_multiple_of(64)
    }

    /// Computes the product. Never allocates; the result does not depend on the team.
    ///
    /// # Safety
    /// `a`, `b`, `c` must be good for every element the plan's shapes and strides name, `c` must not overlap the inputs,
    /// and `workspace` must be good for `workspace_bytes(team.threads())` bytes, of any alignment.
    pub unsafe fn run(&self, team: &Team, a: *const T, b: *const T, c: *mut T, workspace: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.run_then(team, a, b, c, workspace, None) }
    }

    /// The pieces that [`run_then`](Self::run_then) gives; `None` if it gives none.
    pub fn pieces(&self) -> Option<Pieces> {
        let p = &self.problem;
        if self.split.is_some() || !has_stretches(p) || self.axes.iter().any(|axis| axis.c < 0) {
            return None;
        }
        let (tasks, first) = match self.method {
            GemmMethod::Nothing => return None,
            _ if self.group > 0 => (1, (p.m, p.n)),
            GemmMethod::Zero | GemmMethod::Tiny => return None,
            GemmMethod::Direct(d) => (d.tasks(p), d.range(p, 0).1),
            GemmMethod::Inner(d) => (d.tasks(p), (d.range(p, 0).1, p.n)),
            GemmMethod::Blocked(d) => (d.tasks(p), d.task(p)),
        };
        let stretch = Piece::new(p, 0, 0, (0, 0), first).length;
        Some(Pieces { count: self.batches * tasks, whole: self.group > 0, stretch })
    }

    /// As [`run`](Self::run), and does something with every piece of C as soon as it is complete. To be asked only of a
    /// product that has [`pieces`](Self::pieces).
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub unsafe fn run_then(
        &self,
        team: &Team,
        a: *const T,
        b: *const T,
        c: *mut T,
        workspace: *mut u8,
        then: Option<Then>,
    ) {
        if let Some(split) = &self.split {
            // SAFETY: the caller's promise.
            return unsafe { split.run(team, a, b, c, workspace) };
        }
        let (a, b) = if self.swap { (b, a) } else { (a, b) };
        let x = Matrices { a, b, c };
        let (p, kernels) = (&self.problem, self.kernels);
        let room = self.room();
        let skip = if room == 0 { 0 } else { workspace.align_offset(64) };
        let work = Matrices { c: workspace.wrapping_add(skip).cast::<T>(), ..x };
        if self.group > 0 {
            team.run_with(self.batches.div_ceil(self.group), &|task, worker| {
                let first = task * self.group;
                let mut walk = Walk::at(&self.axes, first);
                for number in first..self.batches.min(first + self.group) {
                    // SAFETY: the caller's promise; products write to separate places, workers have separate rooms.
                    unsafe { self.product(&x.moved(&walk), work.c().wrapping_add(worker * room)) };
                    if let Some(then) = then {
                        then(&Piece::new(p, number, walk.c, (0, 0), (p.m, p.n)), worker);
                    }
                    walk.step();
                }
            });
            return;
        }
        let brief = p.m * p.n * p.k < BRIEF_MULTIPLICATIONS;
        let mut walk = Walk::at(&self.axes, 0);
        for batch in 0..self.batches {
            let x = x.moved(&walk);
            let base = walk.c;
            let complete = |tasks: usize, task: usize, start: (usize, usize), end: (usize, usize), worker: usize| {
                if let Some(then) = then {
                    then(&Piece::new(p, batch * tasks + task, base, start, end), worker);
                }
            };
            // SAFETY: the caller's promise; tasks write to separate places, workers have separate rooms.
            unsafe {
                match self.method {
                    GemmMethod::Nothing | GemmMethod::Zero | GemmMethod::Tiny => {}
                    GemmMethod::Direct(d) => launch(team, brief, d.tasks(p), &|task, worker| {
                        d.task(kernels, p, task, &x, work.c().wrapping_add(worker * room));
                        let (start, end) = d.range(p, task);
                        complete(d.tasks(p), task, start, end, worker);
                    }),
                    GemmMethod::Inner(d) => {
                        d.prepare(kernels, p, &x, work.c());
                        launch(team, brief, d.tasks(p), &|task, worker| {
                            d.task(kernels, p, task, &x, work.c());
                            let (first, end) = d.range(p, task);
                            complete(d.tasks(p), task, (first, 0), (end, p.n), worker);
                        });
                    }
                    GemmMethod::Blocked(d) => {
                        let (team, tasks) = (Some(team).filter(|_| !brief), d.tasks(p));
                        d.run(kernels, p, team, x, work.c(), &|task, start, end, worker| {
                            complete(tasks, task, start, end, worker);
                        });
                    }
                }
            }
            walk.step();
        }
    }

    /// One whole product on the calling thread.
    ///
    /// # Safety
    /// The matrices are as the problem says, and `work` has the size of the plan.
    unsafe fn product(&self, x: &Matrices<T>, work: *mut T) {
        let (p, kernels) = (&self.problem, self.kernels);
        // SAFETY: the caller's promise.
        unsafe {
            match self.method {
                GemmMethod::Nothing => {}
                GemmMethod::Zero => {
                    if !p.accumulate {
                        for i in 0..p.m {
                            for j in 0..p.n {
                                *x.c_at(p, i, j) = T::default();
                            }
                        }
                    }
                }
                GemmMethod::Tiny => {
                    for i in 0..p.m {
                        for j in 0..p.n {
                            let c = x.c_at(p, i, j);
                            let mut sum = if p.accumulate { *c } else { T::default() };
                            for k in 0..p.k {
                                sum = sum + *x.a_at(p, i, k) * *x.b_at(p, k, j);
                            }
                            *c = sum;
                        }
                    }
                }
                // Planned as one task.
                GemmMethod::Direct(d) => d.task(kernels, p, 0, x, work),
                GemmMethod::Inner(d) => {
                    d.prepare(kernels, p, x, work);
                    (0..d.tasks(p)).for_each(|t| d.task(kernels, p, t, x, work));
                }
                GemmMethod::Blocked(d) => d.run(kernels, p, None, *x, work, &|_, _, _, _| {}),
            }
        }
    }
}
