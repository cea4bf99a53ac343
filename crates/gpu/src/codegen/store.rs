//! Stores of a thread's lanes to a row in memory or shared memory, vectorised if lanes are contiguous.

use crate::codegen::kernel::{CStorage, Code, Value};
use crate::codegen::thread_mapping::ThreadMapping;
use bilevel_plan::StorageType;

/// Stores the lanes of a value to the row at the pointer `row`, if inside the row and if these
/// conditions hold. Rows are aligned to the vector width of the mapping.
pub fn put(
    code: &mut Code,
    mapping: ThreadMapping,
    (row, storage): (&str, StorageType),
    value: &Value,
    conditions: &[&str],
) {
    let inside = mapping.inside();
    let all: Vec<&str> = conditions.iter().copied().chain(inside.as_deref()).collect();
    let when = if all.is_empty() { String::new() } else { format!("if ({}) ", all.join(" && ")) };
    let column = mapping.own_column();
    match (storage.at_once(mapping.beside()), value) {
        (1, _) | (_, Value::One(_)) => {
            code.lanes(mapping.lanes(), format!("{when}*({row} + {column}) = {value};"));
        }
        (at_once, Value::Lanes(_)) => {
            let store = storage.store(at_once);
            code.every(at_once, mapping.lanes(), format!("{when}{store}({row} + {column}, &{value});"));
        }
    }
}
