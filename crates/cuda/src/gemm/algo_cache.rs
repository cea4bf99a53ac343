//! The ways in which products are computed, on disk beside the kernels, so that a later process takes the same, to the same bits,
//! without asking the library again.
//!
//! Each product has an entry of its own. One more has the products that processes used lately: the next one can get them ready before it
//! knows what its programs need.

use crate::autotune::store::Kept;
use crate::compile::disk_cache::Cache;
use crate::gemm::key::{Alike, BYTES};
use std::sync::{Mutex, PoisonError};

/// A way as the library writes it: its meaning is the library's own, and holds for one version of it.
pub(crate) type Way = [u64; 8];

/// Products that are remembered as used lately.
const RECENT: usize = 128;
/// Kinds of what is kept: the way of a product, and which were used lately. The first is another where ways are chosen otherwise.
const PRODUCT: &str = "product timed beside others in a graph";
const USED: &str = "recent products";

/// What was chosen on one kind of GPU with one version of the library.
pub(crate) struct Ways {
    kept: Kept,
    recent: Mutex<Recent>,
}

/// Products that were used lately, the last first.
struct Recent {
    products: Vec<Alike>,
    /// They are not those on disk.
    changed: bool,
}

impl Ways {
    pub fn new(cache: &Cache, device: &str, version: usize) -> Self {
        let kept = Kept::new(cache, device, version);
        let bytes = kept.bytes(USED, "").unwrap_or_default();
        let products = bytes.chunks_exact(BYTES).filter_map(|bytes| Alike::read(bytes.try_into().ok()?)).collect();
        Ways { kept, recent: Mutex::new(Recent { products, changed: false }) }
    }

    /// True where something can be kept.
    pub fn keeps(&self) -> bool {
        self.kept.keeps()
    }

    /// What was chosen for a product, if it is known.
    pub fn get(&self, alike: &Alike) -> Option<Way> {
        self.kept.numbers(PRODUCT, &format!("{alike:?}"))?.try_into().ok()
    }

    /// Keeps what was chosen for a product.
    pub fn put(&self, alike: &Alike, way: &Way) {
        self.kept.put_numbers(PRODUCT, &format!("{alike:?}"), way);
    }

    /// Products that were used lately.
    pub fn recent(&self) -> Vec<Alike> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).products.clone()
    }

    /// Says that a product is used.
    pub fn used(&self, alike: &Alike) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if !recent.products.contains(alike) {
            recent.products.insert(0, *alike);
            recent.products.truncate(RECENT);
            recent.changed = true;
        }
    }

    /// Keeps which products were used lately.
    pub fn keep_recent(&self) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut recent.changed) {
            let bytes: Vec<u8> = recent.products.iter().flat_map(Alike::bytes).collect();
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
        let (ways, way) = (Ways::new(&cache, "gpu", 7), [1, 2, 3, 4, 5, 6, 7, u64::MAX]);
        assert_eq!(ways.get(&example(1)), None);
        ways.put(&example(1), &way);
        assert_eq!(Ways::new(&cache, "gpu", 7).get(&example(1)), Some(way));
        assert_eq!(Ways::new(&cache, "gpu", 8).get(&example(1)), None);
        assert_eq!(Ways::new(&cache, "another gpu", 7).get(&example(1)), None);
        assert_eq!(ways.get(&example(2)), None);
        for length in [0, 8, 63, 65, 72] {
            ways.kept.put_bytes(PRODUCT, &format!("{:?}", example(1)), &vec![1; length]);
            assert_eq!(ways.get(&example(1)), None, "{length} bytes");
        }
        ways.put(&example(1), &way);
        assert_eq!(ways.get(&example(1)), Some(way));
    }

    #[test]
    fn the_next_process_knows_which_products_were_used_lately_and_not_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(Some(folder.path().join("kernels")));
        let open = || Ways::new(&cache, "gpu", 7);
        let ways = open();
        (1..=3).for_each(|batch| ways.used(&example(batch)));
        ways.used(&example(2));
        assert!(open().recent().is_empty());
        ways.keep_recent();
        assert_eq!(open().recent(), [3, 2, 1].map(example));
        let next = open();
        (10..10 + RECENT).for_each(|batch| next.used(&example(batch)));
        next.keep_recent();
        assert_eq!((open().recent().len(), open().recent()[0]), (RECENT, example(9 + RECENT)));
        assert!(Ways::new(&cache, "gpu", 8).recent().is_empty());
    }
}
