//! Convolution with few channels in a group, such as a depthwise one:
//!
//! out[o, y, x] += Σ_{t, s} plane[y + t, x + s]·kernel[o, t, s], channel by channel.
//!
//! One channel of one image is copied with its padding into a plane; the patches of a row of outputs are then vectors
//! of the plane at shifted places.

use super::ConvPointers;
use super::geometry::Core;
use crate::gemm::blocked::{part, put};
use crate::gemm::kernel::BlockCopy;
use crate::gemm::pack::pack;
use crate::gemm::{Kernels, Real};
use crate::runtime::thread_pool::Team;

/// A planned sum of shifted rows.
pub(crate) struct Plane<T: 'static> {
    kernels: &'static Kernels<T>,
    /// Rows of the plane.
    rows: usize,
    /// Elements of a row of the plane.
    cols: usize,
    /// Output channels of a tile.
    nr: usize,
}

impl<T: Real> Plane<T> {
    /// `None` if neighbouring outputs do not read neighbouring elements.
    pub(crate) fn new(kernels: &'static Kernels<T>, core: &Core) -> Option<Plane<T>> {
        let reach = |a: &super::Axis| (a.out - 1) * a.stride as usize + (a.taps - 1) * a.dilation as usize + 1;
        let nr = part(core.o, kernels.nr, 1);
        (core.x.stride == 1).then(|| Plane { kernels, rows: reach(&core.y), cols: reach(&core.x), nr })
    }

    /// Rough machine cycles.
    pub(crate) fn cost(&self, core: &Core) -> f64 {
        let vectors = core.x.out.div_ceil(self.kernels.lanes) as f64;
        let (high, wide) = (vectors.min(2.0), self.nr as f64);
        let tile =
            (core.y.taps * core.x.taps) as f64 * (high * wide).max(high + wide).max(4.0) + 40.0 + 3.0 * high * wide;
        let tiles = vectors / high * (core.o as f64 / wide) * core.y.out as f64;
        let copy = self.rows as f64 * (20.0 + 0.2 * self.cols as f64);
        (core.n * core.groups * core.c) as f64 * (tiles * tile + copy)
    }

    /// Elements of one worker's kernel and plane.
    fn rooms(&self, core: &Core) -> (usize, usize) {
        let kernel = (core.o * core.y.taps * core.x.taps).next_multiple_of(64);
        (kernel, (self.rows * self.cols).next_multiple_of(64))
    }

    /// Elements of workspace.
    pub(crate) fn workspace(&self, core: &Core, threads: usize) -> usize {
        let (kernel, plane) = self.rooms(core);
        threads * (kernel + plane)
    }

    /// # Safety
    /// See [`super::ConvPlan::run`].
    pub(crate) unsafe fn run(&self, core: &Core, team: &Team, x: &ConvPointers<T>) {
        let (kernel, plane) = self.rooms(core);
        team.run_with(core.n * core.groups, &|t, worker| {
            let work = x.work.wrapping_add(worker * (kernel + plane));
            for c in 0..core.c {
                // SAFETY: each task writes its own image and group, and its worker's room.
                unsafe {
                    self.pack_kernel(core, t % core.groups, c, x, work);
                    self.pack_plane(core, t / core.groups, t % core.groups, c, x, work.add(kernel));
                    self.channel(core, t / core.groups, t % core.groups, x, (work, work.add(kernel)), c > 0);
                }
            }
        });
    }

    /// Copies one channel's taps, in panels of `[tap, output channel]`.
    ///
    /// # Safety
    /// As for [`run`](Self::run), with room for the copy.
    unsafe fn pack_kernel(&self, core: &Core, g: usize, c: usize, x: &ConvPointers<T>, work: *mut T) {
        let (s, taps) = (core.kernel, core.y.taps * core.x.taps);
        for o in (0..core.o).step_by(self.nr) {
            let cols = self.nr.min(core.o - o);
            for t in 0..core.y.taps {
                let at = core.group(g).1 + o as isize * s[0] + c as isize * s[1] + t as isize * s[2];
                // SAFETY: inside the kernel and its copy.
                unsafe {
                    let dst = work.add(o * taps + t * core.x.taps * cols);
                    pack(self.kernels, x.kernel.wrapping_offset(at), (s[0], s[3]), cols, core.x.taps, dst, cols);
                }
            }
        }
    }

    /// Copies one channel of one image, with zeros around it.
    ///
    /// # Safety
    /// As for [`run`](Self::run); `plane` has room for the channel and its border.
    unsafe fn pack_plane(&self, core: &Core, n: usize, g: usize, c: usize, x: &ConvPointers<T>, plane: *mut T) {
        let s = core.image;
        let from = x.image.wrapping_offset(core.group(g).0 + n as isize * s[0] + c as isize * s[1]);
        let low = (-core.x.start).clamp(0, self.cols as isize) as usize;
        let high = (core.x.size - core.x.start).clamp(low as isize, self.cols as isize) as usize;
        for row in 0..self.rows {
            let line = core.y.start + row as isize;
            let (low, high) = if (0..core.y.size).contains(&line) { (low, high) } else { (0, 0) };
            // SAFETY: columns low..high of the row are inside the image, all columns inside the plane.
            unsafe {
                let dst = plane.add(row * self.cols);
                for i in (0..low).chain(high..self.cols) {
                    *dst.add(i) = T::default();
                }
                let mut src = from.wrapping_offset(line * s[2] + (core.x.start + low as isize) * s[3]);
                let dst = dst.add(low);
                if s[3] == 1 {
                    (self.kernels.copy)(&BlockCopy { src, src_row: 0, rows: 1, cols: high - low, dst, dst_row: 0 });
                } else {
                    for i in 0..high - low {
                        *dst.add(i) = *src;
                        src = src.wrapping_offset(s[3]);
                    }
                }
            }
        }
    }

    /// Adds one channel's part to all outputs of an image and a group.
    ///
    /// # Safety
    /// Kernel and plane are packed; the output is as for [`run`](Self::run).
    unsafe fn channel(
        &self,
        core: &Core,
        n: usize,
        g: usize,
        x: &ConvPointers<T>,
        (kernel, plane): (*const T, *const T),
        accumulate: bool,
    ) {
        let (s, taps, mr) = (core.out, core.y.taps * core.x.taps, self.kernels.mr());
        let out = x.out.wrapping_offset(core.group(g).2 + n as isize * s[0]);
        let (dy, dx) = (core.y.dilation, core.x.dilation);
        let skip = dy * self.cols as isize - dx * core.x.taps as isize;
        for y in 0..core.y.out {
            for o in (0..core.o).step_by(self.nr) {
                let cols = self.nr.min(core.o - o);
                for column in (0..core.x.out).step_by(mr) {
                    // SAFETY: the plane holds every place the outputs read.
                    unsafe {
                        let a = (plane.add(y * core.y.stride as usize * self.cols + column), dx, skip);
                        let b = (kernel.add(o * taps), cols as isize, 0, 1);
                        let at = o as isize * s[1] + y as isize * s[2] + column as isize * s[3];
                        let size = (mr.min(core.x.out - column), cols);
                        let c = out.wrapping_offset(at);
                        put(self.kernels, size, (core.y.taps, core.x.taps), a, b, c, (s[3], s[1]), accumulate);
                    }
                }
            }
        }
    }
}
