//! Rows that a block reads while it computes the ones before them.

use crate::codegen::kernel::Code;

/// What is read of a row before anything is computed of it.
#[derive(Default)]
pub(crate) struct Prefetch {
    /// Registers that are left for it.
    pub registers: usize,
    /// Nothing is read ahead but what is the same for all rows.
    pub only_same: bool,
    /// What is read, in order.
    pub parts: Vec<PrefetchedValue>,
}

/// A part of it.
pub(crate) struct PrefetchedValue {
    /// Its name, and the C type of its numbers.
    pub name: String,
    pub c: &'static str,
    /// How many they are, where they are several.
    pub lanes: Option<usize>,
    /// The text that reads it into what was declared.
    pub text: String,
    /// It is the same for all rows.
    pub same: bool,
}

impl PrefetchedValue {
    /// The text that reads it of the row after the one at hand.
    fn of_next(&self) -> String {
        let PrefetchedValue { name, lanes, text, .. } = self;
        let end = if lanes.is_some() { "[" } else { " =" };
        text.replace(&format!("{name}{end}"), &format!("next_{name}{end}"))
    }
}

/// Before the loop over rows: what is the same for all, where nothing else is read ahead.
pub(crate) fn same(code: &mut Code, prefetch: &[PrefetchedValue]) {
    for PrefetchedValue { name, c, lanes, text, .. } in prefetch {
        code.line(format!("{c} {name}{};", lanes.map_or(String::new(), |lanes| format!("[{lanes}]"))));
        code.line(text);
    }
}

/// Before the loop over rows: what is the same for all, and what is read of the first, which is found by the lines
/// `start` from `turn`.
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

/// At the beginning of a row: what was read of it, and what is read of the next, where there is one.
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
    // The lines that find a row read `turn`.
    code.line("const U after = turn + gridDim.x, turn = after;");
    start.iter().for_each(|line| code.line(line));
    changing().for_each(|part| code.line(part.of_next()));
    code.line("}");
}
