//! The tuning store: choices on disk, so that later processes make the same ones, to the same bits, without a trial.
//! Entries are valid for one GPU model and one library version.

use crate::compile::disk_cache::Cache;

/// The choices on one GPU model with one library version.
pub(crate) struct TuningStore {
    cache: Cache,
    /// The GPU and the library.
    of: [String; 2],
}

impl TuningStore {
    pub fn new(cache: &Cache, device: &str, version: usize) -> Self {
        TuningStore { cache: cache.clone(), of: [device.to_string(), version.to_string()] }
    }

    /// True if entries can be stored.
    pub fn keeps(&self) -> bool {
        self.cache.keeps()
    }

    /// Returns the cache key of an entry.
    fn key(&self, kind: &str, what: &str) -> String {
        let [device, version] = &self.of;
        Cache::key(&[kind, what, device, version])
    }

    /// Returns the bytes of an entry.
    pub fn bytes(&self, kind: &str, what: &str) -> Option<Vec<u8>> {
        self.cache.get(&self.key(kind, what))
    }

    /// Stores the bytes of an entry.
    pub fn put_bytes(&self, kind: &str, what: &str, bytes: &[u8]) {
        self.cache.put(&self.key(kind, what), bytes);
    }

    /// As [`bytes`](Self::bytes), if they are a sequence of 64-bit numbers.
    pub fn numbers(&self, kind: &str, what: &str) -> Option<Vec<u64>> {
        let bytes = self.bytes(kind, what)?;
        let (words, rest) = bytes.as_chunks::<8>();
        rest.is_empty().then(|| words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// As [`put_bytes`](Self::put_bytes).
    pub fn put_numbers(&self, kind: &str, what: &str, numbers: &[u64]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.put_bytes(kind, what, &bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_under_all_that_they_were_kept_for_and_under_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(Some(folder.path().join("kernels")));
        let kept = TuningStore::new(&cache, "gpu", 7);
        kept.put_numbers("kind", "what", &[1, u64::MAX, 3]);
        assert_eq!(TuningStore::new(&cache, "gpu", 7).numbers("kind", "what"), Some(vec![1, u64::MAX, 3]));
        for (kind, what, device, version) in [
            ("other", "what", "gpu", 7),
            ("kind", "other", "gpu", 7),
            ("kind", "what", "other", 7),
            ("kind", "what", "gpu", 8),
        ] {
            assert_eq!(TuningStore::new(&cache, device, version).numbers(kind, what), None);
        }
    }

    #[test]
    fn bytes_that_are_no_whole_numbers_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let kept = TuningStore::new(&Cache::at(Some(folder.path().join("kernels"))), "gpu", 7);
        kept.put_bytes("kind", "what", &[1; 15]);
        assert_eq!((kept.numbers("kind", "what"), kept.bytes("kind", "what")), (None, Some(vec![1; 15])));
        let nowhere = TuningStore::new(&Cache::at(None), "gpu", 7);
        nowhere.put_numbers("kind", "what", &[1]);
        assert_eq!((nowhere.keeps(), nowhere.numbers("kind", "what")), (false, None));
    }
}
