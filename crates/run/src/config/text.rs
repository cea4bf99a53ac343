//! A configuration as text: TOML with every key explained, and the list of its keys.

use super::Meanings;
use crate::{Config, Registry};
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// All keys, tables included, dotted and in order.
pub fn keys(settings: &Map<String, Value>) -> Vec<String> {
    let mut all = vec![];
    collect(settings, "", &mut all);
    all
}

fn collect(table: &Map<String, Value>, prefix: &str, all: &mut Vec<String>) {
    for (name, value) in table {
        all.push(format!("{prefix}{name}"));
        if let Value::Object(inside) = value {
            collect(inside, &format!("{prefix}{name}."), all);
        }
    }
}

/// A configuration as a TOML file.
pub fn to_toml(registry: &Registry, config: &Config) -> String {
    settings_to_toml(&config.settings(), &Meanings::of(registry, config.task.name(), config.method.name()))
}

/// Some settings as a TOML file.
pub fn settings_to_toml(settings: &Map<String, Value>, meanings: &Meanings) -> String {
    let mut text = String::new();
    write_table(settings, "", meanings, &mut text);
    text
}

/// A table whose only key is a number is written on one line: it is a choice, not a group of settings.
fn is_inline(value: &Value) -> bool {
    value.as_object().is_some_and(|table| table.contains_key("truncated"))
}

fn write_table(table: &Map<String, Value>, prefix: &str, meanings: &Meanings, text: &mut String) {
    let (groups, lines): (Vec<_>, Vec<_>) = table.iter().partition(|(_, value)| value.is_object() && !is_inline(value));
    let assignments: Vec<String> = lines.iter().map(|(name, value)| format!("{name} = {}", literal(value))).collect();
    let width = assignments.iter().map(|line| line.chars().count()).max().unwrap_or(0).min(40);
    for ((name, _), line) in lines.iter().zip(assignments) {
        _ = writeln!(text, "{line:<width$}  # {}", meanings.get(&format!("{prefix}{name}")));
    }
    for (name, value) in groups {
        if let Value::Object(inside) = value {
            _ = writeln!(text, "\n[{prefix}{name}]");
            write_table(inside, &format!("{prefix}{name}."), meanings, text);
        }
    }
}

fn literal(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64() {
            // As Rust writes a float, with a point or an exponent, which TOML reads as the same float.
            Some(float) if number.is_f64() => format!("{float:?}"),
            _ => number.to_string(),
        },
        Value::String(text) => toml_edit::Value::from(text.as_str()).to_string(),
        Value::Object(table) => {
            let inside: Vec<String> =
                table.iter().map(|(name, value)| format!("{name} = {}", literal(value))).collect();
            format!("{{ {} }}", inside.join(", "))
        }
        Value::Array(elements) => format!("[{}]", elements.iter().map(literal).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}
