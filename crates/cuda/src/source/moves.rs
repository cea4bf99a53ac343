//! Elements put into another order: copies of views, concatenation, padding.

use super::code::{Cell, Code, Launch, c_type, decode, reach};
use bilevel_graph::DType;
use bilevel_plan::{Place, Run, View};

/// Elements in memory: the place of their node, and which of its elements they are.
#[derive(Clone, Copy)]
pub(crate) struct Elements<'a> {
    pub place: Place,
    pub view: &'a View,
}

/// Elements of 32 bits in 16 bytes.
const WIDE: usize = 4;

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
    // Neighbours that become wider are fewer at once.
    let widens = cell == Cell::Bf16 && written.is_some();
    let lanes = lanes(&runs, from.view.offset, cell).min(if widens { WIDE } else { usize::MAX });
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

/// Puts elements that lie one after the other into the places of a view.
pub(crate) fn scattered(from: Place, dtype: DType, to: Elements) -> Launch {
    let (count, runs) = (to.view.count(), to.view.runs());
    let lanes = lanes(&runs, to.view.offset, dtype.into());
    let mut code = Code::default();
    code.reaches(reach(&runs));
    let c = c_type(dtype);
    code.each(count / lanes);
    let (source, target) = (code.pointer(from, dtype, 0), code.pointer(to.place, dtype, to.view.offset));
    code.line(format!("const U i = e * {lanes};"));
    code.line(format!("{c} v[{lanes}];"));
    code.line(format!("load<{c}, {lanes}>({source} + i, v);"));
    code.line(format!("store<{c}, {lanes}>({target} + ({}), v);", decode(&runs, "i")));
    code.launch_each(count / lanes)
}

/// Neighbours that can be moved at once: 16 bytes, where they are neighbours at both ends.
fn lanes(runs: &[Run], offset: isize, cell: Cell) -> usize {
    let lanes = 16 / cell.size();
    let whole = |n: isize| n % lanes as isize == 0;
    let aligned = runs.split_last().is_some_and(|(inner, outer)| {
        let beside = inner.stride == 1 && whole(inner.length as isize) && whole(offset);
        beside && outer.iter().all(|run| whole(run.stride))
    });
    if aligned { lanes } else { 1 }
}

/// The parts one after the other along an axis of the result.
pub(crate) fn concat(parts: &[Elements], axis: usize, shape: &[usize], dtype: DType, to: Place) -> Launch {
    let (inner, length) = (shape[axis + 1..].iter().product::<usize>(), shape[axis]);
    let count = shape.iter().product();
    let mut code = Code::default();
    code.each(count);
    let target = code.pointer(to, dtype, 0);
    code.line(format!("const U i = e % {inner}, a = (e / {inner}) % {length}, o = e / {};", inner * length));
    let mut first = 0;
    for part in parts {
        let own = part.view.shape[axis];
        if own == 0 {
            continue;
        }
        let runs = part.view.runs();
        code.reaches(reach(&runs));
        let source = code.pointer(part.place, dtype, part.view.offset);
        code.line(format!("if (a >= {first} && a < {}) {{", first + own));
        code.line(format!("const U s = (o * {own} + (a - {first})) * {inner} + i;"));
        code.line(format!("{target}[e] = {source}[{}];", decode(&runs, "s")));
        code.line("}");
        first += own;
    }
    code.launch_each(count)
}

/// y[low + i·(interior + 1)] = x[i], zero elsewhere.
pub(crate) fn pad(
    from: Elements,
    low: &[usize],
    interior: &[usize],
    shape: &[usize],
    dtype: DType,
    to: Place,
) -> Launch {
    let count = shape.iter().product();
    let mut code = Code::default();
    code.reaches(reach(&from.view.runs()));
    code.each(count);
    let (source, target) = (code.pointer(from.place, dtype, from.view.offset), code.pointer(to, dtype, 0));
    code.line("bool inside = true; I s = 0;");
    let mut inner = 1;
    for axis in (0..shape.len()).rev() {
        let step = interior[axis] + 1;
        let place = if inner == 1 { "e".to_string() } else { format!("(e / {inner})") };
        let place = if axis == 0 { place } else { format!("({place} % {})", shape[axis]) };
        code.line(format!("{{ const I c = (I){place} - {};", low[axis]));
        code.line(format!("inside = inside && c >= 0 && c % {step} == 0 && c / {step} < {};", from.view.shape[axis]));
        code.line(format!("s += c / {step} * {}; }}", from.view.strides[axis]));
        inner *= shape[axis];
    }
    code.line(format!("{target}[e] = inside ? {source}[s] : {}(0);", c_type(dtype)));
    code.launch_each(count)
}
