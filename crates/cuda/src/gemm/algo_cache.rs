//! The ways in which products are computed, on disk beside the kernels, so that a later process takes the same, to the
//! same bits, without asking the library again.
//!
//! Each product has an entry of its own. One more has the products that processes used lately: the next one can get
//! them ready before it knows what its programs need.

use crate::autotune::store::TuningStore;
use crate::compile::disk_cache::Cache;
use crate::gemm::key::{BYTES, GemmKey};
use std::sync::{Mutex, PoisonError};

/// A way as the library writes it: its meaning is the library's own, and holds for one version of it.
pub(crate) type Algo = [u64; 8];

/// Products that are remembered as used lately.
const MAX_RECENT_GEMMS: usize = 128;
/// Kinds of what is kept: the way of a product, and which were used lately. The first is another where ways are chosen
/// otherwise.
const PRODUCT: &str = "product timed beside others in a graph";
const USED: &str = "recent products";

/// What was chosen on one kind of GPU with one version of the library.
pub(crate) struct AlgoCache {
    kept: TuningStore,
    recent: Mutex<Recent>,
}

/// Products that were used lately, the last first.
struct Recent {
    products: Vec<GemmKey>,
    /// They are not those on disk.
    dirty: bool,
}

impl AlgoCache {
    pub fn new(cache: &Cache, device: &str, version: usize) -> Self {
        let kept = TuningStore::new(cache, device, version);
        let bytes = kept.bytes(USED, "").unwrap_or_default();
        let products = bytes.chunks_exact(BYTES).filter_map(|bytes| GemmKey::read(bytes.try_into().ok()?)).collect();
        AlgoCache { kept, recent: Mutex::new(Recent { products, dirty: false }) }
    }

    /// True if something can be kept.
    pub fn keeps(&self) -> bool {
        self.kept.keeps()
    }

    /// What was chosen for a product, if it is known.
    pub fn get(&self, key: &GemmKey) -> Option<Algo> {
        self.kept.numbers(PRODUCT, &format!("{key:?}"))?.try_into().ok()
    }

    /// Keeps what was chosen for a product.
    pub fn put(&self, key: &GemmKey, algo: &Algo) {
        self.kept.put_numbers(PRODUCT, &format!("{key:?}"), algo);
    }

    /// Products that were used lately.
    pub fn recent(&self) -> Vec<GemmKey> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).products.clone()
    }

    /// Says that a product is used.
    pub fn used(&self, key: &GemmKey) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if !recent.products.contains(key) {
            recent.products.insert(0, *key);
            recent.products.truncate(MAX_RECENT_GEMMS);
            recent.dirty = true;
        }
    }

    /// Keeps which products were used lately.
    pub fn flush(&self) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut recent.dirty) {
            let bytes: Vec<u8> = recent.products.iter().flat_map(GemmKey::bytes).collect();
            self.kept.put_bytes(USED, "", &bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::key::tests::example;

    #[test]
    fn a_way_is_found_by_the_same_gpu_and_version_alone_and_a_damaged_one_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(Some(folder.path().join("kernels")));
        let (algos, algo) = (AlgoCache::new(&cache, "gpu", 7), [1, 2, 3, 4, 5, 6, 7, u64::MAX]);
        assert_eq!(algos.get(&example(1)), None);
        algos.put(&example(1), &algo);
        assert_eq!(AlgoCache::new(&cache, "gpu", 7).get(&example(1)), Some(algo));
        assert_eq!(AlgoCache::new(&cache, "gpu", 8).get(&example(1)), None);
        assert_eq!(AlgoCache::new(&cache, "another gpu", 7).get(&example(1)), None);
        assert_eq!(algos.get(&example(2)), None);
        for length in [0, 8, 63, 65, 72] {
            algos.kept.put_bytes(PRODUCT, &format!("{:?}", example(1)), &vec![1; length]);
            assert_eq!(algos.get(&example(1)), None, "{length} bytes");
        }
        algos.put(&example(1), &algo);
        assert_eq!(algos.get(&example(1)), Some(algo));
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
