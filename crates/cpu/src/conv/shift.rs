//! Convolution with many taps and few outputs, such as a gradient by the kernel:
//!
//! out[i, o, y, x] = Σ_{t, s, c} image[i, c, y + t, x + s]·kernel[o, c, t, s], one matrix product of images with output
//! channels for every (y, x).
//!
//! The image is copied once with images innermost, rows of `[place, channel, image]`. The patches of an output are then
//! the same panel read from another first place, so no element is copied per tap. The contraction is cut into a number
//! of chunks fixed by the shape; each chunk sums into a separate slab, and the slabs are added in order.

use super::ConvPointers;
use super::geometry::Core;
use crate::gemm::blocked::part;
use crate::gemm::kernel::{BlockCopy, GemmTile};
use crate::gemm::pack::{MAX_TILE_ELEMENTS, pack};
use crate::gemm::{Kernels, Real};
use crate::runtime::thread_pool::Team;
use std::mem::MaybeUninit;
use std::ops::Range;

/// A planned sum of shifted products.
pub(crate) struct Shift<T: 'static> {
    kernels: &'static Kernels<T>,
    /// Images are the vector axis (else output channels are).
    image_vectors: bool,
    /// Images of a panel.
    iw: usize,
    /// Output channels of a panel.
    ow: usize,
    /// Images of a task.
    nt: usize,
    /// Channels of a contraction block.
    cc: usize,
    /// Tap rows of a contraction block.
    tc: usize,
    /// Chunks of the contraction, each with a slab.
    chunks: usize,
    /// Places of a copied row that share a residue by the horizontal dilation; and which residues are met.
    places: usize,
    used: Vec<bool>,
}

/// Packed bytes a contraction block may take: about half the second-level cache.
const MAX_BLOCK_BYTES: usize = 400 << 10;

/// Enough zeros for a panel row of any kind.
static ZEROS: [f64; 64] = [0.0; 64];

/// Cycles of one term: `vectors` × `lanes` elements by `cols`.
fn term_cost<T>(kernels: &Kernels<T>, vector: usize, cols: usize) -> f64 {
    let vectors = vector.div_ceil(kernels.lanes) as f64;
    let (high, wide) = (vectors.min(2.0), cols.min(kernels.nr) as f64);
    vectors / high * cols as f64 / wide * (high * wide).max(high + wide).max(4.0)
}

impl<T: Real> Shift<T> {
    pub(crate) fn new(kernels: &'static Kernels<T>, core: &Core) -> Shift<T> {
        let (n, o) = (core.n, core.o);
        let image_vectors = term_cost(kernels, n, o) < term_cost(kernels, o, n);
        let (mr, nr) = (kernels.mr(), kernels.nr);
        let (iw, ow) = if image_vectors { (mr.min(n), part(o, nr, 1)) } else { (part(n, nr, 1), mr.min(o)) };
        let (dx, reach) = (core.x.dilation as usize, (core.x.out - 1) * core.x.stride as usize);
        let places = (reach + (core.x.taps - 1) * dx) / dx + 1;
        let used: Vec<bool> = (0..dx).map(|r| (0..core.x.out).any(|x| x * core.x.stride as usize % dx == r)).collect();
        let mut s =
            Shift { kernels, image_vectors, iw, ow, nt: part(n, 128, iw), cc: 1, tc: 1, chunks: 1, places, used };
        let most = MAX_BLOCK_BYTES / size_of::<T>();
        let size = |tc: usize| s.nt.min(n) * s.rows(core, tc) * dx * places + o * tc * core.x.taps;
        if size(core.y.taps) <= most {
            (s.cc, s.tc) = (part(core.c, most / size(core.y.taps), 1), core.y.taps);
        } else {
            let tc = (1..core.y.taps).rev().find(|&tc| size(tc) <= most).unwrap_or(1);
            s.tc = part(core.y.taps, tc, 1);
        }
        let tasks = core.groups * n.div_ceil(s.nt);
        let work = n * o * core.y.out * core.x.out * core.terms();
        // As many chunks as give sixteen tasks, each worth handing out, with slabs of moderate size.
        let most = (16 / tasks).min(work / 200_000).min((8 << 20) / (core.groups * Self::slab(core)).max(1));
        s.chunks = most.clamp(1, s.units(core));
        s
    }

    /// Image rows that `tc` tap rows meet.
    fn rows(&self, core: &Core, tc: usize) -> usize {
        (tc - 1) * core.y.dilation as usize + (core.y.out - 1) * core.y.stride as usize + 1
    }

    /// Number of contraction blocks.
    fn units(&self, core: &Core) -> usize {
        core.c.div_ceil(self.cc) * core.y.taps.div_ceil(self.tc)
    }

    /// Output elements of a group.
    fn slab(core: &Core) -> usize {
        core.pixels() * core.o
    }

    fn slab_room(core: &Core) -> usize {
        (core.groups * Self::slab(core)).next_multiple_of(64)
    }

    fn image_room(&self, core: &Core) -> usize {
        let row = self.used.len() * self.places * self.cc;
        (self.nt.min(core.n) * self.rows(core, self.tc) * row).next_multiple_of(64)
    }

    fn worker_room(&self, core: &Core) -> usize {
        self.image_room(core) + (core.o * self.tc * core.x.taps * self.cc).next_multiple_of(64)
    }

    /// Elements of workspace.
    pub(crate) fn workspace(&self, core: &Core, threads: usize) -> usize {
        self.chunks * Self::slab_room(core) + threads * self.worker_room(core)
    }

    /// Rough machine cycles.
    pub(crate) fn cost(&self, core: &Core) -> f64 {
        let (vector, cols) = if self.image_vectors { (core.n, core.o) } else { (core.o, core.n) };
        let outputs = (core.y.out * core.x.out) as f64;
        let compute = term_cost(self.kernels, vector, cols) * outputs * core.terms() as f64;
        let rows = core.y.taps.div_ceil(self.tc) * self.rows(core, self.tc);
        let image = core.n * core.c * rows * self.used.len() * self.places;
        let kernel = core.n.div_ceil(self.nt) * core.o * core.terms();
        // Every tile starts and ends once per block, and every output is added up from its slabs.
        let tiles = self.units(core) as f64 * outputs * (core.n.div_ceil(self.iw) * core.o.div_ceil(self.ow)) as f64;
        let finish = Self::slab(core) as f64 * (2.0 + 0.3 * self.chunks as f64);
        core.groups as f64 * (compute + 0.6 * (image + kernel) as f64 + 80.0 * tiles + finish)
    }

    /// # Safety
    /// See [`super::ConvPlan::run`].
    pub(crate) unsafe fn run(&self, core: &Core, team: &Team, x: &ConvPointers<T>) {
        let parts = core.n.div_ceil(self.nt);
        let slabs = self.chunks * Self::slab_room(core);
        team.run_with(core.groups * self.chunks * parts, &|t, worker| {
            let (t, i) = (t / parts, t % parts * self.nt);
            let (g, chunk) = (t / self.chunks, t % self.chunks);
            let work = x.work.wrapping_add(slabs + worker * self.worker_room(core));
            // SAFETY: each task writes its own part of its slab and its worker's room.
            unsafe { self.task(core, g, chunk, i..core.n.min(i + self.nt), x, work) }
        });
        let panels = core.n.div_ceil(self.iw);
        team.run(core.groups * panels, &|t| {
            // SAFETY: each task writes its own outputs.
            unsafe { self.finish(core, t / panels, t % panels * self.iw, x) }
        });
    }

    /// The place of a tile in a slab.
    fn tile_place(&self, core: &Core, chunk: usize, g: usize, i: usize, output: usize, o: usize) -> usize {
        let width = self.iw.min(core.n - i);
        let slab = chunk * Self::slab_room(core) + g * Self::slab(core);
        slab + i * core.o * core.y.out * core.x.out + (output * core.o + o) * width
    }

    /// Sums one chunk's blocks into its slab, for the images `is`.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn task(&self, core: &Core, g: usize, chunk: usize, is: Range<usize>, x: &ConvPointers<T>, work: *mut T) {
        let units = self.units(core);
        let (first, end) = (units * chunk / self.chunks, units * (chunk + 1) / self.chunks);
        let down = core.y.taps.div_ceil(self.tc);
        let packed = work.wrapping_add(self.image_room(core));
        for unit in first..end {
            let (c, t) = (unit / down * self.cc, unit % down * self.tc);
            let (cs, ts) = (c..core.c.min(c + self.cc), t..core.y.taps.min(t + self.tc));
            // SAFETY: both copies are made before they are read; tiles stay inside the slab.
            unsafe {
                for i in is.clone().step_by(self.iw) {
                    self.pack_image(core, g, i, (i - is.start, self.iw.min(is.end - i)), &cs, &ts, x, work);
                }
                self.pack_kernel(core, g, &cs, &ts, x, packed);
                for i in is.clone().step_by(self.iw) {
                    let width = self.iw.min(is.end - i);
                    for output in 0..core.y.out * core.x.out {
                        for o in (0..core.o).step_by(self.ow) {
                            let to = x.work.wrapping_add(self.tile_place(core, chunk, g, i, output, o));
                            self.tile(
                                core,
                                (i - is.start, width),
                                output,
                                o,
                                (&cs, &ts),
                                (work, packed),
                                to,
                                unit > first,
                            );
                        }
                    }
                }
            }
        }
    }

    /// One tile: `place` is the panel's first image in the copy and its width.
    ///
    /// # Safety
    /// The copies of image and kernel are made, and the tile is inside the slab at `c`.
    #[expect(clippy::too_many_arguments, reason = "one product: its ranges and its three places")]
    unsafe fn tile(
        &self,
        core: &Core,
        (i, width): (usize, usize),
        output: usize,
        o: usize,
        (cs, ts): (&Range<usize>, &Range<usize>),
        (image, kernel): (*const T, *const T),
        c: *mut T,
        accumulate: bool,
    ) {
        let (cc, tc, cols) = (cs.len(), ts.len(), self.ow.min(core.o - o));
        let dx = self.used.len();
        let (y, x) = (output / core.x.out * core.y.stride as usize, output % core.x.out * core.x.stride as usize);
        let row = dx * self.places * cc * width;
        let len = core.x.taps * cc;
        let start = i * self.rows(core, tc) * dx * self.places * cc + y * row;
        let image = image.wrapping_add(start + (x % dx * self.places + x / dx) * cc * width);
        let kernel = kernel.wrapping_add(o * tc * len);
        let skip = (core.y.dilation as usize * row) as isize - (len * width) as isize;
        let t = GemmTile {
            rows: tc,
            len,
            a: image,
            a_step: width as isize,
            a_skip: skip,
            b: kernel,
            b_step: cols as isize,
            b_skip: 0,
            b_col: 1,
            c,
            c_col: width as isize,
            last: 0,
            accumulate,
        };
        // SAFETY: the caller's promise.
        unsafe {
            if self.image_vectors {
                self.kernels.tile(width, cols, t);
            } else {
                let (a, a_step, a_skip) = (t.b, t.b_step, t.b_skip);
                let (b, b_step, b_skip) = (t.a, t.a_step, t.a_skip);
                let c_col = cols as isize;
                self.kernels.tile(cols, width, GemmTile { a, a_step, a_skip, b, b_step, b_skip, c_col, ..t });
            }
        }
    }

    /// Copies a panel of images: work[((row·residues + residue)·places + place)·channels + channel, image].
    ///
    /// # Safety
    /// As for [`run`](Self::run); `work` has room for the panel.
    #[expect(clippy::too_many_arguments, reason = "one copy: its ranges and its two places")]
    unsafe fn pack_image(
        &self,
        core: &Core,
        g: usize,
        first: usize,
        (i, width): (usize, usize),
        cs: &Range<usize>,
        ts: &Range<usize>,
        x: &ConvPointers<T>,
        work: *mut T,
    ) {
        let (dx, s, cc) = (self.used.len(), core.image, cs.len());
        let rows = self.rows(core, ts.len());
        let from = x.image.wrapping_offset(core.group(g).0 + first as isize * s[0] + cs.start as isize * s[1]);
        let top = core.y.start + ts.start as isize * core.y.dilation;
        let work = work.wrapping_add(i * rows * dx * self.places * cc);
        let dst_row = cc * width;
        for row in 0..rows {
            for residue in (0..dx).filter(|&r| self.used[r]) {
                // Image columns left, left + dx, …; places low..high of them exist.
                let left = core.x.start + residue as isize;
                let high = (core.x.size - left).max(0).cast_unsigned().div_ceil(dx).min(self.places);
                let low = (-left).max(0).cast_unsigned().div_ceil(dx).min(high);
                let line = top + row as isize;
                let (low, high) = if (0..core.y.size).contains(&line) { (low, high) } else { (0, 0) };
                for c in 0..cc {
                    let place = (row * dx + residue) * self.places * cc + c;
                    let dst = |p: usize| work.wrapping_add((place + p * cc) * width);
                    let src =
                        from.wrapping_offset(c as isize * s[1] + line * s[2] + (left + (low * dx) as isize) * s[3]);
                    // SAFETY: places low..high are inside the image, all places inside the copy.
                    unsafe {
                        for (p, rows) in [(0, low), (high, self.places - high)] {
                            let zeros = ZEROS.as_ptr().cast();
                            let dst_row = dst_row as isize;
                            (self.kernels.copy)(&BlockCopy {
                                src: zeros,
                                src_row: 0,
                                rows,
                                cols: width,
                                dst: dst(p),
                                dst_row,
                            });
                        }
                        pack(self.kernels, src, (s[0], dx as isize * s[3]), width, high - low, dst(low), dst_row);
                    }
                }
            }
        }
    }

    /// Copies the kernel, in panels of `[tap, channel, output channel]`.
    ///
    /// # Safety
    /// As for [`run`](Self::run), with room for the copy.
    unsafe fn pack_kernel(
        &self,
        core: &Core,
        g: usize,
        cs: &Range<usize>,
        ts: &Range<usize>,
        x: &ConvPointers<T>,
        packed: *mut T,
    ) {
        let (s, cc, wide) = (core.kernel, cs.len(), core.x.taps);
        for o in (0..core.o).step_by(self.ow) {
            let cols = self.ow.min(core.o - o);
            let panel = packed.wrapping_add(o * ts.len() * wide * cc);
            for c in 0..cc {
                for t in 0..ts.len() {
                    let at = o as isize * s[0] + (cs.start + c) as isize * s[1] + (ts.start + t) as isize * s[2];
                    let src = x.kernel.wrapping_offset(core.group(g).1 + at);
                    let dst = panel.wrapping_add((t * wide * cc + c) * cols);
                    // SAFETY: inside the kernel and its copy.
                    unsafe { pack(self.kernels, src, (s[0], s[3]), cols, wide, dst, cc * cols) };
                }
            }
        }
    }

    /// Adds the slabs in order and writes the outputs of a panel of images.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn finish(&self, core: &Core, g: usize, i: usize, x: &ConvPointers<T>) {
        let (s, width) = (core.out, self.iw.min(core.n - i));
        let out = x.out.wrapping_offset(core.group(g).2 + i as isize * s[0]);
        let mut room = MaybeUninit::<[T; MAX_TILE_ELEMENTS]>::uninit();
        let sum = room.as_mut_ptr().cast::<T>();
        for output in 0..core.y.out * core.x.out {
            let (y, column) = ((output / core.x.out) as isize, (output % core.x.out) as isize);
            for o in (0..core.o).step_by(self.ow) {
                let cols = self.ow.min(core.o - o);
                // SAFETY: inside the slabs, the temporary and the output.
                unsafe {
                    for chunk in 0..self.chunks {
                        let from = x.work.add(self.tile_place(core, chunk, g, i, output, o));
                        for e in 0..width * cols {
                            *sum.add(e) = if chunk == 0 { *from.add(e) } else { *sum.add(e) + *from.add(e) };
                        }
                    }
                    let (by_image, by_channel) = if self.image_vectors { (1, width) } else { (cols, 1) };
                    for a in 0..width {
                        let to = out.wrapping_offset(a as isize * s[0] + o as isize * s[1] + y * s[2] + column * s[3]);
                        for b in 0..cols {
                            *to.wrapping_offset(b as isize * s[1]) = *sum.add(a * by_image + b * by_channel);
                        }
                    }
                }
            }
        }
    }
}
