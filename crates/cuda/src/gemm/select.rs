//! Which way each matrix product is computed: the one that was kept, or else the fastest of those the library offers.

use crate::autotune::bench::Trial;
use crate::autotune::select::fastest;
use crate::compile::disk_cache::Cache;
use crate::compile::step::Product;
use crate::gemm::algo_cache::Ways;
use crate::gemm::cublaslt::{Blas, Described, Offer, Prepared};
use crate::gemm::key::Alike;
use crate::runtime::device::{Context, Device};
use bilevel_graph::Result;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Multiplications from which the best way is worth a trial.
const TRIED: usize = 1 << 26;

/// Held by who chooses. Threads have GPUs of their own, which may be the same GPU: trials at once would disturb each other, and two choices
/// for one product would be other bits.
static CHOOSING: Mutex<()> = Mutex::new(());

/// The library of products, and the products it is ready to compute.
pub(crate) struct Products {
    known: Arc<Known>,
    /// Who gets products ready that were used lately.
    early: Mutex<Option<JoinHandle<()>>>,
}

struct Known {
    blas: Blas,
    ways: Ways,
    /// One for all products that are alike: a network has many, and the library takes its time to choose.
    ready: Mutex<HashMap<Alike, Arc<Prepared>>>,
    /// Nothing more is wanted.
    closing: AtomicBool,
}

impl Products {
    /// Opens the library, and begins to get the products ready that were used lately. The context must be the thread's own.
    pub fn open(context: Context, cache: &Cache, device: &str) -> Result<Self> {
        let blas = Blas::new()?;
        let ways = Ways::new(cache, device, blas.version);
        let known = Arc::new(Known { blas, ways, ready: Mutex::default(), closing: AtomicBool::new(false) });
        let at_work = known.clone();
        let early = std::thread::spawn(move || {
            if context.enter().is_ok() {
                at_work.prepare_recent();
            }
        });
        Ok(Products { known, early: Mutex::new(Some(early)) })
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
    pub fn prepare(&self, product: &Product, device: &Arc<Device>) -> Result<Arc<Prepared>> {
        self.known.ways.used(&Alike::new(product));
        self.ready(product, device)
    }

    /// Describes a product to the library and chooses how to compute it, unless one like it is ready.
    pub fn ready(&self, product: &Product, device: &Arc<Device>) -> Result<Arc<Prepared>> {
        let (alike, known) = (Alike::new(product), &*self.known);
        let chosen_before = || known.find(&alike).or_else(|| known.kept(&alike));
        if let Some(ready) = chosen_before() {
            return Ok(ready);
        }
        let _turn = CHOOSING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = chosen_before() {
            return Ok(ready);
        }
        let described = Described::new(&alike)?;
        let chosen = known.choose(described, device)?;
        known.ways.put(&alike, &chosen.way());
        Ok(known.insert(chosen))
    }

    /// Keeps which products are used, for the next process.
    pub fn keep_recent(&self) {
        self.known.ways.keep_recent();
    }
}

impl Known {
    fn ready(&self) -> MutexGuard<'_, HashMap<Alike, Arc<Prepared>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A product that is ready.
    fn find(&self, alike: &Alike) -> Option<Arc<Prepared>> {
        self.ready().get(alike).cloned()
    }

    /// Where two threads come with the same product, both use what the first has chosen.
    fn insert(&self, prepared: Prepared) -> Arc<Prepared> {
        self.ready().entry(*prepared.alike()).or_insert_with(|| Arc::new(prepared)).clone()
    }

    /// A product in the way that was kept for it, if the library still can do it so.
    fn kept(&self, alike: &Alike) -> Option<Arc<Prepared>> {
        let way = self.ways.get(alike)?;
        let prepared = self.blas.checked(Described::new(alike).ok()?, way)?;
        Some(self.insert(prepared))
    }

    /// Gets the products ready that were used lately.
    fn prepare_recent(&self) {
        for alike in self.ways.recent() {
            if self.closing.load(Ordering::Relaxed) {
                return;
            }
            if self.find(&alike).is_none() {
                let _ = self.kept(&alike);
            }
        }
    }

    /// The fastest of the ways the library offers, by trial where that pays and what is found can be kept; else what the library thinks
    /// is fastest.
    fn choose(&self, described: Described, device: &Arc<Device>) -> Result<Prepared> {
        let mut offers = self.blas.offers(&described)?;
        let mut best = 0;
        if offers.len() > 1 && described.alike().work() >= TRIED && self.ways.keeps() {
            best = self.tried(&described, &offers, device).ok().flatten().unwrap_or(0);
        }
        Ok(described.computed(offers.swap_remove(best)))
    }

    /// The number of the fastest; none where none can be run.
    fn tried(&self, described: &Described, offers: &[Offer], device: &Arc<Device>) -> Result<Option<usize>> {
        let alike = described.alike();
        let [a, b, c] = alike.extents();
        let trial = Trial::new(device, [a, b, c, alike.workspace_bytes()])?;
        let start = |number: usize, branch: usize| -> Result<()> {
            // SAFETY: the places are those of operands of the product's size, and of its workspace.
            unsafe { self.blas.start(described, &offers[number], trial.places(branch), device.stream(branch)) }
        };
        Ok(fastest(&trial, offers.len(), start))
    }
}
