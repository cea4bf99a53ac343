//! A temporary folder with a part the command sees and a part it does not.

use crate::error::{AttackError, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder, removed when dropped.
pub struct Place(PathBuf);

impl Place {
    /// A new one.
    pub fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bilevel-attack-{}-{number}", std::process::id()));
        std::fs::create_dir_all(path.join("seen")).map_err(AttackError::file(&path))?;
        Ok(Place(path))
    }

    /// The folder the command is run in.
    pub fn seen(&self) -> PathBuf {
        self.0.join("seen")
    }

    /// A path next to the folder of the command.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Copies a file or a folder into the folder the command is run in.
    pub fn copy(&self, from: &Path, name: &str) -> Result<PathBuf> {
        let to = self.seen().join(name);
        copy(from, &to)?;
        Ok(to)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A leftover in the temporary folder is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Copies a file or a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        std::fs::copy(from, to).map_err(AttackError::file(from))?;
        return Ok(());
    }
    std::fs::create_dir_all(to).map_err(AttackError::file(to))?;
    for path in listed(from)? {
        copy(&path, &to.join(path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// The contents of a folder, in the order of names.
pub fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(AttackError::file(folder))?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(AttackError::file(folder))?;
    paths.sort();
    Ok(paths)
}

/// Every file below a folder, in the order of names; links are not followed.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = vec![];
    for path in listed(folder)? {
        let kind = std::fs::symlink_metadata(&path).map_err(AttackError::file(&path))?;
        if kind.is_dir() { files.extend(files_below(&path)?) } else { files.push(path) }
    }
    Ok(files)
}
