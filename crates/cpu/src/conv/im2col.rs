//! Convolution as a matrix product of patches with the kernel, without the patch matrix:
//!
//! out[o, p] = Σ_k kernel[o, k]·patch[k, p], with p over all output pixels of all images, k over channel and tap.
//!
//! Each task packs the patches of a few panels of pixels straight from the image and multiplies them with the kernel,
//! which is packed once. Pixels are the vector axis, because they are contiguous in image and output.

use super::ConvPointers;
use super::geometry::Core;
use crate::gemm::blocked::part;
use crate::gemm::kernel::{GemmTile, Patch, TAPS};
use crate::gemm::pack::{MAX_TILE_ELEMENTS, pack};
use crate::gemm::{Kernels, Real};
use crate::runtime::thread_pool::Team;
use std::mem::MaybeUninit;
use std::ops::Range;

/// A planned product of patches.
pub(crate) struct Im2col<T: 'static> {
    kernels: &'static Kernels<T>,
    /// Channels of a contraction block.
    cc: usize,
    /// Tap rows of a contraction block.
    tc: usize,
    /// Pixels of a task.
    pt: usize,
    /// Output channels of a task.
    ot: usize,
    /// Output channels of a tile.
    nr: usize,
    /// By horizontal tap: the outputs that meet the image.
    inside: Vec<Range<usize>>,
}

/// The copy of a [`Patch`] whose neighbouring pixels read elements `step` apart.
///
/// # Safety
/// See [`Patch`].
unsafe fn spread<T: Real>(p: &Patch<'_, T>, step: isize) {
    for (t, &(low, high)) in p.inside.iter().enumerate() {
        for r in 0..p.rows as isize {
            let mut src = p.src.wrapping_offset(r * p.src_row + t as isize * p.src_tap + low as isize * step);
            let dst = p.dst.wrapping_offset(r * p.dst_row).wrapping_add(t * p.dst_tap);
            // SAFETY: the caller's promise.
            unsafe {
                for j in (0..low).chain(high..p.cols) {
                    *dst.add(j) = T::default();
                }
                for j in low..high {
                    *dst.add(j) = *src;
                    src = src.wrapping_offset(step);
                }
            }
        }
    }
}

/// A run of output pixels in one row: first lane, count, image, row, first column.
struct Run {
    lane: usize,
    count: usize,
    n: usize,
    y: usize,
    x: usize,
}

/// Cuts pixels first..first+width into runs.
fn runs(core: &Core, first: usize, width: usize, mut f: impl FnMut(Run)) {
    let (rows, cols) = (core.y.out, core.x.out);
    let (mut x, rest) = (first % cols, first / cols);
    let (mut y, mut n) = (rest % rows, rest / rows);
    let mut lane = 0;
    while lane < width {
        let count = (cols - x).min(width - lane);
        f(Run { lane, count, n, y, x });
        lane += count;
        x = 0;
        y += 1;
        if y == rows {
            (y, n) = (0, n + 1);
        }
    }
}

/// Most panels of a task.
const TASK_PANELS: usize = 48;

/// Offset of an output pixel.
fn at(core: &Core, n: usize, y: usize, x: usize) -> isize {
    n as isize * core.out[0] + y as isize * core.out[2] + x as isize * core.out[3]
}

/// Offset of pixels first..first+count if they are contiguous in the output.
fn straight(core: &Core, first: usize, count: usize) -> Option<isize> {
    let (cols, image) = (core.x.out, core.y.out * core.x.out);
    let rows_join = core.out[2] == cols as isize && first / image == (first + count - 1) / image;
    let joined = core.out[3] == 1 && (rows_join || first % cols + count <= cols);
    joined.then(|| at(core, first / image, first / cols % core.y.out, first % cols))
}

impl<T: Real> Im2col<T> {
    pub(crate) fn new(kernels: &'static Kernels<T>, core: &Core) -> Im2col<T> {
        let most = 2400 / size_of::<T>();
        let taps = core.y.taps * core.x.taps;
        let (cc, tc) = if taps <= most {
            (part(core.c, (most / taps).max(1), 1), core.y.taps)
        } else {
            (1, part(core.y.taps, (most / core.x.taps).max(1), 1))
        };
        let (mr, nr) = (kernels.mr(), part(core.o, kernels.nr, 1));
        // A task is worth handing out, and its patches stay in the second-level cache.
        let panel = (mr * core.o * core.terms()).max(1);
        let panels = 100_000usize.div_ceil(panel).clamp(1, (96 / kernels.lanes).clamp(1, TASK_PANELS));
        let pt = part(core.pixels(), panels * mr, mr);
        let blocks = core.pixels().div_ceil(pt) * core.groups;
        let split = (16 / blocks).clamp(1, (pt * core.o * core.terms() / 100_000).max(1));
        let inside = (0..core.x.taps).map(|t| core.x.inside(t)).collect();
        Im2col { kernels, cc, tc, pt, ot: core.o.div_ceil(split).next_multiple_of(nr), nr, inside }
    }

    /// Rough machine cycles.
    pub(crate) fn cost(&self, core: &Core) -> f64 {
        let (pixels, terms) = (core.pixels() as f64, core.terms() as f64);
        let vectors = (pixels / self.kernels.lanes as f64).ceil();
        let o = core.o as f64;
        let compute = vectors * terms * o * if self.nr == 1 { 2.0 } else { 1.0 };
        // Patches are copied run by run: a call per tap, a row per term, and single elements otherwise.
        let runs = pixels / core.x.out as f64 + pixels / self.kernels.mr() as f64;
        let calls = terms / (self.cc * core.x.taps.min(TAPS)) as f64;
        let element = if core.image[3] * core.x.stride == 1 { 0.1 } else { 1.3 };
        let copy = runs * (40.0 * calls + 3.0 * terms) + pixels * terms * element;
        core.groups as f64 * (compute + copy + o * terms)
    }

    /// Elements of the packed kernel.
    fn kernel_room(core: &Core) -> usize {
        (core.groups * core.o * core.terms()).next_multiple_of(64)
    }

    /// Elements of one worker's patches.
    fn patch_room(&self, core: &Core) -> usize {
        (self.pt.min(core.pixels()) * self.cc * self.tc * core.x.taps).next_multiple_of(64)
    }

    /// Elements of workspace.
    pub(crate) fn workspace(&self, core: &Core, threads: usize) -> usize {
        Self::kernel_room(core) + threads * self.patch_room(core)
    }

    /// The contraction blocks in order: first term, channels, tap rows.
    fn blocks(&self, core: &Core) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> {
        let (c, taps, wide, cc, tc) = (core.c, core.y.taps, core.x.taps, self.cc, self.tc);
        (0..c).step_by(cc).flat_map(move |c0| {
            (0..taps).step_by(tc).map(move |t0| {
                let (c1, t1) = (c.min(c0 + cc), taps.min(t0 + tc));
                // Blocks are cut along channels or along tap rows, never both.
                ((c0 * taps + t0) * wide, c0..c1, t0..t1)
            })
        })
    }

    /// # Safety
    /// See [`super::ConvPlan::run`].
    pub(crate) unsafe fn run(&self, core: &Core, team: &Team, x: &ConvPointers<T>) {
        let o_tiles = core.o.div_ceil(self.nr);
        team.run(core.groups * o_tiles, &|t| {
            // SAFETY: each task packs its own panels.
            unsafe { self.pack_kernel(core, t / o_tiles, t % o_tiles * self.nr, x) }
        });
        let (p_tasks, o_tasks) = (core.pixels().div_ceil(self.pt), core.o.div_ceil(self.ot));
        let patches = Self::kernel_room(core);
        team.run_with(core.groups * p_tasks * o_tasks, &|t, worker| {
            let (t, o) = (t / o_tasks, t % o_tasks * self.ot);
            let (g, p) = (t / p_tasks, t % p_tasks * self.pt);
            let work = x.work.wrapping_add(patches + worker * self.patch_room(core));
            // SAFETY: each task writes its own outputs and its worker's patches.
            unsafe { self.task(core, g, p..core.pixels().min(p + self.pt), o..core.o.min(o + self.ot), x, work) }
        });
    }

    /// Packed kernel of a group, an output channel and a term: blocks of terms, then panels, then terms, then channels.
    fn kernel_place(core: &Core, g: usize, term: usize, terms: usize, o: usize) -> usize {
        (g * core.terms() + term) * core.o + o * terms
    }

    /// Copies the taps of a panel of output channels.
    ///
    /// # Safety
    /// As for [`run`](Self::run), with room for the copy.
    unsafe fn pack_kernel(&self, core: &Core, g: usize, o: usize, x: &ConvPointers<T>) {
        let cols = self.nr.min(core.o - o);
        let s = core.kernel;
        let from = x.kernel.wrapping_offset(core.group(g).1 + o as isize * s[0]);
        for (first, cs, ts) in self.blocks(core) {
            let terms = cs.len() * ts.len() * core.x.taps;
            let mut to = x.work.wrapping_add(Self::kernel_place(core, g, first, terms, o));
            for c in cs {
                for t in ts.clone() {
                    let src = from.wrapping_offset(c as isize * s[1] + t as isize * s[2]);
                    // SAFETY: inside the kernel and its packed copy.
                    unsafe { pack(self.kernels, src, (s[0], s[3]), cols, core.x.taps, to, cols) };
                    to = to.wrapping_add(cols * core.x.taps);
                }
            }
        }
    }

    /// Computes the pixels `ps` of the output channels `os`.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn task(
        &self,
        core: &Core,
        g: usize,
        ps: Range<usize>,
        os: Range<usize>,
        x: &ConvPointers<T>,
        work: *mut T,
    ) {
        let mr = self.kernels.mr();
        let (image, _, out) = core.group(g);
        let (image, out) = (x.image.wrapping_offset(image), x.out.wrapping_offset(out));
        for (first, cs, ts) in self.blocks(core) {
            let terms = cs.len() * ts.len() * core.x.taps;
            // SAFETY: patches are packed before they are read; tiles stay inside the output.
            unsafe {
                for p in ps.clone().step_by(mr) {
                    let dst = work.add((p - ps.start) * terms);
                    self.pack_patches(core, p, mr.min(ps.end - p), cs.clone(), ts.clone(), image, dst);
                }
                // The place of each panel, computed once for all output channels.
                let mut places = [None; TASK_PANELS];
                for (place, p) in places.iter_mut().zip(ps.clone().step_by(mr)) {
                    *place = straight(core, p, mr.min(ps.end - p));
                }
                for o in os.clone().step_by(self.nr) {
                    let b = x.work.wrapping_add(Self::kernel_place(core, g, first, terms, o));
                    for (p, place) in ps.clone().step_by(mr).zip(&places) {
                        let a = work.add((p - ps.start) * terms);
                        let size = (mr.min(ps.end - p), self.nr.min(os.end - o));
                        let to = out.wrapping_offset(o as isize * core.out[1]);
                        self.tile(core, (p, *place), size, terms, a, b, to, first > 0);
                    }
                }
            }
        }
    }

    /// dst[k·width + lane] = the image under tap k of pixel first + lane, 0 outside the image.
    ///
    /// # Safety
    /// The pixels and channels are inside the image, as for [`run`](Self::run), and `dst` has room for their patches.
    #[expect(clippy::too_many_arguments, reason = "one copy: its ranges and its two places")]
    unsafe fn pack_patches(
        &self,
        core: &Core,
        first: usize,
        width: usize,
        cs: Range<usize>,
        ts: Range<usize>,
        image: *const T,
        dst: *mut T,
    ) {
        let wide = core.x.taps;
        let s = core.image;
        let step = s[3] * core.x.stride;
        let dst_row = (ts.len() * wide * width) as isize;
        let image = image.wrapping_offset(cs.start as isize * s[1]);
        runs(core, first, width, |r| {
            for t in ts.clone() {
                let row = core.y.place(r.y, t);
                let left = core.x.start + r.x as isize * core.x.stride;
                let src = image.wrapping_offset(r.n as isize * s[0] + row.unwrap_or(0) * s[2] + left * s[3]);
                let dst = dst.wrapping_add((t - ts.start) * wide * width + r.lane);
                for tx in (0..wide).step_by(TAPS) {
                    // The part of the run inside the image, by tap.
                    let mut inside = [(0, 0); TAPS];
                    let some = TAPS.min(wide - tx);
                    if row.is_some() {
                        for (to, from) in inside.iter_mut().zip(&self.inside[tx..tx + some]) {
                            let within = |x: usize| x.clamp(r.x, r.x + r.count) - r.x;
                            *to = (within(from.start), within(from.end));
                        }
                    }
                    let src_tap = core.x.dilation * s[3];
                    let p = Patch {
                        src: src.wrapping_offset(tx as isize * src_tap),
                        rows: cs.len(),
                        src_row: s[1],
                        src_tap,
                        inside: &inside[..some],
                        cols: r.count,
                        dst: dst.wrapping_add(tx * width),
                        dst_row,
                        dst_tap: width,
                    };
                    // SAFETY: only elements of the image are read, only the panel is written.
                    unsafe { if step == 1 { (self.kernels.patch)(&p) } else { spread(&p, step) } }
                }
            }
        });
    }

    /// One tile: directly into the output if its pixels are contiguous there, otherwise run by run.
    ///
    /// # Safety
    /// The panels `a` and `b` are packed, and the tile is inside the output, as for [`run`](Self::run).
    #[expect(clippy::too_many_arguments, reason = "one product: its sizes and its three places")]
    unsafe fn tile(
        &self,
        core: &Core,
        (first, place): (usize, Option<isize>),
        (height, cols): (usize, usize),
        terms: usize,
        a: *const T,
        b: *const T,
        out: *mut T,
        accumulate: bool,
    ) {
        let (kernels, s) = (self.kernels, core.out);
        let mut room = MaybeUninit::<[T; MAX_TILE_ELEMENTS]>::uninit();
        let tmp = room.as_mut_ptr().cast::<T>();
        let (c, c_col) = match place {
            Some(place) => (out.wrapping_offset(place), s[1]),
            None => (tmp, height as isize),
        };
        let t = GemmTile {
            rows: 1,
            len: terms,
            a,
            a_step: height as isize,
            a_skip: 0,
            b,
            b_step: cols as isize,
            b_skip: 0,
            b_col: 1,
            c,
            c_col,
            last: 0,
            accumulate: accumulate && place.is_some(),
        };
        // SAFETY: the caller's promise; the temporary has room for the largest tile.
        unsafe {
            kernels.tile(height, cols, t);
            if place.is_some() {
                return;
            }
            runs(core, first, height, |r| {
                for j in 0..cols {
                    let from = tmp.add(j * height + r.lane);
                    let to = out.wrapping_offset(at(core, r.n, r.y, r.x) + j as isize * s[1]);
                    for i in 0..r.count {
                        let p = to.wrapping_offset(i as isize * s[3]);
                        *p = if accumulate { *p + *from.add(i) } else { *from.add(i) };
                    }
                }
            });
        }
    }
}
