//! Whether a dataset is present and intact.

use super::{Access, Dataset, Remote};
use crate::digest::of_file;
use crate::error::{Error, Result};
use std::path::Path;

/// The state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// It is present, and its SHA-256 is right.
    Good,
    /// It is present, but there is no SHA-256 to compare with.
    There,
    /// It is missing.
    Missing,
    /// Its size is wrong.
    WrongSize {
        /// Bytes it has.
        found: u64,
    },
    /// Its size is right, but not its SHA-256.
    WrongBytes,
}

impl FileState {
    /// Returns true if nothing is left to do.
    pub fn is_fine(self) -> bool {
        matches!(self, FileState::Good | FileState::There)
    }
}

impl std::fmt::Display for FileState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FileState::Good => write!(f, "good"),
            FileState::There => write!(f, "present (no SHA-256 to compare with)"),
            FileState::Missing => write!(f, "missing"),
            FileState::WrongSize { found } => write!(f, "damaged: it has {found} bytes"),
            FileState::WrongBytes => write!(f, "damaged: its SHA-256 differs"),
        }
    }
}

/// The files of a dataset in the data folder, each with its state.
///
/// ```
/// use bilevel_data::registry::{FileState, check, find};
/// let files = check(find("mnist")?, "no/such/folder")?;
/// assert_eq!(files.len(), 4);
/// assert!(files.iter().all(|(_, state)| *state == FileState::Missing));
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn check(dataset: &Dataset, root: impl AsRef<Path>) -> Result<Vec<(String, FileState)>> {
    let folder = root.as_ref().join(dataset.folder);
    match dataset.access {
        Access::Files(files) => {
            files.iter().map(|file| Ok((file.name.to_string(), check_file(file, &folder)?))).collect()
        }
        Access::ByHand { expects, .. } => {
            let state = |path: &str| if folder.join(path).exists() { FileState::There } else { FileState::Missing };
            Ok(expects.iter().map(|path| (path.to_string(), state(path))).collect())
        }
    }
}

/// The state of one file in the dataset's folder.
pub fn check_file(file: &Remote, folder: &Path) -> Result<FileState> {
    let path = folder.join(file.name);
    let failed = Error::io("read", &path);
    let open = match bilevel::files::whole_file::open_regular(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(FileState::Missing),
        open => open.map_err(&failed)?,
    };
    let found = open.metadata().map_err(&failed)?.len();
    if found != file.bytes {
        return Ok(FileState::WrongSize { found });
    }
    let same = of_file(open).map_err(failed)?.eq_ignore_ascii_case(file.sha256);
    Ok(if same { FileState::Good } else { FileState::WrongBytes })
}
