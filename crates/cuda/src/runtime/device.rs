//! A GPU with its main stream and the state that programs share: loaded kernels, libraries and scratch memory.

use crate::compile::disk_cache::Cache;
use crate::compile::nvrtc::{Architecture, compile_all};
use crate::compile::stats::Clock;
use crate::conv::cudnn::Dnn;
use crate::gemm::select::GemmSelector;
use crate::runtime::dynlib::{Missing, open_meanwhile, require};
use bilevel_gpu::codegen::Kernel;
use bilevel_gpu::schedule::pipeline::PIPELINE_STREAMS;
use bilevel_gpu::schedule::streams::STREAMS;
use bilevel_graph::{Error, ErrorKind, Result};
use bilevel_plan::internal_error;
use cudarc::driver::{result, sys};
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// The priority of streams on the critical path; others have 0, and lower is more urgent.
const HIGH_PRIORITY: i32 = -1;
/// The index of the main stream.
pub(crate) const QUEUE: usize = 0;
/// The index of the first stream for capture.
pub(crate) const BRANCH: usize = 1;

/// Returns the error for a failed driver call.
pub(crate) fn failed(what: &str, error: result::DriverError) -> Error {
    let said = error.error_string().ok().map(|text| text.to_string_lossy().into_owned());
    let said = said.unwrap_or_else(|| format!("{:?}", error.0));
    Error::new(ErrorKind::Device { what: format!("the GPU could not {what}: {said}") })
}

/// A GPU. All its work is submitted to one main stream, in order.
pub(crate) struct Device {
    pub ordinal: usize,
    pub name: String,
    pub architecture: Architecture,
    pub total_bytes: usize,
    handle: sys::CUdevice,
    context: sys::CUcontext,
    /// The main stream, then the streams for capture. Other threads allocate, read and write memory in the main stream,
    /// which must not become part of a capture.
    streams: Vec<sys::CUstream>,
    products: OnceLock<Result<GemmSelector>>,
    /// The thread that opens cuBLASLt, until it is joined.
    opening: Mutex<Option<JoinHandle<Result<GemmSelector>>>>,
    dnn: OnceLock<Option<Dnn>>,
    pub cache: Cache,
    kernels: Mutex<Kernels>,
    /// Signalled when another thread finishes (or fails) compiling kernels it claimed.
    loaded: Condvar,
    scratch: Mutex<Scratch>,
    /// The largest scratch memory of any program planned so far, in bytes.
    scratch_bytes: AtomicUsize,
    to_host: AtomicU64,
    to_device: AtomicU64,
    pub clock: Clock,
}

/// The functions of loaded kernels, and loaded modules by their cache key.
#[derive(Default)]
struct Kernels {
    functions: HashMap<Arc<Kernel>, Function>,
    modules: HashMap<String, sys::CUmodule>,
    /// Kernels that a thread is compiling.
    claimed: HashSet<Arc<Kernel>>,
}

/// A loaded kernel.
#[derive(Clone, Copy)]
pub(crate) struct Function(pub sys::CUfunction);

// SAFETY: the driver's handles may be used from any thread, with the context made current first.
unsafe impl Send for Function {}
// SAFETY: as for `Function`.
unsafe impl Send for Device {}
// SAFETY: driver calls may be made from several threads at once. Locks provide any further order that is needed, such
// as that of submissions to the main stream.
unsafe impl Sync for Device {}

/// Memory that runs share in turn. Its holder may submit to the main stream.
#[derive(Default)]
pub(crate) struct Scratch {
    memory: Option<DeviceMemory>,
}

impl Scratch {
    /// Returns memory of at least this many bytes; grows it to the largest scratch memory of all planned programs, if
    /// that can be allocated.
    pub fn reserve(&mut self, device: &Arc<Device>, bytes: usize) -> Result<sys::CUdeviceptr> {
        if self.memory.as_ref().is_none_or(|memory| memory.bytes < bytes) {
            self.memory = None;
            let most = device.scratch_bytes.load(Ordering::Relaxed).max(bytes);
            self.memory = Some(DeviceMemory::new(device, most).or_else(|_| DeviceMemory::new(device, bytes))?);
        }
        Ok(self.start())
    }

    /// Returns its address.
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
    /// Allocates this many bytes, uninitialised.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Self> {
        device.enter()?;
        // SAFETY: the context is current; memory is freed in stream order when this is dropped.
        let start = unsafe { result::malloc_async(device.queue(), bytes.max(256)) }.map_err(|error| {
            if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                Error::new(ErrorKind::OutOfMemory { needed: bytes as u64, free: device.free_bytes() })
            } else {
                failed("allocate memory", error)
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
            // SAFETY: allocated in this stream, and all work that used it was submitted before.
            let _ = unsafe { result::free_async(self.start, device.queue()) };
        }
    }
}

impl Device {
    /// Returns the number of GPUs.
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
        // SAFETY: the device exists; its context is released when this is dropped, after all that was created in it.
        unsafe {
            let context = result::primary_ctx::retain(handle).map_err(|e| failed("be opened", e))?;
            result::ctx::set_current(context).map_err(|e| failed("be opened", e))?;
            if let Err(missing) = require(Missing::Nvrtc).and_then(|()| require(Missing::CublasLt)) {
                let _ = result::primary_ctx::release(handle);
                return Err(missing.into());
            }
            let mut streams = vec![];
            for number in 0..BRANCH + PIPELINE_STREAMS {
                // The critical path of a pipeline has priority.
                let priority = if (BRANCH..BRANCH + STREAMS).contains(&number) { HIGH_PRIORITY } else { 0 };
                let (mut stream, kind) = (std::ptr::null_mut(), sys::CUstream_flags::CU_STREAM_NON_BLOCKING);
                let made = sys::cuStreamCreateWithPriority(&mut stream, kind as u32, priority).result();
                streams.push(made.map(|()| stream).map_err(|e| failed("create a stream", e))?);
            }
            // Freed memory stays in the process's pool, so that it can be reused at once.
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

    /// Returns handle, name, architecture and memory of a GPU without opening it.
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

    /// Makes the GPU's context current in this thread.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the context lives as long as the device.
        unsafe { result::ctx::set_current(self.context) }.map_err(|e| failed("be used", e))
    }

    /// Returns the main stream.
    pub fn queue(&self) -> sys::CUstream {
        self.streams[QUEUE]
    }

    /// Returns a stream: [`QUEUE`], or one for capture from [`BRANCH`] on.
    pub fn stream(&self, number: usize) -> sys::CUstream {
        self.streams[number]
    }

    /// Waits for all work in the main stream.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the queue lives as long as the device.
        unsafe { result::stream::synchronize(self.queue()) }.map_err(|e| failed("finish its work", e))
    }

    /// Returns the bytes that can still be allocated, including this process's pool.
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

    /// Returns the peak of bytes allocated by this process.
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

    /// Resets the peak to the bytes in use now.
    pub fn forget_peak(&self) -> Result<()> {
        self.enter()?;
        let mut none = 0u64;
        // SAFETY: as above; the only number that can be written here is 0.
        unsafe {
            let pool = result::device::get_mem_pool(self.handle).map_err(|e| failed("be asked for its memory", e))?;
            let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
            let set = sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut none).cast());
            set.result().map_err(|e| failed("reset its peak memory", e))
        }
    }

    /// Counts bytes copied to the host.
    pub fn count_to_host(&self, bytes: usize) {
        self.to_host.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes copied from the host.
    pub fn count_to_device(&self, bytes: usize) {
        self.to_device.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the bytes copied to the host, and from it.
    pub fn copied(&self) -> (u64, u64) {
        (self.to_host.load(Ordering::Relaxed), self.to_device.load(Ordering::Relaxed))
    }

    /// Returns cuBLASLt, which a background thread opens; the first caller waits for it.
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

    /// Returns cuDNN, opened on first use; `None` if it is not available.
    pub fn dnn(self: &Arc<Self>) -> Option<&Dnn> {
        self.dnn
            .get_or_init(|| {
                require(Missing::Cudnn).ok()?;
                self.enter().ok()?;
                Dnn::new(self, &self.streams).ok()
            })
            .as_ref()
    }

    /// Locks the scratch memory, and with it the main stream.
    pub fn scratch(&self) -> MutexGuard<'_, Scratch> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces that a program will need this many bytes of scratch memory, so that it need not grow at the first run.
    pub fn expect_scratch(&self, bytes: usize) {
        self.scratch_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Returns the functions of these kernels, compiled and loaded if necessary. Concurrent callers share the work: each
    /// compiles kernels that no other claims.
    pub fn functions(&self, wanted: &[Arc<Kernel>]) -> Result<Vec<Function>> {
        self.enter()?;
        loop {
            self.load(&Claimed::new(self, wanted))?;
            let mut kernels = self.kernels();
            while wanted.iter().any(|kernel| kernels.claimed.contains(kernel)) {
                kernels = self.loaded.wait(kernels).unwrap_or_else(PoisonError::into_inner);
            }
            // If another thread failed, this one tries again and returns the error.
            let found: Option<Vec<Function>> =
                wanted.iter().map(|kernel| kernels.functions.get(kernel).copied()).collect();
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    fn kernels(&self) -> MutexGuard<'_, Kernels> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compiles and loads the claimed kernels.
    fn load(&self, claimed: &Claimed) -> Result<()> {
        if claimed.kernels.is_empty() {
            return Ok(());
        }
        let units = compile_all(&claimed.kernels, self.architecture, &self.cache)?;
        let Kernels { functions, modules, .. } = &mut *self.kernels();
        for unit in units {
            let module = match modules.get(&unit.key) {
                Some(module) => *module,
                None => {
                    // SAFETY: the code is a complete image for this architecture; modules stay loaded until the process
                    // ends.
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
                functions.insert(claimed.kernels[kernel].clone(), function);
            }
        }
        Ok(())
    }
}

/// A context that another thread can make current.
#[derive(Clone, Copy)]
pub(crate) struct DeviceContext(sys::CUcontext);

// SAFETY: as for functions.
unsafe impl Send for DeviceContext {}

impl DeviceContext {
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the device releases its context only after joining the threads that use it.
        unsafe { result::ctx::set_current(self.0) }.map_err(|e| failed("be used", e))
    }
}

/// Opens cuBLASLt on a background thread.
fn open_products(context: DeviceContext, cache: Cache, device: String) -> JoinHandle<Result<GemmSelector>> {
    std::thread::spawn(move || context.enter().and_then(|()| GemmSelector::open(context, &cache, &device)))
}

/// Kernels that one thread compiles exclusively; released when dropped, whatever the outcome.
struct Claimed<'a> {
    device: &'a Device,
    kernels: Vec<Arc<Kernel>>,
}

impl<'a> Claimed<'a> {
    /// Claims those of these kernels that are neither loaded nor claimed, in their order.
    fn new(device: &'a Device, wanted: &[Arc<Kernel>]) -> Self {
        let known = &mut *device.kernels();
        let unknown = wanted.iter().filter(|kernel| !known.functions.contains_key(*kernel));
        let kernels = unknown.filter(|kernel| known.claimed.insert((*kernel).clone())).cloned().collect();
        Claimed { device, kernels }
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.device.kernels().claimed.retain(|kernel| !self.kernels.contains(kernel));
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
        // SAFETY: the device is no longer in use; its allocations are released with the context.
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
