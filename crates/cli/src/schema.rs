//! The JSON schema of a configuration file, made from the defaults: what is there is what is allowed.

use crate::config::Choices;
use crate::config_errors::ConfigError;
use crate::config_keys::meaning;
use crate::outer_settings::{OPTIMIZERS, SCHEDULES};
use serde_json::{Map, Value, json};

/// The schema. `schema.json` beside this crate's manifest is this, as a test sees to.
pub fn schema() -> Result<Value, ConfigError> {
    let tasks = bilevel_tasks::tasks();
    let methods = bilevel::methods();
    let base = |method, optimizer, schedule| {
        let choices =
            Choices { task: &tasks[0], method, optimizer, schedule, inner_schedule: schedule, iterations: None };
        Ok::<_, ConfigError>(choices.defaults()?.settings())
    };
    let mut root = table(&base(None, None, None)?, "");
    let experiments: Vec<&str> = tasks.iter().map(|task| task.name).collect();
    root["properties"]["experiment"]["enum"] = json!(experiments);
    root["required"] = json!(["experiment"]);
    root["properties"]["dtype"]["enum"] = json!(["f32", "f64"]);

    let mut variants = vec![];
    for info in methods {
        let settings = base(Some(info.name), None, None)?;
        variants.push(variant(&settings["method"], "method.", "name", info.name, info.summary));
    }
    root["properties"]["method"] = choice("method", variants);
    let mut variants = vec![];
    for name in OPTIMIZERS {
        let settings = base(None, Some(name), None)?;
        variants.push(variant(&settings["outer"]["optimizer"], "outer.optimizer.", "name", name, ""));
    }
    root["properties"]["outer"]["properties"]["optimizer"] = choice("outer.optimizer", variants);
    for loops in ["inner", "outer"] {
        let mut variants = vec![];
        for shape in SCHEDULES {
            let settings = base(None, None, Some(shape))?;
            variants.push(variant(&settings[loops]["schedule"], &format!("{loops}.schedule."), "shape", shape, ""));
        }
        root["properties"][loops]["properties"]["schedule"] = choice(&format!("{loops}.schedule"), variants);
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

/// One of several tables, told apart by a word.
fn variant(settings: &Value, prefix: &str, tag: &str, word: &str, summary: &str) -> Value {
    let mut variant = settings.as_object().map_or_else(|| json!({}), |settings| table(settings, prefix));
    variant["properties"][tag] = json!({ "const": word, "description": meaning(&format!("{prefix}{tag}")) });
    if !summary.is_empty() {
        variant["description"] = Value::from(summary);
    }
    variant
}

fn choice(key: &str, variants: Vec<Value>) -> Value {
    json!({ "anyOf": variants, "description": meaning(key) })
}
