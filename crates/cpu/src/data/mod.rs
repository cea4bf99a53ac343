//! Operations that move elements by index.

pub(crate) mod block_ops;
pub(crate) mod indexing;
pub(crate) mod moves;
