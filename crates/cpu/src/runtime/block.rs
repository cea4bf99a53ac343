//! One block of zeroed memory, aligned to a cache line.

use crate::target::ALIGN;
use bilevel_graph::{Error, ErrorKind, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Size of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Requests huge pages for these bytes: matrix products walk memory with strides of a page and more, and
/// spend their time on address translation otherwise. A system without them may refuse.
#[cfg(target_os = "linux")]
fn ask_for_huge_pages(start: *mut u8, bytes: usize) {
    unsafe extern "C" {
        fn madvise(start: *mut std::ffi::c_void, bytes: usize, advice: std::ffi::c_int) -> std::ffi::c_int;
    }
    const MADV_HUGEPAGE: std::ffi::c_int = 14;
    // SAFETY: the bytes belong to the block; this advice changes their backing, not their contents.
    unsafe { madvise(start.cast(), bytes, MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for_huge_pages(_: *mut u8, _: usize) {}

/// Below this the system is not asked how much there is.
const MIN_CHECKED_BYTES: usize = 1 << 28;

/// Bytes available without swapping, if the system reports them. The system may overcommit memory and then kill the
/// process.
#[cfg(target_os = "linux")]
pub(crate) fn free_bytes() -> Option<u64> {
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn free_bytes() -> Option<u64> {
    None
}

/// Zeroed bytes of which the first used one is aligned to a cache line, or, in a large block, to a huge page.
pub(crate) struct Block {
    allocation: *mut u8,
    layout: Layout,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the block owns its memory, as a boxed slice would.
unsafe impl Send for Block {}
// SAFETY: a shared block only gives access to its address and its length.
unsafe impl Sync for Block {}

impl Block {
    /// Returns an error if the system lacks this many bytes. The allocation requests no alignment and aligns by itself.
    /// The system then returns pages that are zeroed at first touch, so a large block costs nothing before the first
    /// run.
    pub fn new(bytes: usize) -> Result<Self> {
        let refuse = || Error::new(ErrorKind::OutOfMemory { needed: bytes as u64, free: free_bytes() });
        if bytes >= MIN_CHECKED_BYTES && free_bytes().is_some_and(|free| bytes as u64 > free) {
            return Err(refuse());
        }
        let align = if bytes < HUGE_PAGE_BYTES { ALIGN } else { HUGE_PAGE_BYTES };
        let size = bytes.checked_add(2 * align).ok_or_else(refuse)?;
        let layout = Layout::array::<u8>(size).map_err(|_| refuse())?;
        // SAFETY: the layout is not empty.
        let allocation = unsafe { alloc_zeroed(layout) };
        if allocation.is_null() {
            return Err(refuse());
        }
        let start = allocation.wrapping_add(allocation.align_offset(align).min(align));
        if align == HUGE_PAGE_BYTES {
            ask_for_huge_pages(start, bytes);
        }
        Ok(Block { allocation, layout, start, bytes })
    }

    /// The first byte.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.allocation, self.layout) };
    }
}
