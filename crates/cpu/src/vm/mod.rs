//! Programs of fused loops: tiles of numbers by vector kernels, and single numbers by a register machine.

pub(crate) mod scalar_loop;
pub(crate) mod scalar_vm;
pub(crate) mod tile;
