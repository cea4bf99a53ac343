//! Operations that move elements by index.

pub(crate) mod indexing;
pub(crate) mod moves;
