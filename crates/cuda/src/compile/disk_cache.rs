//! The disk cache: one file per entry, named by a hash of its key. Damaged or truncated files are ignored.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The first bytes of a file.
const MAGIC: &[u8; 8] = b"bilevel1";

/// A cache folder; without one, nothing is stored.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// Opens the folder in `BILEVEL_CACHE`, or the default folder among the user's caches.
    pub fn of_user() -> Self {
        let named = std::env::var_os("BILEVEL_CACHE").map(PathBuf::from);
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
        Cache::at(named.or(cache.map(|cache| cache.join("bilevel"))).map(|folder| folder.join("kernels")))
    }

    /// Opens a folder, created if necessary, that only its owner can read or write.
    pub fn at(folder: Option<PathBuf>) -> Self {
        Cache { folder: folder.filter(|folder| make_private(folder)) }
    }

    /// Returns the key of an entry made from these parts.
    pub fn key<P: AsRef<[u8]>>(parts: &[P]) -> String {
        let mut hash = Sha256::new();
        for part in parts {
            let part = part.as_ref();
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Returns true if entries can be stored.
    pub fn keeps(&self) -> bool {
        self.folder.is_some()
    }

    /// Returns an entry, if it is complete.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let bytes = std::fs::read(self.folder.as_ref()?.join(key)).ok()?;
        let (magic, rest) = bytes.split_at_checked(MAGIC.len())?;
        let (sum, content) = rest.split_at_checked(32)?;
        let whole = magic == MAGIC && sum == &Sha256::digest(content)[..];
        whole.then(|| content.to_vec())
    }

    /// Stores an entry. Write failures are ignored: the next process computes it again.
    pub fn put(&self, key: &str, content: &[u8]) {
        let Some(folder) = &self.folder else { return };
        let write = || -> std::io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(MAGIC)?;
            file.write_all(&Sha256::digest(content))?;
            file.write_all(content)?;
            file.persist(folder.join(key))?;
            Ok(())
        };
        let _ = write();
    }
}

/// Returns true if the folder exists and only its owner has access.
fn make_private(folder: &Path) -> bool {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).is_ok() && folder.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_entry_is_found_unless_a_byte_of_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(Some(folder.path().join("kernels")));
        let key = Cache::key(&["source", "sm_90"]);
        assert_eq!(cache.get(&key), None);
        cache.put(&key, b"machine code");
        assert_eq!(cache.get(&key).unwrap(), b"machine code");
        let path = folder.path().join("kernels").join(&key);
        let good = std::fs::read(&path).unwrap();
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 1;
            std::fs::write(&path, bad).unwrap();
            assert_eq!(cache.get(&key), None, "byte {place}");
            std::fs::write(&path, &good[..place]).unwrap();
            assert_eq!(cache.get(&key), None, "cut to {place}");
        }
        cache.put(&key, b"machine code");
        assert_eq!(cache.get(&key).unwrap(), b"machine code");
    }

    #[test]
    fn a_folder_that_cannot_be_had_keeps_nothing_and_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = Cache::at(Some(file.path().join("kernels")));
        cache.put("key", b"content");
        assert_eq!(cache.get("key"), None);
    }

    #[test]
    fn parts_that_are_cut_elsewhere_have_another_name() {
        assert_ne!(Cache::key(&["ab", "c"]), Cache::key(&["a", "bc"]));
    }
}
