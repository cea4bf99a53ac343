//! The numbers of an iteration as one flat JSON object.

use bilevel::Iteration;
use serde_json::{Map, Value};

/// All the library says of an iteration: its number as `iteration`, its time as `seconds`, the oracle counts beside the
/// rest. What only some methods know is there or not.
pub fn numbers(iteration: &Iteration) -> Map<String, Value> {
    let mut flat = Map::new();
    flat.insert("iteration".into(), iteration.number.into());
    let Ok(Value::Object(fields)) = serde_json::to_value(iteration) else { return flat };
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("number", _) | (_, Value::Null) => {}
            ("elapsed", _) => _ = flat.insert("seconds".into(), iteration.elapsed.as_secs_f64().into()),
            ("oracles", Value::Object(counts)) => flat.extend(counts),
            (_, value) => _ = flat.insert(name, value),
        }
    }
    flat
}
