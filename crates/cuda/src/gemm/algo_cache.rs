//! The on-disk cache of GEMM algorithms: later processes use the same ones, to the same bits, without autotuning.
//!
//! Each GEMM has an entry. One more entry lists recently used GEMMs, which the next process prepares in the background
//! before its programs are known.

use crate::autotune::store::{Tunable, TuningStore};
use crate::compile::disk_cache::Cache;
use crate::gemm::key::{BYTES, GemmKey};
use std::sync::{Mutex, PoisonError};

/// An algorithm as cuBLASLt serialises it, valid for one version of the library.
pub(crate) type Algo = [u64; 8];

/// The maximum number of remembered GEMMs.
const MAX_RECENT_GEMMS: usize = 128;
/// Kinds of entries: the algorithm of a GEMM, and the recent GEMMs. Change the first if selection changes.
const PRODUCT: &str = "product with an epilogue, timed beside others in a graph";
const USED: &str = "recent products with epilogues";

impl Tunable for GemmKey {
    type Choice = Algo;

    fn kind(&self) -> &'static str {
        PRODUCT
    }

    fn descriptor(&self) -> Vec<u64> {
        self.words().to_vec()
    }

    fn write(choice: &Algo) -> Vec<u64> {
        choice.to_vec()
    }

    fn read(numbers: &[u64]) -> Option<Algo> {
        numbers.try_into().ok()
    }
}

/// The algorithms selected on one GPU model with one library version.
pub(crate) struct AlgoCache {
    kept: TuningStore,
    recent: Mutex<Recent>,
}

/// Recently used GEMMs, newest first.
struct Recent {
    products: Vec<GemmKey>,
    /// Whether the list differs from the one on disk.
    dirty: bool,
}

impl AlgoCache {
    pub fn new(cache: &Cache, device: &str, version: usize) -> Self {
        let kept = TuningStore::new(cache, device, version);
        let bytes = kept.bytes(USED, &[]).unwrap_or_default();
        let products = bytes.chunks_exact(BYTES).filter_map(|bytes| GemmKey::read(bytes.try_into().ok()?)).collect();
        AlgoCache { kept, recent: Mutex::new(Recent { products, dirty: false }) }
    }

    /// Returns true if entries can be stored.
    pub fn keeps(&self) -> bool {
        self.kept.keeps()
    }

    /// Returns the stored algorithm of a GEMM.
    pub fn get(&self, key: &GemmKey) -> Option<Algo> {
        self.kept.choice(key)
    }

    /// Stores the algorithm of a GEMM.
    pub fn put(&self, key: &GemmKey, algo: &Algo) {
        self.kept.put_choice(key, algo);
    }

    /// Returns the recently used GEMMs.
    pub fn recent(&self) -> Vec<GemmKey> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).products.clone()
    }

    /// Marks a GEMM as used.
    pub fn used(&self, key: &GemmKey) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if !recent.products.contains(key) {
            recent.products.insert(0, *key);
            recent.products.truncate(MAX_RECENT_GEMMS);
            recent.dirty = true;
        }
    }

    /// Writes the list of recent GEMMs to disk.
    pub fn flush(&self) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut recent.dirty) {
            let bytes: Vec<u8> = recent.products.iter().flat_map(GemmKey::bytes).collect();
            self.kept.put_bytes(USED, &[], &bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::key::tests::example;

    #[test]
    fn an_algorithm_is_found_only_by_the_same_gpu_and_version() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(Some(folder.path().join("kernels")));
        let (algos, algo) = (AlgoCache::new(&cache, "gpu", 7), [1, 2, 3, 4, 5, 6, 7, u64::MAX]);
        assert_eq!(algos.get(&example(1)), None);
        algos.put(&example(1), &algo);
        assert_eq!(AlgoCache::new(&cache, "gpu", 7).get(&example(1)), Some(algo));
        assert_eq!(AlgoCache::new(&cache, "gpu", 8).get(&example(1)), None);
        assert_eq!(AlgoCache::new(&cache, "another gpu", 7).get(&example(1)), None);
        assert_eq!(algos.get(&example(2)), None);
    }

    #[test]
    fn the_next_process_knows_which_products_were_used_lately_and_not_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(Some(folder.path().join("kernels")));
        let open = || AlgoCache::new(&cache, "gpu", 7);
        let algos = open();
        (1..=3).for_each(|batch| algos.used(&example(batch)));
        algos.used(&example(2));
        assert!(open().recent().is_empty());
        algos.flush();
        assert_eq!(open().recent(), [3, 2, 1].map(example));
        let next = open();
        (10..10 + MAX_RECENT_GEMMS).for_each(|batch| next.used(&example(batch)));
        next.flush();
        assert_eq!((open().recent().len(), open().recent()[0]), (MAX_RECENT_GEMMS, example(9 + MAX_RECENT_GEMMS)));
        assert!(AlgoCache::new(&cache, "gpu", 8).recent().is_empty());
    }
}
