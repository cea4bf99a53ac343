//! How the lanes of a thread are written to a row, in memory or in shared memory: neighbours at once, where a value has
//! them side by side.

use crate::codegen::kernel::{Cell, Code};
use crate::codegen::thread_mapping::ThreadMapping;

/// Writes lanes, of which `lane` is the text of lane j, to the row that begins at the pointer `row`: those that are
/// inside, where these conditions hold. Rows begin at multiples of as many elements as the walk has side by side.
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
