//! The thread pool, and the memory that runs use.

pub(crate) mod block;
pub(crate) mod memory;
pub(crate) mod scratch_pool;
pub(crate) mod storage;
pub mod thread_pool;
