//! Prefetching: a block loads the next row into registers while it computes the current one.

use crate::codegen::kernel::{Code, Stmt};

/// The loads of a row that are issued before it is computed.
#[derive(Default)]
pub struct Prefetch {
    /// The registers left for prefetching.
    pub registers: usize,
    /// Whether only row-invariant values are prefetched.
    pub only_same: bool,
    /// The prefetched values, in order.
    pub parts: Vec<PrefetchedValue>,
}

/// A prefetched value.
pub struct PrefetchedValue {
    /// Its variable.
    pub name: String,
    /// Its C type.
    pub c: &'static str,
    /// The number of lanes, if it is an array.
    pub lanes: Option<usize>,
    /// The statements that load it: for the next row, or once if it is the same for all rows.
    pub load: Vec<Stmt>,
    /// Whether it is the same for all rows.
    pub same: bool,
}

/// Returns the variable of a value of the next row.
pub fn next_of(name: &str) -> String {
    format!("next_{name}")
}

impl PrefetchedValue {
    /// Returns the variable that its load sets.
    fn target(&self) -> String {
        if self.same { self.name.clone() } else { next_of(&self.name) }
    }

    /// Returns the statement that declares this variable.
    fn declaration(&self) -> String {
        format!("{} {}{};", self.c, self.target(), self.lanes.map_or(String::new(), |lanes| format!("[{lanes}]")))
    }
}

/// Emits row-invariant loads before the loop over rows, if nothing else is prefetched.
pub fn same(code: &mut Code, prefetch: &[PrefetchedValue]) {
    for part in prefetch {
        code.line(part.declaration());
        code.append(part.load.clone());
    }
}

/// Emits row-invariant loads, and those of the first row, before the loop over rows. The lines `start` compute the row
/// from `turn`.
pub fn first(code: &mut Code, prefetch: &[PrefetchedValue], start: &[String]) {
    prefetch.iter().for_each(|part| code.line(part.declaration()));
    code.line("{");
    code.line(format!("const U turn = {};", code.block()));
    start.iter().for_each(|line| code.line(line));
    prefetch.iter().for_each(|part| code.append(part.load.clone()));
    code.line("}");
}

/// Emits, at the start of a row, its prefetched values and the loads of the next row. The next row exists if
/// `(turn + the number of blocks) exists` holds.
pub fn next(code: &mut Code, prefetch: &[PrefetchedValue], start: &[String], exists: &str) {
    let changing = || prefetch.iter().filter(|part| !part.same);
    for PrefetchedValue { name, c, lanes, .. } in changing() {
        let next = next_of(name);
        match lanes {
            Some(lanes) => {
                code.line(format!("{c} {name}[{lanes}];"));
                code.lanes(*lanes, format!("{name}[j] = {next}[j];"));
            }
            None => code.line(format!("const {c} {name} = {next};")),
        }
    }
    code.with_blocks("if ((turn + ", format!("){exists}) {{"));
    // The lines that compute a row read `turn`.
    code.with_blocks("const U after = turn + ", ", turn = after;");
    start.iter().for_each(|line| code.line(line));
    changing().for_each(|part| code.append(part.load.clone()));
    code.line("}");
}
