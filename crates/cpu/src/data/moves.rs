//! Copies of strided elements into strided places: concatenation and padding.

use crate::runtime::memory::{Address, Memory};
use crate::runtime::thread_pool::Team;
use bilevel_graph::DType;
use bilevel_plan::View;

/// Elements worth a separate task; longer stretches are cut into pieces of this many.
const TASK_ELEMENTS: usize = 1 << 16;
const MAX_TASKS: usize = 32;

/// dst[i] = src[i] for every multi-index, each side with its own strides.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    /// Lengths with source and destination strides, in elements; the last axis is the inner loop.
    axes: Vec<(usize, isize, isize)>,
    from: Address,
    to: Address,
    size: usize,
    /// Pieces of the inner axis, and of all of it.
    pieces: usize,
    items: usize,
    tasks: usize,
}

impl Move {
    /// A move of elements from `src`, a view of memory at `from`, to `dst`, a view of memory at `to`.
    pub fn new(src: &View, from: Address, dst: &View, to: Address, dtype: DType) -> Self {
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
        let length = axes[axes.len() - 1].0;
        let outer: usize = axes[..axes.len() - 1].iter().map(|a| a.0).product();
        let pieces = length.div_ceil(TASK_ELEMENTS).max(1);
        let items = outer * pieces;
        Move {
            tasks: (src.count() / TASK_ELEMENTS).clamp(1, items.max(1)).min(MAX_TASKS),
            items,
            pieces,
            axes,
            from: from.advanced(src.offset, dtype),
            to: to.advanced(dst.offset, dtype),
            size: dtype.size(),
        }
    }

    /// # Safety
    /// Source and destination must lie inside the memory of the plan and not overlap.
    pub unsafe fn run(&self, team: &Team, memory: Memory) {
        let share = self.items.div_ceil(self.tasks);
        // SAFETY: tasks move different items; addresses are the plan's.
        team.run(self.tasks, &|task| unsafe {
            let (src, dst) = (memory.at(self.from), memory.at(self.to));
            (task * share..((task + 1) * share).min(self.items)).for_each(|item| self.item(src, dst, item));
        });
    }

    /// Moves a piece of the inner axis at one index of the outer ones.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn item(&self, src: *const u8, dst: *mut u8, item: usize) {
        let Some((&(length, s, d), outer)) = self.axes.split_last() else { return };
        let first = item % self.pieces * TASK_ELEMENTS;
        let length = (length - first).min(TASK_ELEMENTS);
        let mut index = item / self.pieces;
        let (mut from, mut to) = (first as isize * s, first as isize * d);
        for &(n, s, d) in outer.iter().rev() {
            from += (index % n) as isize * s;
            to += (index % n) as isize * d;
            index /= n;
        }
        let size = self.size as isize;
        // SAFETY: as for `run`.
        unsafe {
            let (src, dst) = (src.offset(from * size), dst.offset(to * size));
            match self.size {
                _ if s == 1 && d == 1 => std::ptr::copy_nonoverlapping(src, dst, length * self.size),
                8 => strided(src.cast::<u64>(), s, dst.cast::<u64>(), d, length),
                _ => strided(src.cast::<u32>(), s, dst.cast::<u32>(), d, length),
            }
        }
    }
}

/// # Safety
/// `length` elements can be read and written at these strides.
unsafe fn strided<T: Copy>(src: *const T, s: isize, dst: *mut T, d: isize, length: usize) {
    for i in 0..length as isize {
        // SAFETY: as for `Move::run`.
        unsafe { *dst.offset(i * d) = *src.offset(i * s) };
    }
}
