//! Copies of strided elements into strided places: concatenation and padding.

use crate::team::Team;
use crate::tile::Memory;
use crate::view::View;

/// Elements worth a task of their own.
const TASK: usize = 1 << 16;

/// dst[i] = src[i] for every multi-index, each side with its own strides, in bytes from the program's memory.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    /// Lengths with source and destination strides, in elements; the last axis is the inner loop.
    axes: Vec<(usize, isize, isize)>,
    from: isize,
    to: isize,
    size: usize,
    tasks: usize,
}

impl Move {
    /// A move of elements of `size` bytes from `src`, a view of memory at `from`, to `dst`, a view of memory at `to`.
    pub fn new(src: &View, from: usize, dst: &View, to: usize, size: usize) -> Self {
        let mut axes: Vec<(usize, isize, isize)> = vec![];
        for axis in 0..src.shape.len() {
            let (length, s, d) = (src.shape[axis], src.strides[axis], dst.strides[axis]);
            if length == 1 {
                continue;
            }
            match axes.last_mut() {
                Some(last) if last.1 == s * length as isize && last.2 == d * length as isize => {
                    *last = (last.0 * length, s, d);
                }
                _ => axes.push((length, s, d)),
            }
        }
        if axes.is_empty() {
            axes.push((src.count(), 0, 0));
        }
        let outer: usize = axes[..axes.len() - 1].iter().map(|a| a.0).product();
        let bytes = |start: usize, offset: isize| start as isize + offset * size as isize;
        Move {
            tasks: (src.count() / TASK).clamp(1, outer.max(1)).min(32),
            axes,
            from: bytes(from, src.offset),
            to: bytes(to, dst.offset),
            size,
        }
    }

    /// # Safety
    /// Source and destination must lie inside the program's memory and not overlap.
    pub unsafe fn run(&self, team: &Team, memory: Memory) {
        let outer: usize = self.axes[..self.axes.len() - 1].iter().map(|a| a.0).product();
        let chunk = outer.div_ceil(self.tasks);
        // SAFETY: tasks move different outer indices.
        let part = |memory: Memory, i: usize| unsafe { self.inner(memory.program, memory.program, i) };
        team.run(self.tasks, &|task| {
            (task * chunk..((task + 1) * chunk).min(outer)).for_each(|i| part(memory, i));
        });
    }

    /// As [`run`](Self::run), to other memory and on this thread alone.
    ///
    /// # Safety
    /// Source and destination must lie inside the memory that starts at `src` and at `dst`.
    pub unsafe fn run_between(&self, src: *const u8, dst: *mut u8) {
        let outer: usize = self.axes[..self.axes.len() - 1].iter().map(|a| a.0).product();
        // SAFETY: as the caller says.
        (0..outer).for_each(|i| unsafe { self.inner(src, dst, i) });
    }

    unsafe fn inner(&self, src: *const u8, dst: *mut u8, mut index: usize) {
        let Some((&(length, s, d), outer)) = self.axes.split_last() else { return };
        let (mut from, mut to) = (0, 0);
        for &(n, s, d) in outer.iter().rev() {
            from += (index % n) as isize * s;
            to += (index % n) as isize * d;
            index /= n;
        }
        let size = self.size as isize;
        // SAFETY: as for `run`.
        unsafe {
            let (src, dst) = (src.offset(self.from + from * size), dst.offset(self.to + to * size));
            match self.size {
                _ if s == 1 && d == 1 => std::ptr::copy_nonoverlapping(src, dst, length * self.size),
                8 => strided(src.cast::<u64>(), s, dst.cast::<u64>(), d, length),
                _ => strided(src.cast::<u32>(), s, dst.cast::<u32>(), d, length),
            }
        }
    }
}

unsafe fn strided<T: Copy>(src: *const T, s: isize, dst: *mut T, d: isize, length: usize) {
    for i in 0..length as isize {
        // SAFETY: as for `Move::run`.
        unsafe { *dst.offset(i * d) = *src.offset(i * s) };
    }
}
