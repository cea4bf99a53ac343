//! Algorithm selection for matrix products: the cached algorithm, or the fastest that cuBLASLt proposes.

use crate::autotune::bench::Trial;
use crate::autotune::select::fastest;
use crate::compile::disk_cache::Cache;
use crate::compile::step::Gemm;
use crate::gemm::algo_cache::AlgoCache;
use crate::gemm::cublaslt::{Blas, GemmAddresses, GemmDescriptor, Heuristic, PreparedGemm};
use crate::gemm::key::GemmKey;
use crate::runtime::device::{Device, DeviceContext};
use bilevel_graph::Result;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Products of at least this many multiplications are autotuned.
const MIN_TUNED_MULTIPLICATIONS: usize = 1 << 26;

/// Serialises autotuning. Threads may use the same GPU: concurrent trials would disturb each other, and two selections
/// for one product could differ in bits.
static CHOOSING: Mutex<()> = Mutex::new(());

/// cuBLASLt, and the products it is ready to launch.
pub(crate) struct GemmSelector {
    known: Arc<PreparedGemms>,
    /// The thread that prepares recently used products.
    early: Mutex<Option<JoinHandle<()>>>,
}

struct PreparedGemms {
    blas: Blas,
    algos: AlgoCache,
    /// By problem: the prepared product. Selection by the library takes time.
    ready: Mutex<HashMap<GemmKey, Arc<PreparedGemm>>>,
    /// Whether the library is closing.
    closing: AtomicBool,
}

impl GemmSelector {
    /// Opens the library, and starts preparing recently used products. The context must be current in the thread.
    pub fn open(context: DeviceContext, cache: &Cache, device: &str) -> Result<Self> {
        let blas = Blas::new()?;
        let algos = AlgoCache::new(cache, device, blas.version);
        let known = Arc::new(PreparedGemms { blas, algos, ready: Mutex::default(), closing: AtomicBool::new(false) });
        let at_work = known.clone();
        let early = std::thread::spawn(move || {
            if context.enter().is_ok() {
                at_work.prepare_recent();
            }
        });
        Ok(GemmSelector { known, early: Mutex::new(Some(early)) })
    }

    /// Closes the library.
    ///
    /// # Safety
    /// It must not be used afterwards.
    pub unsafe fn close(&self) {
        self.known.closing.store(true, Ordering::Relaxed);
        let early = self.early.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = early.map(JoinHandle::join);
        // SAFETY: the caller's promise; the only other thread that used it has ended.
        unsafe { self.known.blas.close() };
    }

    /// The library.
    pub fn blas(&self) -> &Blas {
        &self.known.blas
    }

    /// Prepares a product for a program.
    pub fn prepare(&self, product: &Gemm, device: &Arc<Device>) -> Result<Arc<PreparedGemm>> {
        self.known.algos.used(&GemmKey::new(product));
        self.ready(product, device)
    }

    /// Selects an algorithm for a product, unless its problem is already prepared.
    pub fn ready(&self, product: &Gemm, device: &Arc<Device>) -> Result<Arc<PreparedGemm>> {
        let (key, known) = (GemmKey::new(product), &*self.known);
        let chosen_before = || known.find(&key).or_else(|| known.kept(&key));
        if let Some(ready) = chosen_before() {
            return Ok(ready);
        }
        let _turn = CHOOSING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = chosen_before() {
            return Ok(ready);
        }
        let descriptor = GemmDescriptor::new(&key)?;
        let chosen = known.choose(descriptor, device)?;
        known.algos.put(&key, &chosen.algo());
        Ok(known.insert(chosen))
    }

    /// Writes the list of recent products, for the next process.
    pub fn flush(&self) {
        self.known.algos.flush();
    }
}

impl PreparedGemms {
    fn ready(&self) -> MutexGuard<'_, HashMap<GemmKey, Arc<PreparedGemm>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a prepared product.
    fn find(&self, key: &GemmKey) -> Option<Arc<PreparedGemm>> {
        self.ready().get(key).cloned()
    }

    /// If two threads prepare the same problem, both use the first result.
    fn insert(&self, prepared: PreparedGemm) -> Arc<PreparedGemm> {
        self.ready().entry(*prepared.key()).or_insert_with(|| Arc::new(prepared)).clone()
    }

    /// Prepares a product with its cached algorithm, if the library still supports it.
    fn kept(&self, key: &GemmKey) -> Option<Arc<PreparedGemm>> {
        let algo = self.algos.get(key)?;
        let prepared = self.blas.checked(GemmDescriptor::new(key).ok()?, algo)?;
        Some(self.insert(prepared))
    }

    /// Prepares recently used products.
    fn prepare_recent(&self) {
        for key in self.algos.recent() {
            if self.closing.load(Ordering::Relaxed) {
                return;
            }
            if self.find(&key).is_none() {
                let _ = self.kept(&key);
            }
        }
    }

    /// Returns the fastest proposed algorithm, by autotuning if that pays and can be cached; otherwise the library's
    /// first proposal.
    fn choose(&self, descriptor: GemmDescriptor, device: &Arc<Device>) -> Result<PreparedGemm> {
        let mut heuristics = self.blas.heuristics(&descriptor)?;
        let mut best = 0;
        if heuristics.len() > 1 && descriptor.key().work() >= MIN_TUNED_MULTIPLICATIONS && self.algos.keeps() {
            best = self.tried(&descriptor, &heuristics, device).ok().flatten().unwrap_or(0);
        }
        Ok(descriptor.computed(heuristics.swap_remove(best)))
    }

    /// Returns the index of the fastest; `None` if none runs.
    fn tried(
        &self,
        descriptor: &GemmDescriptor,
        heuristics: &[Heuristic],
        device: &Arc<Device>,
    ) -> Result<Option<usize>> {
        let key = descriptor.key();
        let [a, b, c] = key.extents();
        let trial = Trial::new(device, [a, b, c, key.workspace_bytes()])?;
        let start = |number: usize, branch: usize| -> Result<()> {
            let plain = GemmAddresses::plain(trial.places(branch));
            // A row of a bias is shorter than A.
            let addresses = GemmAddresses { bias: key.bias.then_some(plain.a), ..plain };
            // SAFETY: the addresses are those of operands of the product's size, and of its workspace.
            unsafe { self.blas.start(descriptor, &heuristics[number], &addresses, device.stream(branch)) }
        };
        Ok(fastest(&trial, heuristics.len(), start))
    }
}
