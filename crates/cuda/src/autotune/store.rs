//! The tuning store: choices on disk, so that later processes make the same ones, to the same bits, without a trial.
//! Entries are valid for one GPU model and one library version.

use crate::compile::disk_cache::Cache;

/// A problem whose algorithm is selected by measurement.
pub(crate) trait Tunable {
    /// The algorithm.
    type Choice;

    /// Returns the kind of its entries. It must change if candidates or selection change.
    fn kind(&self) -> &'static str;

    /// Serialises the problem: problems with one descriptor have one choice.
    fn descriptor(&self) -> Vec<u64>;

    /// Serialises a choice.
    fn write(choice: &Self::Choice) -> Vec<u64>;

    /// Deserialises a choice; `None` if it is damaged.
    fn read(numbers: &[u64]) -> Option<Self::Choice>;
}

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

    /// Returns true if entries can be stored.
    pub fn keeps(&self) -> bool {
        self.cache.keeps()
    }

    /// Returns the cache key of an entry.
    fn key(&self, kind: &str, descriptor: &[u64]) -> String {
        let [device, version] = &self.of;
        Cache::key(&[kind.as_bytes(), &bytes_of(descriptor), device.as_bytes(), version.as_bytes()])
    }

    /// Returns the stored choice for a problem.
    pub fn choice<T: Tunable>(&self, problem: &T) -> Option<T::Choice> {
        let bytes = self.bytes(problem.kind(), &problem.descriptor())?;
        let (words, rest) = bytes.as_chunks::<8>();
        let numbers: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        if rest.is_empty() { T::read(&numbers) } else { None }
    }

    /// Stores the choice for a problem.
    pub fn put_choice<T: Tunable>(&self, problem: &T, choice: &T::Choice) {
        self.put_bytes(problem.kind(), &problem.descriptor(), &bytes_of(&T::write(choice)));
    }

    /// Returns the bytes of an entry of another kind.
    pub fn bytes(&self, kind: &str, descriptor: &[u64]) -> Option<Vec<u8>> {
        self.cache.get(&self.key(kind, descriptor))
    }

    /// Stores the bytes of an entry of another kind.
    pub fn put_bytes(&self, kind: &str, descriptor: &[u64], bytes: &[u8]) {
        self.cache.put(&self.key(kind, descriptor), bytes);
    }
}

fn bytes_of(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A problem of this kind and number, whose choice is any three numbers.
    struct Example(&'static str, u64);

    impl Tunable for Example {
        type Choice = [u64; 3];

        fn kind(&self) -> &'static str {
            self.0
        }

        fn descriptor(&self) -> Vec<u64> {
            vec![self.1]
        }

        fn write(choice: &[u64; 3]) -> Vec<u64> {
            choice.to_vec()
        }

        fn read(numbers: &[u64]) -> Option<[u64; 3]> {
            numbers.try_into().ok()
        }
    }

    #[test]
    fn a_choice_is_found_for_its_problem_gpu_and_version_alone() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(Some(folder.path().join("kernels")));
        let store = TuningStore::new(&cache, "gpu", 7);
        store.put_choice(&Example("kind", 5), &[1, u64::MAX, 3]);
        assert_eq!(TuningStore::new(&cache, "gpu", 7).choice(&Example("kind", 5)), Some([1, u64::MAX, 3]));
        for (problem, device, version) in [
            (Example("other", 5), "gpu", 7),
            (Example("kind", 6), "gpu", 7),
            (Example("kind", 5), "other", 7),
            (Example("kind", 5), "gpu", 8),
        ] {
            assert_eq!(TuningStore::new(&cache, device, version).choice(&problem), None);
        }
    }

    #[test]
    fn a_damaged_choice_is_none_and_nothing_is_stored_without_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let store = TuningStore::new(&Cache::at(Some(folder.path().join("kernels"))), "gpu", 7);
        for length in [0, 15, 16, 23, 25, 32] {
            store.put_bytes("kind", &[5], &vec![1; length]);
            assert_eq!(store.choice(&Example("kind", 5)), None, "{length} bytes");
            assert_eq!(store.bytes("kind", &[5]), Some(vec![1; length]));
        }
        let nowhere = TuningStore::new(&Cache::at(None), "gpu", 7);
        nowhere.put_choice(&Example("kind", 5), &[1, 2, 3]);
        assert_eq!((nowhere.keeps(), nowhere.choice(&Example("kind", 5))), (false, None));
    }
}
