//! Prefetching: a block loads the next row into registers while it computes the current one.

use crate::codegen::kernel::Code;

/// The loads of a row that are issued before it is computed.
#[derive(Default)]
pub(crate) struct Prefetch {
    /// The registers left for prefetching.
    pub registers: usize,
    /// Whether only row-invariant values are prefetched.
    pub only_same: bool,
    /// The prefetched values, in order.
    pub parts: Vec<PrefetchedValue>,
}

/// A prefetched value.
pub(crate) struct PrefetchedValue {
    /// Its variable and C type.
    pub name: String,
    pub c: &'static str,
    /// The number of lanes, if it is an array.
    pub lanes: Option<usize>,
    /// The statement that loads it.
    pub text: String,
    /// Whether it is the same for all rows.
    pub same: bool,
}

impl PrefetchedValue {
    /// Returns the statement that loads it for the next row.
    fn of_next(&self) -> String {
        let PrefetchedValue { name, lanes, text, .. } = self;
        let end = if lanes.is_some() { "[" } else { " =" };
        text.replace(&format!("{name}{end}"), &format!("next_{name}{end}"))
    }
}

/// Emits row-invariant loads before the loop over rows, if nothing else is prefetched.
pub(crate) fn same(code: &mut Code, prefetch: &[PrefetchedValue]) {
    for PrefetchedValue { name, c, lanes, text, .. } in prefetch {
        code.line(format!("{c} {name}{};", lanes.map_or(String::new(), |lanes| format!("[{lanes}]"))));
        code.line(text);
    }
}

/// Emits row-invariant loads, and those of the first row, before the loop over rows. The lines `start` compute the row
/// from `turn`.
pub(crate) fn first(code: &mut Code, prefetch: &[PrefetchedValue], start: &[String]) {
    for PrefetchedValue { name, c, lanes, same, .. } in prefetch {
        let (next, size) =
            (if *same { "" } else { "next_" }, lanes.map_or(String::new(), |lanes| format!("[{lanes}]")));
        code.line(format!("{c} {next}{name}{size};"));
    }
    code.line("{");
    code.line("const U turn = blockIdx.x;");
    start.iter().for_each(|line| code.line(line));
    prefetch.iter().for_each(|part| code.line(if part.same { part.text.clone() } else { part.of_next() }));
    code.line("}");
}

/// Emits, at the start of a row, its prefetched values and the loads of the next row.
pub(crate) fn next(code: &mut Code, prefetch: &[PrefetchedValue], start: &[String], there_is_one: &str) {
    let changing = || prefetch.iter().filter(|part| !part.same);
    for PrefetchedValue { name, c, lanes, .. } in changing() {
        match lanes {
            Some(lanes) => {
                code.line(format!("{c} {name}[{lanes}];"));
                code.lanes(*lanes, format!("{name}[j] = next_{name}[j];"));
            }
            None => code.line(format!("const {c} {name} = next_{name};")),
        }
    }
    code.line(format!("if ({there_is_one}) {{"));
    // The lines that compute a row read `turn`.
    code.line("const U after = turn + gridDim.x, turn = after;");
    start.iter().for_each(|line| code.line(line));
    changing().for_each(|part| code.line(part.of_next()));
    code.line("}");
}
