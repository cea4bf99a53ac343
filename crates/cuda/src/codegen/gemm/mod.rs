//! Kernels for matrix products that cuBLASLt is not used for.

pub(crate) mod batched_mma;
pub(crate) mod fused_attention;
pub(crate) mod naive;
