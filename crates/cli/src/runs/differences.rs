//! The settings in which runs differ, each as short as it stays clear.

use super::Overview;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Returns true for keys of the machine, and for those that have their own column.
fn is_left_out(key: &str) -> bool {
    ["threads", "data", "device", "held_out.compare", "start.checksum", "task.name", "method.name", "outer.iterations"]
        .contains(&key)
        || key.starts_with("checkpoint.")
        || key.starts_with("metrics.")
}

/// The settings in which each run differs from another one of the same task and method, as `rate=0.1`.
pub fn differences(runs: &[Overview]) -> Vec<Vec<String>> {
    // For each task and method: the first value of every key, and the keys that differ.
    let mut first: HashMap<(&str, &str, &str), &Value> = HashMap::new();
    let mut differ: HashSet<(&str, &str, &str)> = HashSet::new();
    for run in runs {
        for (key, value) in run.settings.iter().filter(|(key, _)| !is_left_out(key)) {
            let place = (run.task.as_str(), run.method.as_str(), key.as_str());
            if *first.entry(place).or_insert(value) != value {
                differ.insert(place);
            }
        }
    }
    let last = |key: &str| key.rsplit('.').next().unwrap_or(key).to_string();
    let mut names: HashMap<String, HashSet<&str>> = HashMap::new();
    differ.iter().for_each(|(_, _, key)| _ = names.entry(last(key)).or_default().insert(key));
    let short = |key: &str| match names.get(&last(key)).map_or(0, HashSet::len) {
        1 => last(key),
        _ => key.to_string(),
    };
    let of = |run: &Overview| {
        let differs = |key: &str| differ.contains(&(run.task.as_str(), run.method.as_str(), key));
        // An empty text is a key that is not used.
        let own = run.settings.iter().filter(|(key, value)| differs(key) && *value != "");
        own.map(|(key, value)| format!("{}={}", short(key), word(value))).collect()
    };
    runs.iter().map(of).collect()
}

/// A value as a list shows it.
pub fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
