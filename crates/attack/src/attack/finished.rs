//! The required contents of a finished run's folder, and the comparison of two.

use super::place::files_below;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Files that must be the same, byte for byte, in the folders of the same run.
const SAME: [&str; 2] = ["result.json", "lambda.safetensors"];

/// The metrics without times, which differ from run to run, or an error if they are invalid.
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
    let mut faults = vec![];
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

/// Files below a folder that an undisturbed one of its kind lacks. Checkpoints may be of other iterations, or set aside
/// because they were damaged, and every process begins a new event file.
fn leftovers(folder: &Path, expected: &Path) -> Vec<String> {
    let below = |folder: &Path| -> Vec<PathBuf> {
        let files = files_below(folder).unwrap_or_default();
        files.iter().filter_map(|path| path.strip_prefix(folder).ok().map(Path::to_path_buf)).collect()
    };
    let usual = below(expected);
    let owned = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let checkpoint = name.ends_with(".bilevel") || name.ends_with(".bilevel.refused");
        checkpoint || name.contains("tfevents") || usual.contains(path)
    };
    let left = below(folder).into_iter().filter(|path| !owned(path));
    left.map(|path| format!("leaves {} behind", path.display())).collect()
}

/// Whether this file of a folder is another than in one that was left alone.
fn difference(folder: &Path, expected: &Path, name: &str) -> Option<String> {
    let read = |folder: &Path| std::fs::read(folder.join(name)).ok();
    let same = read(expected).is_some() && read(folder) == read(expected);
    (!same).then(|| format!("ends with another {name} than when it is left alone"))
}

/// The differences of a command's folder from an undisturbed one, in this file and in additional files.
pub fn differences_in(folder: &Path, expected: &Path, name: &str) -> Vec<String> {
    difference(folder, expected, name).into_iter().chain(leftovers(folder, expected)).collect()
}

/// The differences of a run's folder from that of the same run undisturbed. Metrics and their plots are compared on
/// request.
pub fn differences(folder: &Path, expected: &Path, metrics: bool) -> Vec<String> {
    let mut differences: Vec<String> = SAME.iter().filter_map(|name| difference(folder, expected, name)).collect();
    if metrics {
        differences.extend(leftovers(folder, expected));
    }
    if metrics && timeless(folder) != timeless(expected) {
        differences.push("ends with other metrics than when it is left alone, times aside".into());
    }
    differences
}
