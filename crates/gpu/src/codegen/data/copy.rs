//! Copies of views, concatenation and padding.

use crate::codegen::data::smem_transpose::{SmemTranspose, THREADS};
use crate::codegen::kernel::{CStorage, Code, Launch, RoundedStorage, c_type, decode, reach};
use crate::codegen::limits::{MAX_GRID_ROWS, VECTOR, VECTOR_BYTES, WARP};
use crate::codegen::load::split;
use crate::codegen::renderer::Dialect;
use bilevel_graph::DType;
use bilevel_plan::{Padding, Place, Run, StorageType, View};

/// A view of a node's memory.
#[derive(Clone, Copy)]
pub struct Elements<'a> {
    /// The start of the node's memory.
    pub place: Place,
    /// The view.
    pub view: &'a View,
}

/// As [`gathered`], unless a check has failed.
pub fn copy_unless_failed(dialect: Dialect, from: Elements, dtype: DType, to: Place) -> Launch {
    let mut code = Code::new(dialect);
    code.stop_after_report();
    gathered_by(code, from, dtype.into(), to, None)
}

/// Copies a view to contiguous memory, rounded to bf16 if a storage is given.
pub fn gathered(
    dialect: Dialect,
    from: Elements,
    storage: impl Into<StorageType>,
    to: Place,
    rounded: Option<RoundedStorage>,
) -> Launch {
    gathered_by(Code::new(dialect), from, storage.into(), to, rounded)
}

fn gathered_by(
    mut code: Code,
    from: Elements,
    storage: StorageType,
    to: Place,
    rounded: Option<RoundedStorage>,
) -> Launch {
    let (count, runs) = (from.view.count(), from.view.runs());
    let as_type = rounded.map_or(storage.name(), RoundedStorage::name);
    let value = |read: &str| rounded.map_or(read.to_string(), |rounded| rounded.round(read));
    let target = |code: &mut Code| match rounded {
        Some(rounded) => code.rounded_output(to, rounded),
        None => code.output(to, storage, 0),
    };
    if let Some(turned) = SmemTranspose::of(&runs) {
        code.reaches(reach(&runs));
        let (source, target) = (code.input(from.place, storage, from.view.offset), target(&mut code));
        let blocks = turned.begin(&mut code, count, storage.name());
        turned.in_memory(&mut code, |held, place| format!("{held} = {source}[{place}];"));
        code.barrier();
        turned.in_view(&mut code, |held, place| format!("{target}[{place}] = {};", value(held)));
        return code.launch([blocks, 1], THREADS as u32);
    }
    // Elements that are widened need narrower vectors.
    let widens = storage == StorageType::Bf16 && rounded.is_some();
    let lanes = beside(&runs, from.view.offset, storage).min(if widens { VECTOR } else { usize::MAX });
    code.reaches(reach(&runs));
    let c = storage.name();
    code.each(count / lanes);
    let (source, target) = (code.input(from.place, storage, from.view.offset), target(&mut code));
    if lanes == 1 {
        let value = value(&format!("{source}[{}]", decode(&runs, "e")));
        code.line(format!("{target}[e] = {value};"));
    } else {
        code.line(format!("const U i = e * {lanes};"));
        code.line(format!("{c} v[{lanes}]; {as_type} w[{lanes}];"));
        code.line(format!("load<{c}, {lanes}>({source} + ({}), v);", decode(&runs, "i")));
        code.lanes(lanes, format!("w[j] = {};", value("v[j]")));
        code.line(format!("store<{as_type}, {lanes}>({target} + i, w);"));
    }
    code.launch_each(count / lanes)
}

/// Copies contiguous elements to a view, rounded if its elements are narrower.
pub fn scattered(
    dialect: Dialect,
    (from, storage): (Place, StorageType),
    to: Elements,
    written: StorageType,
) -> Launch {
    let (count, runs) = (to.view.count(), to.view.runs());
    let at_once = |storage: StorageType| beside(&runs, to.view.offset, storage);
    let mut code = Code::new(dialect);
    code.reaches(reach(&runs));
    let (source, target) = (code.input(from, storage, 0), code.output(to.place, written, to.view.offset));
    if let Some(turned) = SmemTranspose::of(&runs) {
        let blocks = turned.begin(&mut code, count, written.name());
        turned.in_view(&mut code, |held, place| format!("{held} = {source}[{place}];"));
        code.barrier();
        turned.in_memory(&mut code, |held, place| format!("{target}[{place}] = {held};"));
        return code.launch([blocks, 1], THREADS as u32);
    }
    let lanes = at_once(storage).min(at_once(written));
    code.each(count / lanes);
    let (c, w) = (storage.name(), written.name());
    code.line(format!("const U i = e * {lanes};"));
    code.line(format!("{c} v[{lanes}]; {w} w[{lanes}];"));
    code.line(format!("load<{c}, {lanes}>({source} + i, v);"));
    code.lanes(lanes, "w[j] = v[j];");
    code.line(format!("store<{w}, {lanes}>({target} + ({}), w);", decode(&runs, "i")));
    code.launch_each(count / lanes)
}

/// Returns the vector width: 16 bytes, if both ends are contiguous.
pub fn beside(runs: &[Run], offset: isize, storage: StorageType) -> usize {
    let lanes = VECTOR_BYTES / storage.size();
    let whole = |n: isize| n % lanes as isize == 0;
    let aligned = runs.split_last().is_some_and(|(inner, outer)| {
        inner.stride == 1 && whole(inner.length as isize) && whole(offset) && outer.iter().all(|run| whole(run.stride))
    });
    if aligned { lanes } else { 1 }
}

/// Threads of a block that share a position along an axis.
const ALONG: usize = 256;

/// Concatenates parts along an axis. If enough elements share a position along that axis, a block has one position, and
/// all its threads read the same part. Parts may have different element sizes.
pub fn concat(
    dialect: Dialect,
    parts: &[(Elements, StorageType)],
    axis: usize,
    shape: &[usize],
    (to, storage): (Place, StorageType),
) -> Launch {
    let (inner, length) = (shape[axis + 1..].iter().product::<usize>(), shape[axis]);
    let places = shape[..=axis].iter().product::<usize>();
    let count = places * inner;
    let mut code = Code::new(dialect);
    let split: Option<Vec<_>> = parts.iter().map(|(part, _)| split(&part.view.runs(), inner)).collect();
    let shared = split.filter(|_| inner >= ALONG && places <= MAX_GRID_ROWS);
    let at_once = |(part, of): &(Elements, StorageType)| {
        if *of == storage { beside(&part.view.runs(), part.view.offset, storage) } else { 1 }
    };
    // The vector width, if a block has one position.
    let whole = inner.is_multiple_of(VECTOR_BYTES / storage.size());
    let lanes = if whole { parts.iter().map(at_once).min().unwrap_or(1) } else { 1 };
    let threads = (inner / lanes).next_multiple_of(WARP).min(ALONG);
    if shared.is_some() {
        code.reaches(count);
        let along = code.count(inner as u64);
        let (thread, block, row) = (code.thread(), code.block(), code.block_row());
        code.line(format!("const U i = ((U){block} * {threads} + {thread}) * {lanes};"));
        code.line(format!("if (i >= {along}) return;"));
        code.line(format!("const U a = {row} % {length}, o = {row} / {length}, e = {row} * {along} + i;"));
    } else {
        code.each(count);
        code.line(format!("const U i = e % {inner}, a = (e / {inner}) % {length}, o = e / {};", inner * length));
    }
    let target = code.output(to, storage, 0);
    let mut first = 0;
    for (number, (part, of)) in parts.iter().enumerate() {
        let own = part.view.shape[axis];
        if own == 0 {
            continue;
        }
        let runs = part.view.runs();
        code.reaches(reach(&runs));
        let source = code.input(part.place, *of, part.view.offset);
        let place = match &shared {
            Some(split) => format!("{} + {}", decode(&split[number].0, "s"), decode(&split[number].1, "i")),
            None => decode(&runs, &format!("(s * {inner} + i)")),
        };
        code.line(format!("if (a >= {first} && a < {}) {{", first + own));
        code.line(format!("const U s = o * {own} + (a - {first});"));
        if shared.is_some() && lanes > 1 {
            let c = storage.name();
            code.line(format!("{c} v[{lanes}];"));
            code.line(format!("load<{c}, {lanes}>({source} + ({place}), v);"));
            code.line(format!("store<{c}, {lanes}>({target} + e, v);"));
        } else {
            code.line(format!("{target}[e] = {source}[{place}];"));
        }
        code.line("}");
        first += own;
    }
    match shared {
        Some(_) => code.launch([inner.div_ceil(threads * lanes), places], threads as u32),
        None => code.launch_each(count),
    }
}

/// Returns the sum of padded parts (col2im).
///
///   y\[i\] = Σ of x\[(i − low) / (interior + 1)\] over the parts x that have such an element
///
/// Axes that a part fills need no bounds check. Sums are computed in the type of the graph.
pub fn pad_sum(
    dialect: Dialect,
    parts: &[((Elements, StorageType), &Padding)],
    shape: &[usize],
    dtype: DType,
    (to, storage): (Place, StorageType),
) -> Launch {
    let count = shape.iter().product();
    let mut code = Code::new(dialect);
    code.each(count);
    let (target, c) = (code.output(to, storage, 0), c_type(dtype));
    let mut inner = 1;
    for axis in (0..shape.len()).rev() {
        let place = if inner == 1 { "e".to_string() } else { format!("(e / {inner})") };
        let place = if axis == 0 { place } else { format!("({place} % {})", shape[axis]) };
        code.line(format!("const I i{axis} = (I){place};"));
        inner *= shape[axis];
    }
    code.line(format!("{c} sum = {c}(0);"));
    for ((from, of), Padding { low, interior }) in parts {
        code.reaches(reach(&from.view.runs()));
        let source = code.input(from.place, *of, from.view.offset);
        let (mut inside, mut terms) = (vec![], vec![]);
        for axis in 0..shape.len() {
            let (first, step, length) = (low[axis], interior[axis] + 1, from.view.shape[axis]);
            let place = if first == 0 { format!("i{axis}") } else { format!("(i{axis} - {first})") };
            if first > 0 {
                inside.push(format!("{place} >= 0"));
            }
            if step > 1 {
                inside.push(format!("{place} % {step} == 0"));
            }
            if first + length.saturating_sub(1) * step + 1 != shape[axis] || length == 0 {
                inside.push(format!("{place} < {}", length * step));
            }
            let place = if step > 1 { format!("{place} / {step}") } else { place };
            match from.view.strides[axis] {
                0 => {}
                1 => terms.push(place),
                stride => terms.push(format!("{place} * {stride}")),
            }
        }
        let condition = if inside.is_empty() { "true".to_string() } else { inside.join(" && ") };
        let place = if terms.is_empty() { "0".to_string() } else { terms.join(" + ") };
        // A single part is copied, preserving the sign of zeros.
        let how = if parts.len() == 1 { "=" } else { "+=" };
        code.line(format!("if ({condition}) sum {how} {source}[{place}];"));
    }
    code.line(format!("{target}[e] = sum;"));
    code.launch_each(count)
}
