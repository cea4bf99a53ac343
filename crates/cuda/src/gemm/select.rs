//! Which way each matrix product is computed: the one that was kept, or else the fastest of those the library offers.

use crate::autotune::bench::Trial;
use crate::autotune::select::fastest;
use crate::compile::disk_cache::Cache;
use crate::compile::step::Gemm;
use crate::gemm::algo_cache::AlgoCache;
use crate::gemm::cublaslt::{Blas, GemmDescriptor, Heuristic, PreparedGemm};
use crate::gemm::key::GemmKey;
use crate::runtime::device::{Device, DeviceContext};
use bilevel_graph::Result;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Multiplications from which the best way is worth a trial.
const MIN_TUNED_MULTIPLICATIONS: usize = 1 << 26;

/// Held by who chooses. Threads have GPUs of their own, which may be the same GPU: trials at once would disturb each
/// other, and two choices for one product would be other bits.
static CHOOSING: Mutex<()> = Mutex::new(());

/// The library of products, and the products it is ready to compute.
pub(crate) struct GemmSelector {
    known: Arc<PreparedGemms>,
    /// Who gets products ready that were used lately.
    early: Mutex<Option<JoinHandle<()>>>,
}

struct PreparedGemms {
    blas: Blas,
    algos: AlgoCache,
    /// One for all products that are alike: a network has many, and the library takes its time to choose.
    ready: Mutex<HashMap<GemmKey, Arc<PreparedGemm>>>,
    /// Nothing more is wanted.
    closing: AtomicBool,
}

impl GemmSelector {
    /// Opens the library, and begins to get the products ready that were used lately. The context must be the thread's
    /// own.
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
    /// Nobody may use it afterwards.
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

    /// Makes a product ready that a program uses.
    pub fn prepare(&self, product: &Gemm, device: &Arc<Device>) -> Result<Arc<PreparedGemm>> {
        self.known.algos.used(&GemmKey::new(product));
        self.ready(product, device)
    }

    /// Describes a product to the library and chooses how to compute it, unless one like it is ready.
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

    /// Keeps which products are used, for the next process.
    pub fn flush(&self) {
        self.known.algos.flush();
    }
}

impl PreparedGemms {
    fn ready(&self) -> MutexGuard<'_, HashMap<GemmKey, Arc<PreparedGemm>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A product that is ready.
    fn find(&self, key: &GemmKey) -> Option<Arc<PreparedGemm>> {
        self.ready().get(key).cloned()
    }

    /// Where two threads come with the same product, both use what the first has chosen.
    fn insert(&self, prepared: PreparedGemm) -> Arc<PreparedGemm> {
        self.ready().entry(*prepared.key()).or_insert_with(|| Arc::new(prepared)).clone()
    }

    /// A product in the way that was kept for it, if the library still can do it so.
    fn kept(&self, key: &GemmKey) -> Option<Arc<PreparedGemm>> {
        let algo = self.algos.get(key)?;
        let prepared = self.blas.checked(GemmDescriptor::new(key).ok()?, algo)?;
        Some(self.insert(prepared))
    }

    /// Gets the products ready that were used lately.
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

    /// The fastest of the ways the library offers, by trial where that pays and what is found can be kept; else what
    /// the library thinks is fastest.
    fn choose(&self, descriptor: GemmDescriptor, device: &Arc<Device>) -> Result<PreparedGemm> {
        let mut heuristics = self.blas.heuristics(&descriptor)?;
        let mut best = 0;
        if heuristics.len() > 1 && descriptor.key().work() >= MIN_TUNED_MULTIPLICATIONS && self.algos.keeps() {
            best = self.tried(&descriptor, &heuristics, device).ok().flatten().unwrap_or(0);
        }
        Ok(descriptor.computed(heuristics.swap_remove(best)))
    }

    /// The number of the fastest; none if none can be run.
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
            // SAFETY: the places are those of operands of the product's size, and of its workspace.
            unsafe { self.blas.start(descriptor, &heuristics[number], trial.places(branch), device.stream(branch)) }
        };
        Ok(fastest(&trial, heuristics.len(), start))
    }
}
