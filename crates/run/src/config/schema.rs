//! The JSON schema of a configuration file, made from the defaults: a key that has a default is allowed.

use super::errors::ConfigError;
use super::{Choices, INCLUDE, Meanings, TAGGED, Tagged, WORDS};
use crate::Registry;
use crate::run::DEVICE_PATTERN;
use serde_json::{Map, Value, json};

/// The schema. A test keeps `schema.json` next to the manifest of `bilevel-cli` up to date.
pub fn schema(registry: &Registry) -> Result<Value, ConfigError> {
    let Some(first) = registry.tasks().first().map(|task| task.usual()) else {
        return Ok(json!({ "title": "There is no task to configure" }));
    };
    let settings = |choices: Choices| Ok::<_, ConfigError>(Value::Object(choices.defaults()?.settings()));
    let base = settings(Choices::of(registry, &*first))?;
    let plain = Meanings::of(registry, "", "");
    let mut root = base.as_object().map_or_else(|| json!({}), |base| table(base, "", &plain));
    root["required"] = json!(["task"]);
    root["properties"]["device"]["pattern"] = json!(DEVICE_PATTERN);
    for (key, words) in WORDS {
        root["properties"][key]["enum"] = json!(words);
    }

    let file = json!({ "type": "string" });
    root["properties"][INCLUDE] = json!({
        "anyOf": [file, { "type": "array", "items": file }],
        "description": "configuration files, relative to this one, whose settings are used unless this file changes them",
    });

    // The other key for the length of the inner loop.
    let mut samples = root["properties"]["inner"]["properties"]["steps"].clone();
    samples["description"] = json!(plain.get("inner.samples"));
    root["properties"]["inner"]["properties"]["samples"] = samples;

    for tagged in &TAGGED {
        let mut variants = vec![];
        for word in tagged.words(registry) {
            let known = registry.known_task(word).ok().filter(|_| tagged.table == "task");
            let task = known.map(|task| task.usual());
            let task = task.as_deref().unwrap_or(&*first);
            let chosen = Choices::of(registry, task);
            let settings = settings(if tagged.table == "task" { chosen } else { chosen.with(tagged.key, word) })?;
            let method = if tagged.table == "method" { word } else { "" };
            let meanings = Meanings::of(registry, if tagged.table == "task" { word } else { "" }, method);
            let mut variant = variant(at(&settings, tagged.table), tagged, word, &meanings);
            if let Ok(method) = registry.known_method(method) {
                variant["description"] = Value::from(method.info.summary);
                if let Some(all) = variant["properties"].as_object_mut() {
                    for (key, property) in all.iter_mut().filter(|(key, _)| *key != "storage") {
                        let words = method.words(key);
                        if !words.is_empty() {
                            property["enum"] = json!(words);
                        }
                    }
                }
            }
            if let Some(known) = known {
                variant["description"] = Value::from(known.summary);
                variant["required"] = json!(["name"]);
                // Words and ranges are in the schema that the task's own type has.
                if let (Value::Object(own), Some(all)) =
                    (known.schema()["properties"].take(), variant["properties"].as_object_mut())
                {
                    for (name, mut property) in own {
                        if let Value::Object(property) = &mut property {
                            property.shift_remove("default");
                        }
                        all.insert(name, property);
                    }
                }
            }
            variants.push(variant);
        }
        let (above, name) = tagged.table.rsplit_once('.').unwrap_or(("", tagged.table));
        let place = if above.is_empty() { &mut root } else { &mut root["properties"][above] };
        place["properties"][name] = json!({ "anyOf": variants, "description": plain.get(tagged.table) });
    }

    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of a bilevel run",
        "description": "Every key except 'task.name' has a default that depends on the task and the method; 'bilevel \
         run TASK --dry-run' shows them."
    });
    if let (Value::Object(schema), Value::Object(root)) = (&mut schema, root) {
        schema.extend(root);
    }
    Ok(schema)
}

fn table(settings: &Map<String, Value>, prefix: &str, meanings: &Meanings) -> Value {
    let mut properties = Map::new();
    for (name, value) in settings {
        let key = format!("{prefix}{name}");
        let mut property = match value {
            Value::Object(inside) => table(inside, &format!("{key}."), meanings),
            // The one key that takes a word or a number.
            _ if key == "method.storage" => json!({ "oneOf": [
                { "enum": ["all", "checkpoints"] },
                { "type": "object", "properties": { "truncated": { "type": "integer", "minimum": 1 } },
                  "required": ["truncated"], "additionalProperties": false },
            ]}),
            Value::Bool(_) => json!({ "type": "boolean" }),
            Value::Number(number) if number.is_f64() => json!({ "type": "number" }),
            Value::Number(_) => json!({ "type": "integer", "minimum": 0 }),
            Value::Array(_) if key == "about.tags" => json!({ "type": "array", "items": { "type": "string" } }),
            Value::Array(_) => json!({ "type": "array" }),
            _ => json!({ "type": "string" }),
        };
        property["description"] = Value::from(meanings.get(&key));
        properties.insert(name.clone(), property);
    }
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// The table of this name, or nothing.
fn at<'a>(settings: &'a Value, table: &str) -> &'a Value {
    table.split('.').fold(settings, |settings, part| &settings[part])
}

/// One of several tables, told apart by a word.
fn variant(settings: &Value, tagged: &Tagged, word: &str, meanings: &Meanings) -> Value {
    let prefix = format!("{}.", tagged.table);
    let mut variant = settings.as_object().map_or_else(|| json!({}), |settings| table(settings, &prefix, meanings));
    variant["properties"][tagged.tag] = json!({ "const": word, "description": meanings.get(tagged.key) });
    variant
}
