//! One block of zeroed memory, aligned to a cache line.

use crate::arena::ALIGN;
use bilevel_graph::{Error, ErrorKind, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Zeroed bytes of which the first used one is aligned to a cache line.
pub(crate) struct Block {
    allocation: *mut u8,
    layout: Layout,
    start: *mut u8,
}

// SAFETY: the block owns its memory, as a boxed slice would.
unsafe impl Send for Block {}
unsafe impl Sync for Block {}

impl Block {
    /// An error where the system has not as many bytes. The allocation asks for no alignment and aligns by itself: so asked,
    /// the system gives pages that are zeroed when first touched, and a large block costs nothing before the first run.
    pub fn new(bytes: usize) -> Result<Self> {
        let refuse = || {
            let what = format!("a program that needs {bytes} bytes of memory, more than there are");
            Error::new(ErrorKind::Unsupported { what })
        };
        let size = bytes.checked_add(2 * ALIGN).ok_or_else(refuse)?;
        let layout = Layout::array::<u8>(size).map_err(|_| refuse())?;
        // SAFETY: the layout is not empty.
        let allocation = unsafe { alloc_zeroed(layout) };
        if allocation.is_null() {
            return Err(refuse());
        }
        let start = allocation.wrapping_add(allocation.align_offset(ALIGN).min(ALIGN));
        Ok(Block { allocation, layout, start })
    }

    /// The first byte, to write through.
    pub fn start(&mut self) -> *mut u8 {
        self.start
    }

    /// The first byte, to read from.
    pub fn bytes(&self) -> *const u8 {
        self.start
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.allocation, self.layout) };
    }
}
