//! Storage of buffers on a GPU.

use crate::runtime::device::{Device, DeviceMemory, failed};
use bilevel_graph::{Buffer, Meta, Result, Storage};
use cudarc::driver::{result, sys};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// The memory of one buffer. It is dropped before the device it belongs to.
pub(crate) struct CudaStorage {
    memory: DeviceMemory,
    bytes: usize,
    device: Arc<Device>,
}

impl CudaStorage {
    /// Allocates a buffer of zeros.
    pub fn buffer(meta: &Meta, device: &Arc<Device>) -> Result<Buffer> {
        let bytes = meta.shape.iter().fold(meta.dtype.size(), |n, d| n.saturating_mul(*d));
        let memory = DeviceMemory::new(device, bytes)?;
        let storage = CudaStorage { memory, bytes, device: device.clone() };
        // SAFETY: the storage is not shared yet.
        unsafe { storage.zero()? };
        Ok(Buffer::new(meta.clone(), Box::new(storage)))
    }

    /// Returns the storage of a buffer on this device.
    pub fn of<'a>(buffer: &'a Buffer, device: &Arc<Device>) -> Option<&'a CudaStorage> {
        let storage: &CudaStorage = buffer.storage().as_any().downcast_ref()?;
        Arc::ptr_eq(&storage.device, device).then_some(storage)
    }

    /// Returns the address of the first byte.
    pub fn start(&self) -> sys::CUdeviceptr {
        self.memory.start
    }
}

impl Storage for CudaStorage {
    unsafe fn write(&self, first: usize, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.device.enter()?;
        self.device.count_to_device(bytes.len());
        let (to, queue) = (self.start() + first as u64, self.device.queue());
        // SAFETY: the caller's promise; the bytes live until they are copied.
        unsafe {
            // A single word is part of the command, so no wait is needed.
            if let &[a, b, c, d] = bytes {
                let word = u32::from_ne_bytes([a, b, c, d]);
                return sys::cuMemsetD32Async(to, word, 1, queue).result().map_err(|e| failed("write memory", e));
            }
            result::memcpy_htod_async(to, bytes, queue).map_err(|e| failed("write memory", e))?;
        }
        self.device.wait()
    }

    unsafe fn read(&self, first: usize, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.device.enter()?;
        self.device.count_to_host(bytes.len());
        // SAFETY: the caller's promise; the copy is waited for.
        unsafe { result::memcpy_dtoh_async(bytes, self.start() + first as u64, self.device.queue()) }
            .map_err(|e| failed("read memory", e))?;
        self.device.wait()
    }

    unsafe fn copy_from(&self, other: &dyn Storage, stretch: Range<usize>) -> Result<bool> {
        let Some(other) = other.as_any().downcast_ref::<CudaStorage>() else { return Ok(false) };
        if !Arc::ptr_eq(&self.device, &other.device) {
            return Ok(false);
        }
        if !stretch.is_empty() {
            self.device.enter()?;
            let (to, from) = (self.start() + stretch.start as u64, other.start() + stretch.start as u64);
            // SAFETY: the caller's promise; both have the bytes of one type and shape.
            unsafe { result::memcpy_dtod_async(to, from, stretch.len(), self.device.queue()) }
                .map_err(|e| failed("copy memory", e))?;
        }
        Ok(true)
    }

    unsafe fn zero(&self) -> Result<()> {
        if self.bytes > 0 {
            self.device.enter()?;
            // SAFETY: the caller's promise.
            unsafe { result::memset_d8_async(self.start(), 0, self.bytes, self.device.queue()) }
                .map_err(|e| failed("clear memory", e))?;
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
