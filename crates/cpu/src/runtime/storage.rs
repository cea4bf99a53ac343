//! Buffers of the CPU: blocks of memory that a team copies and clears together, and arrays that are read where they are.

use crate::runtime::block::Block;
use crate::runtime::thread_pool::Team;
use crate::target::ALIGN;
use bilevel_graph::{Array, Buffer, Elements, Meta, Result, Storage};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// Bytes worth a separate task.
const TASK_BYTES: usize = 1 << 20;

// Kernels can work in the memory of an aligned array.
const _: () = assert!(ALIGN <= Elements::<u8>::ALIGNMENT);

/// The memory of one buffer.
pub(crate) struct CpuStorage {
    memory: StorageBytes,
    bytes: usize,
    team: Arc<Team>,
}

/// Whose memory it is.
enum StorageBytes {
    Own(Block),
    /// Only to be read.
    Adopted(Array),
}

impl CpuStorage {
    /// A buffer of zeros.
    pub fn buffer(meta: &Meta, team: &Arc<Team>) -> Result<Buffer> {
        let bytes = meta.shape.iter().fold(meta.dtype.size(), |n, d| n.saturating_mul(*d));
        let storage = CpuStorage { memory: StorageBytes::Own(Block::new(bytes)?), bytes, team: team.clone() };
        Ok(Buffer::new(meta.clone(), Box::new(storage)))
    }

    /// A buffer that is the memory of an array; nothing if the kernels cannot work in it.
    pub fn adopted(array: &Array, team: &Arc<Team>) -> Option<Buffer> {
        let bytes = array.bytes();
        if bytes.is_empty() || !array.is_aligned() {
            return None;
        }
        let meta = Meta { dtype: array.dtype(), shape: array.shape().to_vec() };
        let storage =
            CpuStorage { bytes: bytes.len(), memory: StorageBytes::Adopted(array.clone()), team: team.clone() };
        Some(Buffer::read_only(meta, Box::new(storage)))
    }

    /// The storage of a buffer that is the CPU's.
    pub fn of(buffer: &Buffer) -> Option<&CpuStorage> {
        buffer.storage().as_any().downcast_ref()
    }

    /// The first byte. Users of the pointer must hold the buffer; what is adopted cannot be held to write.
    pub fn start(&self) -> *mut u8 {
        match &self.memory {
            StorageBytes::Own(block) => block.start(),
            StorageBytes::Adopted(array) => array.bytes().as_ptr().cast_mut(),
        }
    }

    /// Calls `work(first, length)` for stretches that cover this many bytes, on all threads if there are many.
    fn in_parts(&self, bytes: usize, work: impl Fn(usize, usize) + Sync) {
        // Most are single numbers, for which a team is much ado.
        if bytes <= TASK_BYTES {
            return work(0, bytes);
        }
        self.team.run(bytes.div_ceil(TASK_BYTES), &|task| {
            work(task * TASK_BYTES, TASK_BYTES.min(bytes - task * TASK_BYTES));
        });
    }

    /// # Safety
    /// This many bytes must be readable at `from` and writable at `to`, and there must be no other use of those at
    /// `to`.
    unsafe fn copy(&self, from: *const u8, to: *mut u8, bytes: usize) {
        let (from, to) = (Pointer(from.cast_mut()), Pointer(to));
        // SAFETY: the caller's promise; tasks copy different stretches.
        self.in_parts(bytes, |first, length| unsafe {
            std::ptr::copy_nonoverlapping(from.get().add(first), to.get().add(first), length);
        });
    }
}

/// A pointer that tasks share.
#[derive(Clone, Copy)]
struct Pointer(*mut u8);

// SAFETY: tasks go through it to different stretches only.
unsafe impl Sync for Pointer {}

impl Pointer {
    fn get(&self) -> *mut u8 {
        self.0
    }
}

impl Storage for CpuStorage {
    unsafe fn write(&self, first: usize, bytes: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy(bytes.as_ptr(), self.start().add(first), bytes.len()) };
        Ok(())
    }

    unsafe fn read(&self, first: usize, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy(self.start().add(first), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    unsafe fn copy_from(&self, other: &dyn Storage, stretch: Range<usize>) -> Result<bool> {
        let Some(other) = other.as_any().downcast_ref::<CpuStorage>() else { return Ok(false) };
        let (first, bytes) = (stretch.start, stretch.len());
        // SAFETY: the caller's promise; both have the bytes of one type and shape.
        unsafe { self.copy(other.start().add(first), self.start().add(first), bytes) };
        Ok(true)
    }

    unsafe fn zero(&self) -> Result<()> {
        let to = Pointer(self.start());
        // SAFETY: the caller's promise; tasks clear different stretches.
        self.in_parts(self.bytes, |first, length| unsafe { to.get().add(first).write_bytes(0, length) });
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
