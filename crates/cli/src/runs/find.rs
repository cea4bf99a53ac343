//! Finds the folders of runs below a folder, those inside studies and sweeps included.

use crate::errors::{CliError, Result};
use std::path::{Path, PathBuf};

/// Folders below the first are searched this deep: a run of a study of all studies is three deep.
const MAX_DEPTH: usize = 6;
/// The most runs that are listed; a folder with more is searched no further.
pub const MAX_RUNS: usize = 10_000;
/// The most folders and files that are visited, so that a search from the root of a disk ends.
const MAX_ENTRIES: usize = 1_000_000;

/// The folders of runs below this one, in the order of their names, or this one alone if it is that of a run. Links are not followed, so
/// that the search ends and stays below the folder.
pub fn find(root: &Path) -> Result<Vec<PathBuf>> {
    std::fs::read_dir(root).map_err(|error| CliError::file("search", root, &error))?;
    let (mut found, mut entries) = (vec![], 0);
    search(root, 0, &mut found, &mut entries);
    Ok(found)
}

/// Returns true for the folder of a run: it has a configuration and something that only a run writes.
pub fn is_run(folder: &Path) -> bool {
    let there = |name: &str| folder.join(name).symlink_metadata().is_ok();
    there("config.toml") && ["metrics.jsonl", "checkpoint", "result.json", "provenance.json"].into_iter().any(there)
}

fn search(folder: &Path, depth: usize, found: &mut Vec<PathBuf>, entries: &mut usize) {
    if is_run(folder) {
        found.push(folder.to_path_buf());
        return;
    }
    let Ok(inside) = std::fs::read_dir(folder) else { return };
    let mut folders = vec![];
    for entry in inside.flatten() {
        *entries += 1;
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !is_hidden && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders.push(entry.path());
        }
    }
    folders.sort();
    for folder in folders {
        if depth < MAX_DEPTH && found.len() < MAX_RUNS && *entries < MAX_ENTRIES {
            search(&folder, depth + 1, found, entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_in_order_and_links_and_hidden_folders_are_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let run = |name: &str| {
            let folder = place.path().join(name);
            std::fs::create_dir_all(folder.join("checkpoint")).unwrap();
            std::fs::write(folder.join("config.toml"), "seed = 1").unwrap();
        };
        ["b", "a/sweep/one", "a/sweep/two", ".hidden/run"].into_iter().for_each(run);
        std::fs::create_dir_all(place.path().join("empty")).unwrap();
        std::fs::write(place.path().join("empty/config.toml"), "not a run's").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(place.path(), place.path().join("c")).unwrap();
        let found = find(place.path()).unwrap();
        let names: Vec<&Path> = found.iter().map(|path| path.strip_prefix(place.path()).unwrap()).collect();
        assert_eq!(names, ["a/sweep/one", "a/sweep/two", "b"].map(Path::new));
        assert_eq!(find(&place.path().join("b")).unwrap().len(), 1);
        assert!(find(&place.path().join("gone")).is_err());
    }
}
