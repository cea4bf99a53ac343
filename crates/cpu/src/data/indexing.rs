//! Gather, scatter-add, window argmax, running sums and index checks, on dense operands.

use crate::runtime::thread_pool::Team;
use bilevel_graph::{Error, ErrorKind, Line, WindowDims};
use bilevel_plan::IndexDims;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Elements worth a separate task.
const TASK_ELEMENTS: usize = 1 << 15;
/// No bad index was met.
const NO_BAD_INDEX: usize = usize::MAX;

/// Numbers the kernels here work on.
pub(crate) trait Number: Copy + PartialOrd + Send + Sync {
    fn is_nan(self) -> bool;
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
}

macro_rules! float {
    ($t:ty) => {
        impl Number for $t {
            fn is_nan(self) -> bool {
                self.is_nan()
            }

            fn plus(self, other: Self) -> Self {
                self + other
            }
        }
    };
}
float!(f32);
float!(f64);

impl Number for i32 {
    fn is_nan(self) -> bool {
        false
    }

    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

/// A pointer that tasks share; each writes its own part.
#[derive(Clone, Copy)]
struct SharedPtr<T>(*mut T);
// SAFETY: users write disjoint parts.
unsafe impl<T> Sync for SharedPtr<T> {}
// SAFETY: as above; the memory outlives the tasks, which the call waits for.
unsafe impl<T> Send for SharedPtr<T> {}
impl<T> SharedPtr<T> {
    fn get(self) -> *mut T {
        self.0
    }
}

fn tasks_for(units: usize, work: usize) -> usize {
    (work / TASK_ELEMENTS).clamp(1, 32).min(units.max(1))
}

/// The error for an index that is not in 0..limit.
fn out_of_range(operation: &str, index: i32, limit: usize, line: Line) -> Error {
    let kind = ErrorKind::IndexOutOfRange { operation: operation.into(), index: index as i64, limit };
    Error::new(kind).at(line)
}

/// dst[b, k, :] = x[b, indices[b, k], :]
///
/// # Safety
/// The pointers must address as many elements as the shape says.
pub(crate) unsafe fn gather<T: Number>(
    rows: &IndexDims,
    team: &Team,
    x: *const T,
    indices: *const i32,
    dst: *mut T,
    line: Line,
) -> Result<(), Error> {
    let IndexDims { batch, n, k, inner } = *rows;
    // Place of the first bad index, on any thread.
    let bad = AtomicUsize::new(NO_BAD_INDEX);
    let (x, indices, dst) = (SharedPtr(x.cast_mut()), SharedPtr(indices.cast_mut()), SharedPtr(dst));
    let units = batch * k;
    let tasks = tasks_for(units, units * inner.max(4));
    let chunk = units.div_ceil(tasks);
    team.run(tasks, &|task| {
        let (x, indices, dst) = (x.get(), indices.get(), dst.get());
        let (mut unit, end) = (task * chunk, ((task + 1) * chunk).min(units));
        while unit < end {
            // The part of one batch that belongs to this task.
            let b = unit / k;
            let stop = end.min((b + 1) * k);
            // SAFETY: indices are checked before they are used.
            unsafe {
                let rows = x.add(b * n * inner);
                for unit in unit..stop {
                    let index = *indices.add(unit);
                    if index < 0 || index as usize >= n {
                        bad.fetch_min(unit, Ordering::Relaxed);
                    } else if inner == 1 {
                        *dst.add(unit) = *rows.add(index as usize);
                    } else {
                        let row = rows.add(index as usize * inner);
                        std::ptr::copy_nonoverlapping(row, dst.add(unit * inner), inner);
                    }
                }
            }
            unit = stop;
        }
    });
    match bad.into_inner() {
        NO_BAD_INDEX => Ok(()),
        // SAFETY: the place of an index that was read.
        place => Err(out_of_range("gather", unsafe { *indices.get().add(place) }, n, line)),
    }
}

/// dst[b, indices[b, k], :] += updates[b, k, :], into zeros or a copy of `onto`; if that is `dst` itself, no other row
/// is touched. Updates to one place are added in the order of k.
///
/// # Safety
/// As [`gather`]; `onto` addresses as many elements as `dst`, the same or others.
pub(crate) unsafe fn scatter_add<T: Number>(
    rows: &IndexDims,
    team: &Team,
    onto: Option<*const T>,
    indices: *const i32,
    updates: *const T,
    dst: *mut T,
    line: Line,
) -> Result<(), Error> {
    let IndexDims { batch, n, k, inner } = *rows;
    // Place of the first bad index, on any thread.
    let bad = AtomicUsize::new(NO_BAD_INDEX);
    let in_place = onto == Some(dst.cast_const());
    let onto = onto.map(|onto| SharedPtr(onto.cast_mut()));
    let (updates, indices, dst) = (SharedPtr(updates.cast_mut()), SharedPtr(indices.cast_mut()), SharedPtr(dst));
    // A task owns some batches, or some of the columns of a single batch: no two add to one element.
    let columns = if batch > 1 { 1 } else { inner.div_ceil(64).max(1) };
    let units = batch * columns;
    let tasks = tasks_for(units, batch * (k + if in_place { 0 } else { n }) * inner);
    let chunk = units.div_ceil(tasks);
    team.run(tasks, &|task| {
        let (updates, indices, dst) = (updates.get(), indices.get(), dst.get());
        for unit in task * chunk..((task + 1) * chunk).min(units) {
            let (b, column) = (unit / columns, unit % columns);
            let (first, last) = if columns == 1 { (0, inner) } else { (column * 64, ((column + 1) * 64).min(inner)) };
            // SAFETY: indices are checked before they are used.
            unsafe {
                let to = dst.add(b * n * inner);
                let begin = |start: usize, count: usize| match onto {
                    Some(onto) => to.add(start).copy_from_nonoverlapping(onto.get().add(b * n * inner + start), count),
                    None => to.add(start).write_bytes(0, count),
                };
                match columns {
                    _ if in_place => {}
                    1 => begin(0, n * inner),
                    _ => (0..n).for_each(|row| begin(row * inner + first, last - first)),
                }
                for i in 0..k {
                    let index = *indices.add(b * k + i);
                    if index < 0 || index as usize >= n {
                        bad.fetch_min(b * k + i, Ordering::Relaxed);
                        continue;
                    }
                    let from = updates.add((b * k + i) * inner);
                    let to = to.add(index as usize * inner);
                    if inner == 1 {
                        *to = (*to).plus(*from);
                        continue;
                    }
                    for j in first..last {
                        *to.add(j) = (*to.add(j)).plus(*from.add(j));
                    }
                }
            }
        }
    });
    match bad.into_inner() {
        NO_BAD_INDEX => Ok(()),
        // SAFETY: the place of an index that was read.
        place => Err(out_of_range("scatter_add", unsafe { *indices.get().add(place) }, n, line)),
    }
}

/// Fails if an index is not in 0..limit.
///
/// # Safety
/// `indices` must address `count` elements.
pub(crate) unsafe fn check_index(
    indices: *const i32,
    count: usize,
    limit: usize,
    operation: &str,
    line: Line,
) -> Result<(), Error> {
    // SAFETY: as the caller says.
    let indices = unsafe { std::slice::from_raw_parts(indices, count) };
    match indices.iter().find(|&&i| i < 0 || i as usize >= limit) {
        None => Ok(()),
        Some(&index) => Err(out_of_range(operation, index, limit, line)),
    }
}

/// For every window of every plane `[h, w]`, the flat index of its first largest element; a NaN is the largest.
///
/// # Safety
/// `x` must address `planes·h·w` elements and `dst` `planes·oh·ow`.
pub(crate) unsafe fn window_argmax<T: Number>(
    team: &Team,
    dims: &WindowDims,
    (planes, h, w, oh, ow): (usize, usize, usize, usize, usize),
    x: *const T,
    dst: *mut i32,
) {
    let (x, dst) = (SharedPtr(x.cast_mut()), SharedPtr(dst));
    let tasks = tasks_for(planes * oh, planes * h * w);
    let chunk = (planes * oh).div_ceil(tasks);
    let simple = dims.size == [2, 2] && dims.stride == [2, 2] && dims.padding == [(0, 0); 2];
    team.run(tasks, &|task| {
        for unit in task * chunk..((task + 1) * chunk).min(planes * oh) {
            let (plane, y) = (unit / oh, unit % oh);
            // SAFETY: windows are cut to the plane.
            unsafe {
                let image = std::slice::from_raw_parts(x.get().add(plane * h * w), h * w);
                let row = std::slice::from_raw_parts_mut(dst.get().add(unit * ow), ow);
                if simple {
                    pairs(&image[2 * y * w..][..2 * ow], &image[(2 * y + 1) * w..][..2 * ow], (2 * y * w, w), row);
                } else {
                    windows(dims, image, (h, w), y, row);
                }
            }
        }
    });
}

/// 2×2 windows side by side: branch-free, so that it vectorises.
fn pairs<T: Number>(top: &[T], bottom: &[T], (start, width): (usize, usize), row: &mut [i32]) {
    for (i, out) in row.iter_mut().enumerate() {
        let places = [2 * i, 2 * i + 1, width + 2 * i, width + 2 * i + 1];
        let values = [top[2 * i], top[2 * i + 1], bottom[2 * i], bottom[2 * i + 1]];
        let (mut best, mut place) = (values[0], places[0] as i32);
        for j in 1..4 {
            let better = values[j] > best || (values[j].is_nan() && !best.is_nan());
            best = if better { values[j] } else { best };
            place = if better { places[j] as i32 } else { place };
        }
        *out = start as i32 + place;
    }
}

fn windows<T: Number>(dims: &WindowDims, image: &[T], (h, w): (usize, usize), y: usize, row: &mut [i32]) {
    let span = |at: usize, axis: usize, length: usize| {
        let start = at * dims.stride[axis];
        let low = dims.padding[axis].0;
        start.saturating_sub(low)..(start + dims.size[axis]).saturating_sub(low).min(length)
    };
    let ys = span(y, 0, h);
    for (x, out) in row.iter_mut().enumerate() {
        let xs = span(x, 1, w);
        let mut place = ys.start * w + xs.start;
        for i in ys.clone() {
            for j in xs.clone() {
                let (value, best) = (image[i * w + j], image[place]);
                if value > best || (value.is_nan() && !best.is_nan()) {
                    place = i * w + j;
                }
            }
        }
        *out = place as i32;
    }
}

/// Running sums along the middle axis of `[outer, n, inner]`.
///
/// # Safety
/// Both pointers must address `outer·n·inner` elements.
pub(crate) unsafe fn cumsum<T: Number>(
    team: &Team,
    (outer, n, inner): (usize, usize, usize),
    reverse: bool,
    x: *const T,
    dst: *mut T,
) {
    let (x, dst) = (SharedPtr(x.cast_mut()), SharedPtr(dst));
    let tasks = tasks_for(outer, outer * n * inner);
    let chunk = outer.div_ceil(tasks);
    team.run(tasks, &|task| {
        for o in task * chunk..((task + 1) * chunk).min(outer) {
            for step in 0..n {
                let at = |i: usize| (o * n + if reverse { n - 1 - i } else { i }) * inner;
                // SAFETY: rows are inside the arrays; tasks own different outer indices.
                unsafe {
                    let (from, to) = (x.get().add(at(step)), dst.get().add(at(step)));
                    if step == 0 {
                        std::ptr::copy_nonoverlapping(from, to, inner);
                    } else {
                        let before = dst.get().add(at(step - 1));
                        for j in 0..inner {
                            *to.add(j) = (*before.add(j)).plus(*from.add(j));
                        }
                    }
                }
            }
        }
    });
}

/// Runs a generic call for the number type a dtype stands for.
macro_rules! with_number {
    ($dtype:expr, $t:ident => $call:expr) => {
        match $dtype {
            bilevel_graph::DType::F32 => {
                type $t = f32;
                $call
            }
            bilevel_graph::DType::F64 => {
                type $t = f64;
                $call
            }
            bilevel_graph::DType::I32 => {
                type $t = i32;
                $call
            }
        }
    };
}
pub(crate) use with_number;
