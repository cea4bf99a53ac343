//! Unpacks an archive into a folder that is either complete or absent.

use crate::error::{Error, Result};
use crate::input::Input;
use crate::readers::archive;
use std::path::{Component, Path, PathBuf};

/// Unpacks a zip or tar file into a folder, unless the folder exists already.
///
/// The files are written to a temporary folder next to it, which is renamed when it is complete. Only regular files are
/// created: links and devices are skipped, and paths that lead out of the folder are refused.
pub(super) fn unpack(archive: &Path, target: &Path) -> Result<()> {
    if target.exists() {
        return Ok(());
    }
    let parent = target.parent().unwrap_or(Path::new("."));
    let scratch = tempfile::Builder::new().prefix(".unpacking-").tempdir_in(parent);
    let scratch = scratch.map_err(Error::io("make a folder in", parent))?;
    let input = Input::new(archive);
    archive::visit(&input, &|_| true, &mut |path, bytes| {
        let inside = inside(&path).ok_or_else(|| input.damaged(format!("has a path that leads out of it: {path}")))?;
        let place = scratch.path().join(inside);
        let failed = Error::io("write", &place);
        if let Some(folder) = place.parent() {
            std::fs::create_dir_all(folder).map_err(&failed)?;
        }
        std::fs::write(&place, bytes).map_err(failed)
    })?;
    std::fs::rename(scratch.path(), target).map_err(Error::io("write", target))
}

/// A path of plain names only.
fn inside(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && !path.as_os_str().is_empty()).then(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_out_are_told() {
        assert!(inside("a/b.png").is_some());
        for path in ["../a", "a/../../b", "/etc/passwd", ""] {
            assert_eq!(inside(path), None, "{path}");
        }
    }
}
