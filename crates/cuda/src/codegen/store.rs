//! Stores of a thread's lanes to a row in memory or shared memory, vectorised if lanes are contiguous.

use crate::codegen::kernel::{Cell, Code};
use crate::codegen::thread_mapping::ThreadMapping;

/// Stores lanes, with the expression `lane` of lane j, to the row at the pointer `row`, if inside the row and if these
/// conditions hold. Rows are aligned to the vector width of the mapping.
pub(crate) fn put(code: &mut Code, mapping: ThreadMapping, (row, cell): (&str, Cell), lane: &str, conditions: &[&str]) {
    let inside = mapping.inside();
    let all: Vec<&str> = conditions.iter().copied().chain(inside.as_deref()).collect();
    let when = if all.is_empty() { String::new() } else { format!("if ({}) ", all.join(" && ")) };
    let column = mapping.own_column();
    match (cell.at_once(mapping.beside()), lane.strip_suffix("[j]")) {
        (1, _) | (_, None) => code.lanes(mapping.lanes(), format!("{when}*({row} + {column}) = {lane};")),
        (at_once, Some(_)) => {
            let store = cell.store(at_once);
            code.every(at_once, mapping.lanes(), format!("{when}{store}({row} + {column}, &{lane});"));
        }
    }
}
