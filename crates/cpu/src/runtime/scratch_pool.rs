//! Scratch memory that the programs of one executor share: those that run in turn use one block, as large as the largest of
//! them needs.

use crate::runtime::block::Block;
use bilevel_graph::Result;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Unused blocks, as many as programs have run at the same time.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<Vec<Block>>,
}

impl Pool {
    fn free(&self) -> MutexGuard<'_, Vec<Block>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that a block of this many bytes is there, so that a run need not ask the system for one.
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        let block = self.take(bytes)?;
        self.give_back(block);
        Ok(())
    }

    /// A block of at least this many bytes, for one run.
    pub fn take(&self, bytes: usize) -> Result<Block> {
        let mut free = self.free();
        if let Some(fits) = free.iter().position(|block| block.bytes() >= bytes) {
            return Ok(free.swap_remove(fits));
        }
        // One that is too small for this run gives way to one that is large enough for both.
        drop(free.pop());
        drop(free);
        Block::new(bytes)
    }

    /// Takes back the block of a finished run.
    pub fn give_back(&self, block: Block) {
        self.free().push(block);
    }
}
