//! Arrays as values: the type of their elements and their length, checked element by element.

use super::entries::{Entry, Given};
use super::errors::{ConfigError, Wrong};
use serde_json::Value;

/// The elements of an array: a default of their kind, and their number.
struct Takes {
    /// A value of the type of all elements; of several defaults, the first.
    element: Value,
    least: usize,
    most: usize,
}

impl Takes {
    /// Those of a key with this default and this schema. An array without elements has the type that its schema declares;
    /// without a schema it takes numbers.
    fn of(default: &[Value], schema: &Value) -> Self {
        let declared = || match schema["items"]["type"].as_str() {
            Some("integer") => Value::from(0),
            Some("boolean") => Value::from(false),
            Some("string") => Value::from(""),
            Some("array") => Value::Array(vec![]),
            _ => Value::from(0.0),
        };
        let limit = |key: &str| schema[key].as_u64().map(|limit| limit as usize);
        Takes {
            element: default.first().cloned().unwrap_or_else(declared),
            least: limit("minItems").unwrap_or(0),
            most: limit("maxItems").unwrap_or(usize::MAX),
        }
    }

    /// The type, for an error.
    fn describe(&self) -> &'static str {
        match &self.element {
            Value::Bool(_) => "an array of true and false",
            Value::String(_) => "an array of strings",
            Value::Number(number) if !number.is_f64() => "an array of whole numbers",
            Value::Array(_) => "an array of arrays",
            _ => "an array of numbers",
        }
    }

    /// The number of elements, for an error.
    fn length(&self) -> String {
        match (self.least, self.most) {
            (least, most) if least == most => format!("{least}"),
            (least, usize::MAX) => format!("at least {least}"),
            (0, most) => format!("at most {most}"),
            (least, most) => format!("{least} to {most}"),
        }
    }
}

/// Puts a given array in the place of a default one. `put` does the same for one element.
///
/// Each element is named by its index in the error, counted from 0: `task.ranges[2]`.
pub(super) fn put(
    default: &mut Vec<Value>,
    entry: &Entry,
    schema: &Value,
    put: &dyn Fn(&mut Value, &Entry, &Value) -> Result<(), ConfigError>,
) -> Result<(), ConfigError> {
    let takes = Takes::of(default, schema);
    let Given::Array(given) = &entry.value else { return Err(super::wrong_type(entry, takes.describe())) };
    if !(takes.least..=takes.most).contains(&given.len()) {
        let wrong = Wrong::Length { key: entry.dotted(), given: given.len(), must: takes.length() };
        return Err(ConfigError::at(&entry.place, wrong));
    }
    let mut elements = vec![];
    for (index, value) in given.iter().enumerate() {
        let mut key = entry.key.clone();
        if let Some(last) = key.last_mut() {
            *last = format!("{last}[{index}]");
        }
        let mut element = takes.element.clone();
        let entry = Entry { key, value: value.clone(), place: entry.place.clone() };
        put(&mut element, &entry, &schema["items"])?;
        elements.push(element);
    }
    *default = elements;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{entries::parse_set, put_value};
    use serde_json::{Value, json};

    /// An array given by `--set task.key=…` over a default, under a schema.
    fn over(default: Value, schema: Value, given: &str) -> Result<Value, String> {
        let entry = &parse_set(&format!("task.key={given}")).unwrap()[0];
        let mut value = default;
        put_value(&mut value, entry, &schema).map_err(|error| error.to_string())?;
        Ok(value)
    }

    #[test]
    fn elements_have_the_type_of_the_default_or_of_the_schema() {
        assert_eq!(over(json!([0.5]), json!({}), "[1, 2.5]").unwrap(), json!([1.0, 2.5]));
        assert_eq!(over(json!([3]), json!({}), "[1, 2]").unwrap(), json!([1, 2]));
        let words = json!({ "items": { "type": "string" } });
        assert_eq!(over(json!([]), words.clone(), "[\"a\"]").unwrap(), json!(["a"]));
        assert_eq!(over(json!([]), json!({ "items": { "type": "boolean" } }), "[true]").unwrap(), json!([true]));
        let rows = json!({ "items": { "type": "array", "items": { "type": "integer" } } });
        assert_eq!(over(json!([]), rows.clone(), "[[1], []]").unwrap(), json!([[1], []]));
        for (default, schema, given, said) in [
            (json!([0.5]), json!({}), "[1, true]", "task.key[1] takes a number, not true"),
            (json!([3]), json!({}), "[1.5]", "task.key[0] takes a whole number, not the number 1.5"),
            (json!([3]), json!({}), "[-1]", "task.key[0] is -1 but must be at least 0"),
            (json!([]), words.clone(), "[1]", "task.key[0] takes a string, not the whole number 1"),
            (json!([]), words, "7", "task.key takes an array of strings, not the whole number 7"),
            (json!([]), rows, "[[1], [0.5]]", "task.key[1][0] takes a whole number, not the number 0.5"),
            (json!([0.5]), json!({}), "[nan]", "task.key[0] is NaN but must be finite"),
        ] {
            assert_eq!(over(default, schema, given).unwrap_err(), format!("--set task.key={given}: {said}"));
        }
    }

    #[test]
    fn a_length_outside_the_limits_of_the_schema_is_refused_with_the_limits() {
        for (schema, given, said) in [
            (json!({ "minItems": 2, "maxItems": 2 }), "[1]", "1 element but must have 2"),
            (json!({ "minItems": 2 }), "[]", "0 elements but must have at least 2"),
            (json!({ "minItems": 2, "maxItems": 3 }), "[1]", "1 element but must have 2 to 3"),
            (json!({ "maxItems": 1 }), "[1, 2]", "2 elements but must have at most 1"),
        ] {
            let said = format!("--set task.key={given}: task.key has {said}");
            assert_eq!(over(json!([0.0]), schema, given).unwrap_err(), said);
        }
    }
}
