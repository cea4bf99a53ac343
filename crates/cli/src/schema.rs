//! The JSON schema of a configuration file, made from the defaults: what is there is what is allowed.

use crate::config::{Choices, TAGGED, Tagged, WORDS};
use crate::config_errors::ConfigError;
use crate::config_keys::meaning;
use crate::device;
use serde_json::{Map, Value, json};

/// Not a table of every configuration, but of some methods.
const INNER_OPTIMIZER: Tagged = TAGGED[1];

/// The schema. `schema.json` beside this crate's manifest is this, as a test sees to.
pub fn schema() -> Result<Value, ConfigError> {
    let tasks = bilevel_tasks::tasks();
    let settings = |choices: Choices| Ok::<_, ConfigError>(Value::Object(choices.defaults()?.settings()));
    let base = settings(Choices::of(&tasks[0]))?;
    let mut root = base.as_object().map_or_else(|| json!({}), |base| table(base, ""));
    let experiments: Vec<&str> = tasks.iter().map(|task| task.name).collect();
    root["properties"]["experiment"]["enum"] = json!(experiments);
    root["required"] = json!(["experiment"]);
    root["properties"]["device"]["pattern"] = json!(device::PATTERN);
    for (key, words) in WORDS {
        root["properties"][key]["enum"] = json!(words);
    }

    for tagged in TAGGED.iter().filter(|tagged| tagged.table != INNER_OPTIMIZER.table) {
        let mut variants = vec![];
        for word in tagged.words() {
            let settings = settings(Choices::of(&tasks[0]).with(tagged.key, word))?;
            let mut variant = variant(at(&settings, tagged.table), tagged, word);
            if let Some(info) = bilevel::methods().iter().find(|info| tagged.table == "method" && info.name == word) {
                variant["description"] = Value::from(info.summary);
            }
            if variant["properties"].get("optimizer").is_some() {
                variant["properties"]["optimizer"] = inner_optimizers(&tasks[0], word)?;
            }
            variants.push(variant);
        }
        let (above, name) = tagged.table.rsplit_once('.').unwrap_or(("", tagged.table));
        let place = if above.is_empty() { &mut root } else { &mut root["properties"][above] };
        place["properties"][name] = choice(tagged.table, variants);
    }

    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of a bilevel run",
        "description": "Every key but 'experiment' has a default, which depends on the experiment and the method; \
                        'bilevel run EXPERIMENT --dry-run' shows them."
    });
    if let (Value::Object(schema), Value::Object(root)) = (&mut schema, root) {
        schema.extend(root);
    }
    Ok(schema)
}

fn table(settings: &Map<String, Value>, prefix: &str) -> Value {
    let mut properties = Map::new();
    for (name, value) in settings {
        let key = format!("{prefix}{name}");
        let mut property = match value {
            Value::Object(inside) => table(inside, &format!("{key}.")),
            // The one key that takes a word or a number.
            _ if key == "method.storage" => json!({ "oneOf": [
                { "enum": ["all", "checkpoints"] },
                { "type": "object", "properties": { "truncated": { "type": "integer", "minimum": 1 } },
                  "required": ["truncated"], "additionalProperties": false },
            ]}),
            Value::Bool(_) => json!({ "type": "boolean" }),
            Value::Number(number) if number.is_f64() => json!({ "type": "number" }),
            Value::Number(_) => json!({ "type": "integer", "minimum": 0 }),
            _ => json!({ "type": "string" }),
        };
        property["description"] = Value::from(meaning(&key));
        properties.insert(name.clone(), property);
    }
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// The optimizers of the inner loop of a method.
fn inner_optimizers(task: &'static bilevel_tasks::Task, method: &str) -> Result<Value, ConfigError> {
    let mut variants = vec![];
    for word in INNER_OPTIMIZER.words() {
        let choices = Choices::of(task).with("method.name", method).with(INNER_OPTIMIZER.key, word);
        let settings = Value::Object(choices.defaults()?.settings());
        variants.push(variant(at(&settings, INNER_OPTIMIZER.table), &INNER_OPTIMIZER, word));
    }
    Ok(choice(INNER_OPTIMIZER.table, variants))
}

/// The table of this name, or nothing.
fn at<'a>(settings: &'a Value, table: &str) -> &'a Value {
    table.split('.').fold(settings, |settings, part| &settings[part])
}

/// One of several tables, told apart by a word.
fn variant(settings: &Value, tagged: &Tagged, word: &str) -> Value {
    let prefix = format!("{}.", tagged.table);
    let mut variant = settings.as_object().map_or_else(|| json!({}), |settings| table(settings, &prefix));
    variant["properties"][tagged.tag] = json!({ "const": word, "description": meaning(tagged.key) });
    variant
}

fn choice(key: &str, variants: Vec<Value>) -> Value {
    json!({ "anyOf": variants, "description": meaning(key) })
}
