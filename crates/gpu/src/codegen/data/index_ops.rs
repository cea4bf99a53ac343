//! Gather, scatter-add, window argmax, cumulative sum and index checks, on dense operands.

use crate::codegen::kernel::{Code, Launch, c_type};
use crate::codegen::limits::VECTOR_BYTES;
use crate::codegen::renderer::Dialect;
use bilevel_graph::{DType, WindowDims};
use bilevel_plan::{IndexDims, Place};

/// Up to this many updates, every result scans all of them.
const MAX_SCANNED_UPDATES: usize = 32;

/// Returns the bytes of the linked lists of a scatter: a head per result, and a link per update.
pub fn list_bytes(rows: IndexDims) -> usize {
    if rows.k <= MAX_SCANNED_UPDATES { 0 } else { 4 * (rows.batch * rows.n + rows.batch * rows.k) }
}

/// Reports indices that are not in 0..limit.
pub fn check_index(dialect: Dialect, indices: Place, count: usize, limit: usize, operation: usize) -> Launch {
    let mut code = Code::new(dialect);
    code.each(count);
    let (at, limit) = (code.input(indices, DType::I32, 0), code.count(limit as u64));
    let report = code.report(operation, "e", "index");
    code.line(format!("const int index = {at}[e];"));
    code.line(format!("if (index < 0 || (U)index >= {limit}) {report}"));
    code.launch_each(count)
}

/// to[b, k, :] = x[b, indices[b, k], :]. The row of an index out of range is 0, and the operation reports it.
pub fn gather(
    dialect: Dialect,
    rows: IndexDims,
    dtype: DType,
    (x, indices, to): (Place, Place, Place),
    operation: Option<usize>,
) -> Launch {
    let lanes = VECTOR_BYTES / dtype.size();
    let lanes = if rows.inner.is_multiple_of(lanes) { lanes } else { 1 };
    let count = rows.batch * rows.k * rows.inner / lanes;
    let mut code = Code::new(dialect);
    code.reaches(rows.batch * rows.n * rows.inner);
    code.each(count);
    let c = c_type(dtype);
    let (x, at, to) = (code.input(x, dtype, 0), code.input(indices, DType::I32, 0), code.output(to, dtype, 0));
    let [k, n, inner] = [rows.k, rows.n, rows.inner / lanes].map(|length| code.count(length as u64));
    code.line(format!("const U unit = e / {inner}, i = e % {inner};"));
    code.line(format!("const int index = {at}[unit];"));
    code.line(format!("const bool fine = index >= 0 && (U)index < {n};"));
    if let Some(operation) = operation {
        let report = code.report(operation, "unit", "index");
        code.line(format!("if (!fine && i == 0) {report}"));
    }
    code.line(format!("{c} v[{lanes}];"));
    code.lanes(lanes, format!("v[j] = {c}(0);"));
    let from = format!("{x} + ((unit / {k} * {n} + (U)index) * {inner} + i) * {lanes}");
    code.line(format!("if (fine) load<{c}, {lanes}>({from}, v);"));
    code.line(format!("store<{c}, {lanes}>({to} + e * {lanes}, v);"));
    code.launch_each(count)
}

/// to[b, indices[b, k], :] += updates[b, k, :], into zeros. Updates of one row are added in the order of k: each result
/// walks its list or, if it is long, scans all updates.
pub fn scatter_add(
    dialect: Dialect,
    rows: IndexDims,
    dtype: DType,
    places: (Place, Place, Place),
    lists: Place,
) -> Vec<Launch> {
    let mut launches = listed(dialect, rows, places.0, lists);
    let count = rows.batch * rows.n * rows.inner;
    let mut sums = ScatterSums::new(dialect, rows, dtype, (places, lists), count);
    let (inner, n) = (&sums.inner, &sums.n);
    let own = format!("const U i = e % {inner}, row = e / {inner}, b = row / {n}; const int own = (int)(row % {n});");
    sums.code.line(own);
    sums.add_up("0");
    sums.code.line(format!("{}[e] = sum;", sums.to));
    launches.push(sums.code.launch_each(count));
    launches
}

/// to[b, indices[b, k], :] += updates[b, k, :], in place unless a check has failed. Updates of one row are added in the
/// order of k by one of its threads; no other row is touched.
pub fn add_rows(
    dialect: Dialect,
    rows: IndexDims,
    dtype: DType,
    places: (Place, Place, Place),
    lists: Place,
) -> Vec<Launch> {
    let mut launches = listed(dialect, rows, places.0, lists);
    let count = rows.batch * rows.k * rows.inner;
    let mut sums = ScatterSums::new(dialect, rows, dtype, (places, lists), count);
    sums.code.in_out(places.2, dtype, 0);
    sums.code.stop_after_report();
    let ScatterSums { at, inner, n, k, heads, .. } = &sums;
    let mut lines = vec![
        format!("const U i = e % {inner}, unit = e / {inner}, b = unit / {k};"),
        format!("const int own = {at}[unit];"),
        format!("if (own < 0 || (U)own >= {n}) return;"),
        format!("const U row = b * {n} + (U)own;"),
    ];
    lines.push(match heads {
        Some(heads) => format!("if ({heads}[row] != (int)(unit % {k})) return;"),
        None => format!("for (U u = b * {k}; u < unit; ++u) if ({at}[u] == own) return;"),
    });
    lines.iter().for_each(|line| sums.code.line(line));
    let place = format!("{}[row * {} + i]", sums.to, sums.inner);
    sums.add_up(&place);
    sums.code.line(format!("{place} = sum;"));
    launches.push(sums.code.launch_each(count));
    launches
}

/// Builds the lists of updates per row, in arbitrary order, if there are many.
fn listed(dialect: Dialect, rows: IndexDims, indices: Place, lists: Place) -> Vec<Launch> {
    let IndexDims { batch, n, k, .. } = rows;
    if k <= MAX_SCANNED_UPDATES {
        return vec![];
    }
    let mut code = Code::new(dialect);
    code.each(batch * n);
    let heads = code.output(lists, DType::I32, 0);
    code.line(format!("{heads}[e] = -1;"));
    let empty = code.launch_each(batch * n);
    let mut code = Code::new(dialect);
    code.each(batch * k);
    let (heads, next) = (code.in_out(lists, DType::I32, 0), code.output(nexts(rows, lists), DType::I32, 0));
    let (at, k, n) = (code.input(indices, DType::I32, 0), code.count(k as u64), code.count(n as u64));
    let exchange = code.atomic_exchange();
    code.line(format!("const int index = {at}[e];"));
    code.line(format!("if (index >= 0 && (U)index < {n})"));
    code.line(format!("    {next}[e] = {exchange}({heads} + (e / {k} * {n} + (U)index), (int)(e % {k}));"));
    vec![empty, code.launch_each(batch * rows.k)]
}

/// Returns the address of the links.
fn nexts(rows: IndexDims, lists: Place) -> Place {
    Place { offset: lists.offset + 4 * rows.batch * rows.n, ..lists }
}

/// A kernel that sums the updates of rows, with the names of its arguments.
struct ScatterSums {
    code: Code,
    c: &'static str,
    at: String,
    from: String,
    to: String,
    k: String,
    n: String,
    inner: String,
    /// The heads and links of the lists, if there are any.
    heads: Option<String>,
    next: Option<String>,
}

impl ScatterSums {
    /// Creates it with a thread for each of this many elements.
    fn new(
        dialect: Dialect,
        rows: IndexDims,
        dtype: DType,
        ((indices, updates, to), lists): ((Place, Place, Place), Place),
        count: usize,
    ) -> Self {
        let IndexDims { batch, n, k, inner } = rows;
        let mut code = Code::new(dialect);
        code.reaches(batch * n.max(k) * inner);
        code.each(count);
        let (at, from, to) =
            (code.input(indices, DType::I32, 0), code.input(updates, dtype, 0), code.output(to, dtype, 0));
        let [k_count, n, inner] = [k, n, inner].map(|length| code.count(length as u64));
        let heads = (k > MAX_SCANNED_UPDATES).then(|| code.input(lists, DType::I32, 0));
        let next = (k > MAX_SCANNED_UPDATES).then(|| code.input(nexts(rows, lists), DType::I32, 0));
        ScatterSums { code, c: c_type(dtype), at, from, to, k: k_count, n, inner, heads, next }
    }

    /// Emits the sum of the updates of row `own` of batch `b`, in column `i`, starting from this value.
    fn add_up(&mut self, first: &str) {
        let ScatterSums { code, c, at, from, k, inner, heads, next, .. } = self;
        code.line(format!("const int* at = {at} + b * {k};"));
        code.line(format!("const {c}* from = {from} + b * {k} * {inner} + i;"));
        code.line(format!("{c} sum = {c}({first});"));
        let scan = format!("for (U u = 0; u < {k}; ++u) if (at[u] == own) sum = op_add(sum, from[u * {inner}]);");
        let (Some(heads), Some(next)) = (heads, next) else { return code.line(scan) };
        // A short list is sorted, because its order is arbitrary.
        code.line(format!("int list[{MAX_SCANNED_UPDATES}], length = 0;"));
        code.line(format!("int u = {heads}[row];"));
        code.line(format!("for (; u >= 0 && length < {MAX_SCANNED_UPDATES}; u = {next}[b * {k} + u]) {{"));
        code.line("    int place = length++;");
        code.line("    for (; place > 0 && list[place - 1] > u; --place) list[place] = list[place - 1];");
        code.line("    list[place] = u;");
        code.line("}");
        code.line(format!("if (u >= 0) {{ {scan} }}"));
        code.line(format!("else for (int i = 0; i < length; ++i) sum = op_add(sum, from[(U)list[i] * {inner}]);"));
    }
}

/// For every window of every plane `[h, w]`: the flat index of its first largest element; a NaN is the largest.
pub fn window_argmax(
    dialect: Dialect,
    dims: &WindowDims,
    dtype: DType,
    (planes, h, w, oh, ow): (usize, usize, usize, usize, usize),
    x: Place,
    to: Place,
) -> Launch {
    let count = planes * oh * ow;
    let mut code = Code::new(dialect);
    code.reaches(planes * h * w);
    code.each(count);
    let (c, x, to) = (c_type(dtype), code.input(x, dtype, 0), code.output(to, DType::I32, 0));
    let [(top, _), (left, _)] = dims.padding;
    code.line(format!("const int ox = (int)(e % {ow}), oy = (int)(e / {ow} % {oh});"));
    code.line(format!("const {c}* plane = {x} + e / {} * {};", oh * ow, h * w));
    code.line(format!("int best = 0; {c} value = Least<{c}>::value(); bool any = false;"));
    code.line(format!(
        "for (int ky = 0; ky < {}; ++ky) for (int kx = 0; kx < {}; ++kx) {{",
        dims.size[0], dims.size[1]
    ));
    code.line(format!(
        "    const int y = oy * {} + ky - {top}, x = ox * {} + kx - {left};",
        dims.stride[0], dims.stride[1]
    ));
    code.line(format!("    if (y < 0 || y >= {h} || x < 0 || x >= {w}) continue;"));
    code.line(format!("    const {c} v = plane[y * {w} + x];"));
    code.line("    if (any && !(v > value || (v != v && value == value))) continue;");
    code.line(format!("    best = y * {w} + x, value = v, any = true;"));
    code.line("}");
    code.line(format!("{to}[e] = best;"));
    code.launch_each(count)
}

/// Cumulative sums along the middle axis of `[outer, n, inner]`.
pub fn cumsum(
    dialect: Dialect,
    (outer, n, inner): (usize, usize, usize),
    reverse: bool,
    dtype: DType,
    x: Place,
    to: Place,
) -> Launch {
    let mut code = Code::new(dialect);
    code.reaches(outer * n * inner);
    code.each(outer * inner);
    let (c, x, to) = (c_type(dtype), code.input(x, dtype, 0), code.output(to, dtype, 0));
    let (n, columns) = (code.count(n as u64), code.count(inner as u64));
    let step = if reverse { format!("({n} - 1 - i)") } else { "i".into() };
    code.line(format!("const U first = e / {columns} * {n} * {columns} + e % {columns};"));
    code.line(format!("{c} sum = {c}(0);"));
    code.line(format!("for (U i = 0; i < {n}; ++i) {{"));
    code.line(format!("    sum = op_add(sum, {x}[first + {step} * {columns}]);"));
    code.line(format!("    {to}[first + {step} * {columns}] = sum;"));
    code.line("}");
    code.launch_each(outer * inner)
}
