//! Atomic file writes: to a temporary file in the same folder, synced to the disk, and renamed.
//!
//! The temporary file is `.NAME.xxxxxxxxxxxx.unfinished`, with twelve unpredictable letters, and is created
//! exclusively: an existing link is not followed. It is locked while it is written, which distinguishes the remains of
//! a kill from a file that another process is about to rename.

use std::ffi::{OsStr, OsString};
use std::fs::{File, FileType, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::path::{Path, PathBuf};

const UNFINISHED: &str = ".unfinished";
/// Unpredictable letters in the name of a temporary file.
const LETTERS: usize = 12;

/// Writes a file atomically: at any moment it is the whole old one or the whole new one. Refuses an existing path that
/// is not a regular file.
///
/// ```
/// use bilevel::files::whole_file::write_whole;
/// let path = std::env::temp_dir().join(format!("bilevel-doc-whole-{}", std::process::id()));
/// write_whole(&path, b"old")?;
/// write_whole(&path, b"new")?;
/// assert_eq!(std::fs::read(&path)?, b"new");
/// # std::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole_by(path, |file| file.write_all(bytes))
}

/// As [`write_whole`], for content that does not fit into memory: `write` is called with the file, and if it fails, the
/// old file stays.
///
/// ```
/// use bilevel::files::whole_file::write_whole_by;
/// use std::io::Write;
/// let path = std::env::temp_dir().join(format!("bilevel-doc-whole-by-{}", std::process::id()));
/// write_whole_by(&path, |file| (0..3).try_for_each(|number| writeln!(file, "{number}")))?;
/// assert!(write_whole_by(&path, |_| Err(std::io::Error::other("no more numbers"))).is_err());
/// assert_eq!(std::fs::read(&path)?, b"0\n1\n2\n");
/// # std::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write_whole_by(path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    refuse_irregular(path)?;
    let folder = folder_of(path);
    let (mut file, beside) = Beside::make(path)?;
    // Some network file systems have no locks; there the user has to see that no two processes write to one folder.
    let _ = file.try_lock();
    write(&mut file)?;
    file.sync_all()?;
    beside.rename(path)?;
    // A rename is on the disk only when its folder is. Not every system lets one open a folder.
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Removes the partly written files of a kill from a folder, except those that another process is writing.
///
/// ```
/// use bilevel::files::whole_file::remove_unfinished;
/// let folder = std::env::temp_dir().join(format!("bilevel-doc-unfinished-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// std::fs::write(folder.join(".result.json.aB3dE6gH9jK2.unfinished"), "{\"outer_lo")?;
/// remove_unfinished(&folder)?;
/// assert_eq!(std::fs::read_dir(&folder)?.count(), 0);
/// # std::fs::remove_dir(folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn remove_unfinished(folder: &Path) -> Result<()> {
    remove_where(folder, is_unfinished)
}

/// As [`remove_unfinished`] for one file, in a folder that others use too.
///
/// ```
/// bilevel::files::whole_file::remove_unfinished_of("no/such/folder/report.html".as_ref())?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn remove_unfinished_of(path: &Path) -> Result<()> {
    let (prefix, length) = (prefix_of(path), prefix_of(path).len() + LETTERS + UNFINISHED.len());
    let of_it = |name: &OsStr| {
        name.len() == length && name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes()) && is_unfinished(name)
    };
    remove_where(folder_of(path), of_it)
}

/// Returns true for the name of a file that is being written, or was when its process was killed.
///
/// ```
/// use bilevel::files::whole_file::is_unfinished;
/// assert!(is_unfinished(".result.json.aB3dE6gH9jK2.unfinished".as_ref()));
/// assert!(!is_unfinished("symphony.unfinished".as_ref()));
/// ```
pub fn is_unfinished(name: &OsStr) -> bool {
    let letters = || {
        let name = name.as_encoded_bytes().strip_prefix(b".")?.strip_suffix(UNFINISHED.as_bytes())?;
        let (before, letters) = name.split_at_checked(name.len().checked_sub(LETTERS)?)?;
        (before.len() > 1 && before.ends_with(b".")).then_some(letters)
    };
    letters().is_some_and(|letters| letters.iter().all(u8::is_ascii_alphanumeric))
}

/// A temporary file in the same folder; removed on drop unless it was renamed.
struct Beside(Option<PathBuf>);

impl Beside {
    /// Creates it exclusively, with the usual permissions, under an unpredictable name.
    fn make(path: &Path) -> Result<(File, Self)> {
        loop {
            let mut name = prefix_of(path);
            name.push(letters());
            name.push(UNFINISHED);
            let beside = folder_of(path).join(name);
            match OpenOptions::new().write(true).create_new(true).open(&beside) {
                Ok(file) => return Ok((file, Beside(Some(beside)))),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts it into its place.
    fn rename(mut self, path: &Path) -> Result<()> {
        if let Some(beside) = &self.0 {
            std::fs::rename(beside, path)?;
        }
        self.0 = None;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(beside) = &self.0 {
            let _ = std::fs::remove_file(beside);
        }
    }
}

/// Unpredictable letters and digits: the standard library's hash maps have random keys from the system.
fn letters() -> String {
    const ALL: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let keys = RandomState::new();
    (0..LETTERS).map(|place| char::from(ALL[(keys.hash_one(place) % ALL.len() as u64) as usize])).collect()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn prefix_of(path: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    prefix
}

/// Refuses an existing path that is not a regular file: a rename would replace it, and a write through a link would go
/// elsewhere.
///
/// ```
/// use bilevel::files::whole_file::refuse_irregular;
/// assert!(refuse_irregular("no/such/file".as_ref()).is_ok());
/// let error = refuse_irregular(&std::env::temp_dir()).unwrap_err();
/// assert_eq!(error.to_string(), "it is a folder, not a regular file, so it was not touched");
/// ```
pub fn refuse_irregular(path: &Path) -> Result<()> {
    std::fs::symlink_metadata(path).map_or(Ok(()), |there| regular(there.file_type()))
}

/// Opens a file to read it, if it is a regular one or a link to one: to open a pipe may wait for ever.
///
/// ```
/// let error = bilevel::files::whole_file::open_regular(&std::env::temp_dir()).unwrap_err();
/// assert_eq!(error.to_string(), "it is a folder, not a regular file, so it was not touched");
/// ```
pub fn open_regular(path: &Path) -> Result<File> {
    regular(std::fs::metadata(path)?.file_type())?;
    File::open(path)
}

/// All that is in a regular file.
///
/// ```
/// use bilevel::files::whole_file::read_regular;
/// assert!(read_regular("no/such/file".as_ref()).is_err());
/// ```
pub fn read_regular(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn regular(found: FileType) -> Result<()> {
    let what = match found {
        regular if regular.is_file() => return Ok(()),
        link if link.is_symlink() => "a link",
        folder if folder.is_dir() => "a folder",
        _ => "a pipe or device",
    };
    Err(Error::other(format!("it is {what}, not a regular file, so it was not touched")))
}

fn remove_where(folder: &Path, chosen: impl Fn(&OsStr) -> bool) -> Result<()> {
    let entries = match std::fs::read_dir(folder) {
        // If there is no folder, nothing was left in it.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if !chosen(&entry.file_name()) || entry.file_type()?.is_dir() {
            continue;
        }
        let written_now = || {
            let file = File::open(entry.path()).ok()?;
            Some(matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
        };
        // A link of any name is not a file of ours; opening a pipe would wait for ever.
        if entry.file_type()?.is_file() && written_now() == Some(true) {
            continue;
        }
        match std::fs::remove_file(entry.path()) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_now_stays_and_what_was_left_goes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (left, other) = (".a.json.aB3dE6gH9jK2.unfinished", ".b.json.aB3dE6gH9jK2.unfinished");
        let write = |name: &str| std::fs::write(at(name), "half").unwrap();
        [left, other, "my.unfinished"].iter().for_each(|name| write(name));
        let written = File::open(at(left)).unwrap();
        written.lock().unwrap();
        remove_unfinished(folder.path()).unwrap();
        assert_eq!([left, other, "my.unfinished"].map(|name| at(name).exists()), [true, false, true]);
        drop(written);
        write(other);
        remove_unfinished_of(&at("a.json")).unwrap();
        assert_eq!([left, other].map(|name| at(name).exists()), [false, true]);
    }

    #[cfg(unix)]
    #[test]
    fn no_link_is_followed_and_nothing_but_a_regular_file_is_replaced() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("precious"), "mine").unwrap();
        symlink(at("precious"), at("link")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        for (name, what) in [("link", "a link"), ("folder", "a folder")] {
            let error = write_whole(&at(name), b"ours").unwrap_err().to_string();
            assert_eq!(error, format!("it is {what}, not a regular file, so it was not touched"));
        }
        // A link with the name of a temporary file is removed, but not its target.
        symlink(at("precious"), at(".new.aB3dE6gH9jK2.unfinished")).unwrap();
        write_whole(&at("new"), b"ours").unwrap();
        remove_unfinished(folder.path()).unwrap();
        assert_eq!(std::fs::read_to_string(at("precious")).unwrap(), "mine");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
        // Others may read it as they may read any new file.
        std::fs::write(at("usual"), "").unwrap();
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode();
        assert_eq!(mode("new"), mode("usual"));
    }
}
