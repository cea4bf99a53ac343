//! Elements put into another order: copies of views, concatenation, padding.

use super::code::{Cell, Code, Launch, c_type, decode, reach};
use super::member::split;
use super::transpose::WIDE;
use bilevel_graph::DType;
use bilevel_plan::{Frame, Place, Run, View};

/// Elements in memory: the place of their node, and which of its elements they are.
#[derive(Clone, Copy)]
pub(crate) struct Elements<'a> {
    pub place: Place,
    pub view: &'a View,
}

/// Most neighbours across which an axis lies that go through shared memory, and the least length of that axis.
const MOST_SHORT: usize = 16;
const LEAST_LONG: usize = 32;

/// True where the elements of a view are gathered through shared memory.
pub(crate) fn is_interleaved(view: &View) -> bool {
    let runs = view.runs();
    Interleaved::of(&runs).is_some() || Crossed::of(&runs).is_some()
}

/// As [`gathered`], unless something failed before it.
pub(crate) fn gathered_if_fine(from: Elements, dtype: DType, to: Place) -> Launch {
    let mut code = Code::default();
    let error = code.error();
    code.head(format!("if (has_failed({error})) return;"));
    gathered_by(code, from, dtype.into(), to, None)
}

/// Puts the elements of a view one after the other; written as another type where one is named.
pub(crate) fn gathered(from: Elements, cell: impl Into<Cell>, to: Place, written: Option<&str>) -> Launch {
    gathered_by(Code::default(), from, cell.into(), to, written)
}

fn gathered_by(mut code: Code, from: Elements, cell: Cell, to: Place, written: Option<&str>) -> Launch {
    let (count, runs) = (from.view.count(), from.view.runs());
    if let Some(interleaved) = Interleaved::of(&runs) {
        code.reaches(reach(&runs));
        let as_type = written.unwrap_or(cell.name());
        let (source, target) = (code.pointer(from.place, cell, from.view.offset), code.raw_pointer(to, 0, as_type));
        let blocks = interleaved.begin(&mut code, count, cell.name());
        code.line(format!("for (U k = threadIdx.x; k < own; k += {ALONG}) held[k] = {source}[at + k];"));
        code.line("__syncthreads();");
        let value = format!("held[threadIdx.x * {} + j]", interleaved.short);
        let value = if written.is_some() { format!("round_to_{as_type}({value})") } else { value };
        code.lanes(interleaved.short, format!("if (here) {target}[dense + j * {}] = {value};", interleaved.long));
        return code.launch([blocks, 1], ALONG as u32);
    }
    if let Some(crossed) = Crossed::of(&runs) {
        code.reaches(reach(&runs));
        let as_type = written.unwrap_or(cell.name());
        let (source, target) = (code.pointer(from.place, cell, from.view.offset), code.raw_pointer(to, 0, as_type));
        let value = |held: &str| if written.is_some() { format!("round_to_{as_type}({held})") } else { held.into() };
        let blocks = crossed.begin(&mut code, count, cell.name());
        crossed.lines(&mut code, |held, place, _| format!("{held} = {source}[{place}];"));
        code.line("__syncthreads();");
        crossed.columns(&mut code, |held, _, dense| format!("{target}[{dense}] = {};", value(held)));
        return code.launch([blocks, 1], ALONG as u32);
    }
    // Neighbours that become wider are fewer at once.
    let widens = cell == Cell::Bf16 && written.is_some();
    let lanes = beside(&runs, from.view.offset, cell).min(if widens { WIDE } else { usize::MAX });
    code.reaches(reach(&runs));
    let c = cell.name();
    let as_type = written.unwrap_or(c);
    code.each(count / lanes);
    let (source, target) = (code.pointer(from.place, cell, from.view.offset), code.raw_pointer(to, 0, as_type));
    if lanes == 1 {
        let value = format!("{source}[{}]", decode(&runs, "e"));
        let value = if written.is_some() { format!("round_to_{as_type}({value})") } else { value };
        code.line(format!("{target}[e] = {value};"));
    } else {
        code.line(format!("const U i = e * {lanes};"));
        code.line(format!("{c} v[{lanes}]; {as_type} w[{lanes}];"));
        code.line(format!("load<{c}, {lanes}>({source} + ({}), v);", decode(&runs, "i")));
        let value = if written.is_some() { format!("round_to_{as_type}(v[j])") } else { "v[j]".into() };
        code.lanes(lanes, format!("w[j] = {value};"));
        code.line(format!("store<{as_type}, {lanes}>({target} + i, w);"));
    }
    code.launch_each(count / lanes)
}

/// Puts elements that lie one after the other into the places of a view, whose elements may have two bytes where those have four: they are
/// rounded then.
pub(crate) fn scattered((from, cell): (Place, Cell), to: Elements, written: Cell) -> Launch {
    let (count, runs) = (to.view.count(), to.view.runs());
    let at_once = |cell: Cell| beside(&runs, to.view.offset, cell);
    let mut code = Code::default();
    code.reaches(reach(&runs));
    let (source, target) = (code.pointer(from, cell, 0), code.pointer(to.place, written, to.view.offset));
    if let Some(interleaved) = Interleaved::of(&runs) {
        let blocks = interleaved.begin(&mut code, count, written.name());
        let held = format!("held[threadIdx.x * {} + j]", interleaved.short);
        code.lanes(interleaved.short, format!("if (here) {held} = {source}[dense + j * {}];", interleaved.long));
        code.line("__syncthreads();");
        code.line(format!("for (U k = threadIdx.x; k < own; k += {ALONG}) {target}[at + k] = held[k];"));
        return code.launch([blocks, 1], ALONG as u32);
    }
    if let Some(crossed) = Crossed::of(&runs) {
        let blocks = crossed.begin(&mut code, count, written.name());
        crossed.columns(&mut code, |held, _, dense| format!("{held} = {source}[{dense}];"));
        code.line("__syncthreads();");
        crossed.lines(&mut code, |held, place, _| format!("{target}[{place}] = {held};"));
        return code.launch([blocks, 1], ALONG as u32);
    }
    let lanes = at_once(cell).min(at_once(written));
    code.each(count / lanes);
    let (c, w) = (cell.name(), written.name());
    code.line(format!("const U i = e * {lanes};"));
    code.line(format!("{c} v[{lanes}]; {w} w[{lanes}];"));
    code.line(format!("load<{c}, {lanes}>({source} + i, v);"));
    code.lanes(lanes, "w[j] = v[j];");
    code.line(format!("store<{w}, {lanes}>({target} + ({}), w);", decode(&runs, "i")));
    code.launch_each(count / lanes)
}

/// Few neighbours in the memory of a view whose last axis lies across them, as the places of a kernel do whose channels come last elsewhere.
/// They go through shared memory, so that whole lines are moved at both ends.
///
///   view\[o, j, i\] = memory\[outer(o) + i·short + j\],   j < short, i < long
struct Interleaved<'a> {
    outer: &'a [Run],
    short: usize,
    long: usize,
}

impl<'a> Interleaved<'a> {
    fn of(runs: &'a [Run]) -> Option<Self> {
        let [outer @ .., few, many] = runs else { return None };
        let lies = few.stride == 1 && many.stride == few.length as isize;
        (lies && few.length <= MOST_SHORT && many.length >= LEAST_LONG).then_some(Interleaved {
            outer,
            short: few.length,
            long: many.length,
        })
    }

    /// Shares `count` elements out among blocks, whose number it returns. In the memory of the view, those of a block are the `own` elements
    /// from `at` on, which `held` has room for; in the order of the view, the first of a thread that is `here` has the number `dense`.
    fn begin(&self, code: &mut Code, count: usize, c: &str) -> usize {
        let Interleaved { outer, short, long } = *self;
        let parts = long.div_ceil(ALONG);
        code.line(format!("__shared__ {c} held[{}];", short * ALONG));
        code.line(format!("const U o = blockIdx.x / {parts}, i = blockIdx.x % {parts} * {ALONG};"));
        code.line(format!("const U own = ({long} - i < {ALONG} ? {long} - i : {ALONG}) * {short};"));
        code.line(format!("const I at = {} + (I)i * {short};", decode(outer, "o")));
        code.line(format!("const bool here = i + threadIdx.x < {long};"));
        code.line(format!("const U dense = o * {} + i + threadIdx.x;", short * long));
        count / (short * long) * parts
    }
}

/// Side of a square of shared memory.
const SIDE: usize = 32;

/// Many neighbours in the memory of a view whose last axis lies across them, as the channels of an image do. They go through squares of shared
/// memory, for the same reason.
///
///   view\[o, j, i\] = memory\[outer(o) + i·length + j\],   j < length, i < count
struct Crossed<'a> {
    outer: &'a [Run],
    length: usize,
    count: usize,
}

impl<'a> Crossed<'a> {
    fn of(runs: &'a [Run]) -> Option<Self> {
        let [outer @ .., along, across] = runs else { return None };
        let lies = along.stride == 1 && across.stride == along.length as isize;
        let large = along.length > MOST_SHORT && across.length > MOST_SHORT;
        (lies && large).then_some(Crossed { outer, length: along.length, count: across.length })
    }

    /// Shares `elements` out among blocks, whose number it returns: each has the square at line `top` and column `left` of the memory that
    /// begins `at`, where the view has its elements from `first` on.
    fn begin(&self, code: &mut Code, elements: usize, c: &str) -> usize {
        let Crossed { outer, length, count } = *self;
        let (across, down) = (length.div_ceil(SIDE), count.div_ceil(SIDE));
        let squares = across * down;
        // One more in a line, so that the elements of a column lie in different banks.
        code.line(format!("__shared__ {c} square[{SIDE}][{SIDE} + 1];"));
        code.line(format!("const U o = blockIdx.x / {squares}, left = blockIdx.x % {across} * {SIDE};"));
        code.line(format!("const U top = blockIdx.x % {squares} / {across} * {SIDE}, first = o * {};", length * count));
        code.line(format!("const U x = threadIdx.x % {SIDE}, y = threadIdx.x / {SIDE};"));
        code.line(format!("const I at = {};", decode(outer, "o")));
        elements / (length * count) * squares
    }

    /// Does something with the square along the lines of the memory: told what holds an element, and its place there and in the view.
    fn lines(&self, code: &mut Code, make: impl Fn(&str, &str, &str) -> String) {
        self.each(code, ["top + y + t", "left + x"], "square[y + t][x]", make);
    }

    /// The same along its columns.
    fn columns(&self, code: &mut Code, make: impl Fn(&str, &str, &str) -> String) {
        self.each(code, ["top + x", "left + y + t"], "square[x][y + t]", make);
    }

    fn each(&self, code: &mut Code, [line, column]: [&str; 2], held: &str, make: impl Fn(&str, &str, &str) -> String) {
        let Crossed { length, count, .. } = *self;
        let (place, dense) = (format!("at + (I)(i * {length} + k)"), format!("first + k * {count} + i"));
        code.line(format!("#pragma unroll\n    for (int t = 0; t < {SIDE}; t += {}) {{", ALONG / SIDE));
        code.line(format!("const U i = {line}, k = {column};"));
        code.line(format!("if (i < {count} && k < {length}) {}", make(held, &place, &dense)));
        code.line("}");
    }
}

/// Neighbours that can be moved at once: 16 bytes, where they are neighbours at both ends.
pub(super) fn beside(runs: &[Run], offset: isize, cell: Cell) -> usize {
    let lanes = 16 / cell.size();
    let whole = |n: isize| n % lanes as isize == 0;
    let aligned = runs.split_last().is_some_and(|(inner, outer)| {
        inner.stride == 1 && whole(inner.length as isize) && whole(offset) && outer.iter().all(|run| whole(run.stride))
    });
    if aligned { lanes } else { 1 }
}

/// Threads of a block that share a place along an axis, and most of such places in a grid.
const ALONG: usize = 256;
const MOST_PLACES: usize = 65535;

/// The parts one after the other along an axis of the result. Where enough elements share a place along that axis, so does a block, and
/// all its threads read the same part. A part of two bytes may be among others of four.
pub(crate) fn concat(parts: &[(Elements, Cell)], axis: usize, shape: &[usize], (to, cell): (Place, Cell)) -> Launch {
    let (inner, length) = (shape[axis + 1..].iter().product::<usize>(), shape[axis]);
    let places = shape[..=axis].iter().product::<usize>();
    let count = places * inner;
    let mut code = Code::default();
    let split: Option<Vec<_>> = parts.iter().map(|(part, _)| split(&part.view.runs(), inner)).collect();
    let shared = split.filter(|_| inner >= ALONG && places <= MOST_PLACES);
    let at_once = |(part, of): &(Elements, Cell)| {
        if *of == cell { beside(&part.view.runs(), part.view.offset, cell) } else { 1 }
    };
    // Neighbours of a thread, where a block has a place.
    let whole = inner.is_multiple_of(16 / cell.size());
    let lanes = if whole { parts.iter().map(at_once).min().unwrap_or(1) } else { 1 };
    let threads = (inner / lanes).next_multiple_of(32).min(ALONG);
    if shared.is_some() {
        code.reaches(count);
        let along = code.count(inner as u64);
        code.line(format!("const U i = ((U)blockIdx.x * {threads} + threadIdx.x) * {lanes};"));
        code.line(format!("if (i >= {along}) return;"));
        code.line(format!(
            "const U a = blockIdx.y % {length}, o = blockIdx.y / {length}, e = blockIdx.y * {along} + i;"
        ));
    } else {
        code.each(count);
        code.line(format!("const U i = e % {inner}, a = (e / {inner}) % {length}, o = e / {};", inner * length));
    }
    let target = code.pointer(to, cell, 0);
    let mut first = 0;
    for (number, (part, of)) in parts.iter().enumerate() {
        let own = part.view.shape[axis];
        if own == 0 {
            continue;
        }
        let runs = part.view.runs();
        code.reaches(reach(&runs));
        let source = code.pointer(part.place, *of, part.view.offset);
        let place = match &shared {
            Some(split) => format!("{} + {}", decode(&split[number].0, "s"), decode(&split[number].1, "i")),
            None => decode(&runs, &format!("(s * {inner} + i)")),
        };
        code.line(format!("if (a >= {first} && a < {}) {{", first + own));
        code.line(format!("const U s = o * {own} + (a - {first});"));
        if shared.is_some() && lanes > 1 {
            let c = cell.name();
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

/// The sum of parts, of which each lies among zeros.
///
///   y[i] = Σ of x[(i − low) / (interior + 1)] over the parts x that have such an element
///
/// Along an axis that a part fills, nothing need be asked. Sums are made in the type of the graph.
pub(crate) fn overlay(
    parts: &[((Elements, Cell), &Frame)],
    shape: &[usize],
    dtype: DType,
    (to, cell): (Place, Cell),
) -> Launch {
    let count = shape.iter().product();
    let mut code = Code::default();
    code.each(count);
    let (target, c) = (code.pointer(to, cell, 0), c_type(dtype));
    let mut inner = 1;
    for axis in (0..shape.len()).rev() {
        let place = if inner == 1 { "e".to_string() } else { format!("(e / {inner})") };
        let place = if axis == 0 { place } else { format!("({place} % {})", shape[axis]) };
        code.line(format!("const I i{axis} = (I){place};"));
        inner *= shape[axis];
    }
    code.line(format!("{c} sum = {c}(0);"));
    for ((from, of), Frame { low, interior }) in parts {
        code.reaches(reach(&from.view.runs()));
        let source = code.pointer(from.place, *of, from.view.offset);
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
        // A single part is copied, with the sign of its zeros.
        let how = if parts.len() == 1 { "=" } else { "+=" };
        code.line(format!("if ({condition}) sum {how} {source}[{place}];"));
    }
    code.line(format!("{target}[e] = sum;"));
    code.launch_each(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_plan::Region;

    const FLOAT: Cell = Cell::Of(DType::F32);

    #[test]
    fn the_places_of_a_kernel_go_through_shared_memory() {
        let place = Place { region: Region::Arena, offset: 0 };
        let blocks = |shape: &[usize], order: &[usize]| {
            let view = View::contiguous(shape).transpose(order);
            let moved = Elements { place, view: &view };
            let launches = [gathered(moved, DType::F32, place, None), scattered((place, FLOAT), moved, FLOAT)];
            launches.map(|launch| launch.source.contains("held").then_some(launch.grid[0]))
        };
        assert_eq!(blocks(&[8, 40, 3, 3], &[0, 2, 3, 1]), [Some(8); 2]);
        assert_eq!(blocks(&[8, 600, 3], &[0, 2, 1]), [Some(24); 2], "three parts of 256 channels at most");
        assert_eq!(blocks(&[8, 31, 3, 3], &[0, 2, 3, 1]), [None; 2], "too few channels to be worth it");
        assert_eq!(blocks(&[8, 40, 17], &[0, 2, 1]), [None; 2], "too many places for shared memory");
    }
}
