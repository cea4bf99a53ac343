//! Running programs: the executor's contract, buffers, and the reference interpreter.

pub(crate) mod bindings;
pub mod block_ops;
pub(crate) mod buffer;
pub(crate) mod communicator;
pub(crate) mod executor;
pub(crate) mod reference;
pub mod reference_ops;
