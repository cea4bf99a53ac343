//! What must be in the folder of a finished run, and whether two of them are the same.

use super::place::files_below;
use serde_json::Value;
use std::path::Path;

/// Files that must be the same, byte for byte, in the folders of the same run.
const SAME: [&str; 2] = ["result.json", "lambda.safetensors"];

/// The metrics without the one thing that differs from run to run; what is wrong with them where they are none.
fn timeless(folder: &Path) -> Result<Vec<Value>, String> {
    let text = std::fs::read_to_string(folder.join("metrics.jsonl"))
        .map_err(|error| format!("leaves metrics that cannot be read ({error})"))?;
    let mut lines = vec![];
    for (number, line) in text.lines().enumerate() {
        let mut line: Value = serde_json::from_str(line)
            .map_err(|error| format!("leaves metrics whose line {} is no JSON ({error})", number + 1))?;
        if let Some(entries) = line.as_object_mut() {
            entries.remove("seconds");
        }
        lines.push(line);
    }
    Ok(lines)
}

/// Everything that is missing or wrong in the folder of a run that says it is finished.
pub fn faults(folder: &Path) -> Vec<String> {
    let mut faults = leftovers(folder);
    let text = match std::fs::read_to_string(folder.join("result.json")) {
        Ok(text) => text,
        Err(error) => return vec![format!("says success but has no result ({error})")],
    };
    let result: Value = match serde_json::from_str(&text) {
        Ok(result) => result,
        Err(error) => return vec![format!("says success but its result is no JSON ({error})")],
    };
    for key in ["inner_loss", "outer_loss", "best_outer_loss"] {
        if !result[key].is_number() {
            faults.push(format!("says success but its {key} is {}", result[key]));
        }
    }
    match timeless(folder) {
        Ok(lines) if Some(lines.len() as u64) == result["iterations"].as_u64() => {
            let broken = lines.iter().zip(1u64..).find(|(line, number)| line["iteration"].as_u64() != Some(*number));
            faults.extend(
                broken.map(|(_, number)| format!("leaves metrics in which line {number} is another iteration")),
            );
        }
        Ok(lines) => {
            faults.push(format!("leaves {} lines of metrics for {} iterations", lines.len(), result["iterations"]));
        }
        Err(fault) => faults.push(fault),
    }
    for name in ["config.toml", "lambda.safetensors"] {
        if !folder.join(name).is_file() {
            faults.push(format!("says success but leaves no {name}"));
        }
    }
    faults
}

/// Files a finished command must not leave behind.
pub fn leftovers(folder: &Path) -> Vec<String> {
    let files = files_below(folder).unwrap_or_default();
    let unfinished = files.iter().filter(|path| path.to_string_lossy().ends_with(".unfinished"));
    unfinished.map(|path| format!("leaves the half-written {}", path.display())).collect()
}

/// Where the folder of a run differs from that of the same run left alone; metrics are compared if they are asked for.
pub fn differences(folder: &Path, expected: &Path, metrics: bool) -> Vec<String> {
    let mut differences = vec![];
    for name in SAME {
        if std::fs::read(folder.join(name)).ok() != std::fs::read(expected.join(name)).ok() {
            differences.push(format!("ends with another {name} than a run left alone"));
        }
    }
    if metrics && timeless(folder) != timeless(expected) {
        differences.push("ends with other metrics than a run left alone, times aside".into());
    }
    differences
}
