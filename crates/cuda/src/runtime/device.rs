//! A GPU with its one queue of work, and what the programs on it share: kernels that were loaded, and scratch memory.

use crate::compile::disk_cache::Cache;
use crate::compile::nvrtc::{Architecture, compile_all};
use crate::compile::stats::Clock;
use crate::conv::cudnn::Dnn;
use crate::gemm::select::GemmSelector;
use crate::runtime::dynlib::{Missing, open_meanwhile, require};
use crate::schedule::loop_pipeline::PIPELINE_STREAMS;
use bilevel_graph::{Error, ErrorKind, Result};
use bilevel_plan::internal_error;
use cudarc::driver::{result, sys};
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// Streams that the branches of a step can use.
pub(crate) const STREAMS: usize = 3;
/// The priority of streams whose work comes first; others have 0, and more urgent is less.
const HIGH_PRIORITY: i32 = -1;
/// The number of the queue among the streams of a GPU.
pub(crate) const QUEUE: usize = 0;
/// The number of the first stream that work is recorded on.
pub(crate) const BRANCH: usize = 1;

/// The error for a call of the driver that failed.
pub(crate) fn failed(what: &str, error: result::DriverError) -> Error {
    let said = error.error_string().ok().map(|text| text.to_string_lossy().into_owned());
    let said = said.unwrap_or_else(|| format!("{:?}", error.0));
    Error::new(ErrorKind::Device { what: format!("the GPU could not {what}: {said}") })
}

/// A GPU. All work on it is put in one queue, in which it runs in order.
pub(crate) struct Device {
    pub ordinal: usize,
    pub name: String,
    pub architecture: Architecture,
    pub total_bytes: usize,
    handle: sys::CUdevice,
    context: sys::CUcontext,
    /// The queue, then the streams that branches of a graph are recorded on. Other threads have and free memory in the
    /// queue, and read and write it, which must not become part of a recording.
    streams: Vec<sys::CUstream>,
    products: OnceLock<Result<GemmSelector>>,
    /// Who opens the library of products, until somebody waits for it.
    opening: Mutex<Option<JoinHandle<Result<GemmSelector>>>>,
    dnn: OnceLock<Option<Dnn>>,
    pub cache: Cache,
    kernels: Mutex<Kernels>,
    /// A claim on some kernels was given up: they are there, or could not be had.
    loaded: Condvar,
    scratch: Mutex<Scratch>,
    /// The most bytes of scratch memory that a program so far was planned to take.
    scratch_bytes: AtomicUsize,
    to_host: AtomicU64,
    to_device: AtomicU64,
    pub clock: Clock,
}

/// Kernels that were loaded, by their text, and the code they are part of, by the name under which it is kept.
#[derive(Default)]
struct Kernels {
    by_text: HashMap<String, Function>,
    modules: HashMap<String, sys::CUmodule>,
    /// Texts that a thread compiles now.
    claimed: HashSet<String>,
}

/// A kernel that was loaded.
#[derive(Clone, Copy)]
pub(crate) struct Function(pub sys::CUfunction);

// SAFETY: the driver's handles may be used from any thread, with the context made current first.
unsafe impl Send for Function {}
// SAFETY: as for `Function`.
unsafe impl Send for Device {}
// SAFETY: the driver's calls may be made from several threads at once. What more is needed, such as order among those
// that put work in the queue, is behind locks.
unsafe impl Sync for Device {}

/// Memory that runs use in turn. Its holder may put work in the queue.
#[derive(Default)]
pub(crate) struct Scratch {
    memory: Option<DeviceMemory>,
}

impl Scratch {
    /// Memory of at least this many bytes: what is there, or else as much as the programs planned so far will need if
    /// that can be had.
    pub fn reserve(&mut self, device: &Arc<Device>, bytes: usize) -> Result<sys::CUdeviceptr> {
        if self.memory.as_ref().is_none_or(|memory| memory.bytes < bytes) {
            self.memory = None;
            let most = device.scratch_bytes.load(Ordering::Relaxed).max(bytes);
            self.memory = Some(DeviceMemory::new(device, most).or_else(|_| DeviceMemory::new(device, bytes))?);
        }
        Ok(self.start())
    }

    /// The address of what is there.
    pub fn start(&self) -> sys::CUdeviceptr {
        self.memory.as_ref().map_or(0, |memory| memory.start)
    }
}

/// Memory of a GPU.
pub(crate) struct DeviceMemory {
    device: std::sync::Weak<Device>,
    pub start: sys::CUdeviceptr,
    pub bytes: usize,
}

impl DeviceMemory {
    /// Of this many bytes, not cleared.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Self> {
        device.enter()?;
        // SAFETY: the context is current; memory is freed when this is dropped, in the order of the queue.
        let start = unsafe { result::malloc_async(device.queue(), bytes.max(256)) }.map_err(|error| {
            if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                Error::new(ErrorKind::OutOfMemory { needed: bytes as u64, free: device.free_bytes() })
            } else {
                failed("give memory", error)
            }
        })?;
        Ok(DeviceMemory { device: Arc::downgrade(device), start, bytes })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade()
            && device.enter().is_ok()
        {
            // SAFETY: made by this queue, and everything that used it was put in the queue before.
            let _ = unsafe { result::free_async(self.start, device.queue()) };
        }
    }
}

impl Device {
    /// Number of GPUs the driver knows.
    pub fn count() -> Result<usize> {
        require(Missing::Driver)?;
        result::init().map_err(|e| failed("be used", e))?;
        let count = result::device::get_count().map_err(|e| failed("be counted", e))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Opens a GPU.
    pub fn open(ordinal: usize) -> Result<Arc<Self>> {
        require(Missing::Driver)?;
        open_meanwhile();
        let count = Self::count()?;
        if ordinal >= count {
            let what = match count {
                0 => "there is no NVIDIA GPU on this machine; use --device cpu".to_string(),
                1 => format!("there is no GPU {ordinal}; the only one is GPU 0"),
                _ => format!("there is no GPU {ordinal}; there are {count}, from 0 to {}", count - 1),
            };
            return Err(Error::new(ErrorKind::Device { what }));
        }
        let (handle, name, architecture, total_bytes) = Self::look(ordinal)?;
        // SAFETY: the device exists; its context is released when this is dropped, after all that was made in it.
        unsafe {
            let context = result::primary_ctx::retain(handle).map_err(|e| failed("be opened", e))?;
            result::ctx::set_current(context).map_err(|e| failed("be opened", e))?;
            if let Err(missing) = require(Missing::Nvrtc).and_then(|()| require(Missing::CublasLt)) {
                let _ = result::primary_ctx::release(handle);
                return Err(missing.into());
            }
            let mut streams = vec![];
            for number in 0..BRANCH + PIPELINE_STREAMS {
                // What a chain of steps waits for the longest comes first.
                let priority = if (BRANCH..BRANCH + STREAMS).contains(&number) { HIGH_PRIORITY } else { 0 };
                let (mut stream, kind) = (std::ptr::null_mut(), sys::CUstream_flags::CU_STREAM_NON_BLOCKING);
                let made = sys::cuStreamCreateWithPriority(&mut stream, kind as u32, priority).result();
                streams.push(made.map(|()| stream).map_err(|e| failed("make a queue", e))?);
            }
            // Memory that was given back stays with the process, so that it can be had again at once.
            if let Ok(pool) = result::device::get_mem_pool(handle) {
                let mut keep = u64::MAX;
                let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
                let _ = sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut keep).cast());
            }
            let (cache, kernels, scratch) = (Cache::of_user(), Mutex::default(), Mutex::default());
            let opening = Mutex::new(Some(open_products(DeviceContext(context), cache.clone(), name.clone())));
            let device = Device {
                ordinal,
                name,
                architecture,
                total_bytes,
                handle,
                context,
                streams,
                products: OnceLock::new(),
                opening,
                dnn: OnceLock::new(),
                cache,
                kernels,
                loaded: Condvar::new(),
                scratch,
                scratch_bytes: AtomicUsize::new(0),
                to_host: AtomicU64::new(0),
                to_device: AtomicU64::new(0),
                clock: Clock::default(),
            };
            Ok(Arc::new(device))
        }
    }

    /// Handle, name, kind and memory of a GPU, without opening it.
    pub fn look(ordinal: usize) -> Result<(sys::CUdevice, String, Architecture, usize)> {
        use sys::CUdevice_attribute_enum as A;
        let handle = result::device::get(ordinal as i32).map_err(|e| failed("be found", e))?;
        let name = result::device::get_name(handle).map_err(|e| failed("say its name", e))?;
        // SAFETY: the device exists.
        let (major, minor, bytes) = unsafe {
            let number =
                |attribute| result::device::get_attribute(handle, attribute).map_err(|e| failed("say its kind", e));
            let major = number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
            let minor = number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
            (major, minor, result::device::total_mem(handle).map_err(|e| failed("say its memory", e))?)
        };
        Ok((handle, name, Architecture((major * 10 + minor) as u32), bytes))
    }

    /// Makes the GPU the one that this thread talks to.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the context lives as long as the device.
        unsafe { result::ctx::set_current(self.context) }.map_err(|e| failed("be used", e))
    }

    /// The queue.
    pub fn queue(&self) -> sys::CUstream {
        self.streams[QUEUE]
    }

    /// The stream with this number: [`QUEUE`], or one of a branch, from [`BRANCH`] on.
    pub fn stream(&self, number: usize) -> sys::CUstream {
        self.streams[number]
    }

    /// Waits until everything in the queue is done.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the queue lives as long as the device.
        unsafe { result::stream::synchronize(self.queue()) }.map_err(|e| failed("finish its work", e))
    }

    /// Bytes that can still be had: those the driver has, and those this process gave back.
    pub fn free_bytes(&self) -> Option<u64> {
        use sys::CUmemPool_attribute as A;
        self.enter().ok()?;
        let (free, _) = result::mem_get_info().ok()?;
        // SAFETY: the pool is the device's own, and both attributes are 64-bit numbers.
        let idle = unsafe {
            let pool = result::device::get_mem_pool(self.handle).ok()?;
            let (mut reserved, mut used) = (0u64, 0u64);
            let _ =
                sys::cuMemPoolGetAttribute(pool, A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, (&raw mut reserved).cast());
            let _ = sys::cuMemPoolGetAttribute(pool, A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT, (&raw mut used).cast());
            reserved.saturating_sub(used)
        };
        Some(free as u64 + idle)
    }

    /// The most bytes that buffers and scratch memory of this process ever took at once.
    pub fn peak_bytes(&self) -> Option<u64> {
        self.enter().ok()?;
        let mut peak = 0u64;
        // SAFETY: as above.
        unsafe {
            let pool = result::device::get_mem_pool(self.handle).ok()?;
            let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
            let _ = sys::cuMemPoolGetAttribute(pool, attribute, (&raw mut peak).cast());
        }
        Some(peak)
    }

    /// From here on, the most is what is in use now.
    pub fn forget_peak(&self) -> Result<()> {
        self.enter()?;
        let mut none = 0u64;
        // SAFETY: as above; the only number that can be written here is 0.
        unsafe {
            let pool = result::device::get_mem_pool(self.handle).map_err(|e| failed("be asked for its memory", e))?;
            let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
            let set = sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut none).cast());
            set.result().map_err(|e| failed("count its memory anew", e))
        }
    }

    /// Counts bytes on their way to the host.
    pub fn count_to_host(&self, bytes: usize) {
        self.to_host.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes on their way from the host.
    pub fn count_to_device(&self, bytes: usize) {
        self.to_device.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that went to the host, and from it.
    pub fn copied(&self) -> (u64, u64) {
        (self.to_host.load(Ordering::Relaxed), self.to_device.load(Ordering::Relaxed))
    }

    /// The library of products. It opens on a thread of its own; who needs it first waits for that.
    pub fn products(&self) -> Result<&GemmSelector> {
        let opened = self.products.get_or_init(|| {
            let thread = self.opening.lock().unwrap_or_else(PoisonError::into_inner).take();
            match thread.map(JoinHandle::join) {
                Some(Ok(opened)) => opened,
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                None => Err(internal_error("the thread that opens cuBLASLt")),
            }
        });
        opened.as_ref().map_err(Error::clone)
    }

    /// The library of convolutions, opened when somebody first asks; none if it is not there or does not open.
    pub fn dnn(self: &Arc<Self>) -> Option<&Dnn> {
        self.dnn
            .get_or_init(|| {
                require(Missing::Cudnn).ok()?;
                self.enter().ok()?;
                Dnn::new(self, &self.streams).ok()
            })
            .as_ref()
    }

    /// The scratch memory, and with it the right to put work in the queue.
    pub fn scratch(&self) -> MutexGuard<'_, Scratch> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a program will need this many bytes of scratch memory, so that it need not grow when that program
    /// first runs.
    pub fn expect_scratch(&self, bytes: usize) {
        self.scratch_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// The kernels with these texts, compiled and loaded where they are not yet. Threads that ask at the same time
    /// share the work: each compiles what no other is at.
    pub fn functions(&self, sources: &[&str]) -> Result<Vec<Function>> {
        self.enter()?;
        loop {
            self.load(&Claimed::new(self, sources))?;
            let mut kernels = self.kernels();
            while sources.iter().any(|source| kernels.claimed.contains(*source)) {
                kernels = self.loaded.wait(kernels).unwrap_or_else(PoisonError::into_inner);
            }
            // Where another thread has failed at one, this one tries it itself, and can say why it cannot be had.
            let found: Option<Vec<Function>> = sources.iter().map(|text| kernels.by_text.get(*text).copied()).collect();
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    fn kernels(&self) -> MutexGuard<'_, Kernels> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compiles and loads what was claimed.
    fn load(&self, claimed: &Claimed) -> Result<()> {
        let texts: Vec<&str> = claimed.texts.iter().map(String::as_str).collect();
        if texts.is_empty() {
            return Ok(());
        }
        let units = compile_all(&texts, self.architecture, &self.cache)?;
        let Kernels { by_text, modules, .. } = &mut *self.kernels();
        for unit in units {
            let module = match modules.get(&unit.key) {
                Some(module) => *module,
                None => {
                    // SAFETY: the code is a whole image for this kind of GPU; modules stay loaded as long as the
                    // process.
                    let module = unsafe { result::module::load_data(unit.code.as_ptr().cast()) };
                    let module = module.map_err(|e| failed("load a kernel", e))?;
                    modules.insert(unit.key, module);
                    module
                }
            };
            for (kernel, number) in unit.kernels {
                let name = CString::new(format!("kernel_{number}")).unwrap_or_default();
                // SAFETY: the module was loaded above.
                let function = unsafe { result::module::get_function(module, name) };
                let function = Function(function.map_err(|e| failed("find a kernel", e))?);
                by_text.insert(texts[kernel].to_string(), function);
            }
        }
        Ok(())
    }
}

/// A context, for a thread to make its own.
#[derive(Clone, Copy)]
pub(crate) struct DeviceContext(sys::CUcontext);

// SAFETY: as for functions.
unsafe impl Send for DeviceContext {}

impl DeviceContext {
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the device releases its context only after it has waited for the threads that were given it.
        unsafe { result::ctx::set_current(self.0) }.map_err(|e| failed("be used", e))
    }
}

/// Opens the library of products on a thread of its own.
fn open_products(context: DeviceContext, cache: Cache, device: String) -> JoinHandle<Result<GemmSelector>> {
    std::thread::spawn(move || context.enter().and_then(|()| GemmSelector::open(context, &cache, &device)))
}

/// Kernels that one thread compiles, and nobody else meanwhile; given up when this is dropped, whatever became of them.
struct Claimed<'a> {
    device: &'a Device,
    texts: Vec<String>,
}

impl<'a> Claimed<'a> {
    /// Those of these texts that are neither there nor claimed, in an order of their own.
    fn new(device: &'a Device, sources: &[&str]) -> Self {
        let kernels = &mut *device.kernels();
        let unknown = sources.iter().filter(|text| !kernels.by_text.contains_key(**text));
        let mut texts: Vec<String> =
            unknown.filter(|text| !kernels.claimed.contains(**text)).map(|text| text.to_string()).collect();
        texts.sort_unstable();
        texts.dedup();
        kernels.claimed.extend(texts.iter().cloned());
        Claimed { device, texts }
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.device.kernels().claimed.retain(|text| self.texts.binary_search(text).is_err());
        self.device.loaded.notify_all();
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let dnn = self.dnn.take();
        if self.enter().is_err() {
            // Without the context, cuDNN must not be called.
            std::mem::forget(dnn);
            return;
        }
        // SAFETY: nobody can use the device any more; what was allocated is given back with the context.
        unsafe {
            let _ = result::stream::synchronize(self.queue());
            if let Some(memory) = self.scratch.get_mut().unwrap_or_else(PoisonError::into_inner).memory.take() {
                let _ = result::free_async(memory.start, self.streams[0]);
                std::mem::forget(memory);
            }
            if let Ok(products) = self.products() {
                products.close();
            }
            drop(dnn);
            for &stream in &self.streams {
                let _ = result::stream::destroy(stream);
            }
            let _ = result::primary_ctx::release(self.handle);
        }
    }
}
