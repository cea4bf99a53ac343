//! Kernels of matrix products by tensor cores, and of im2col.

pub(crate) mod batched_mma;
pub(crate) mod fused_attention;
pub(crate) mod im2col;
