//! Kernels for convolutions that cuDNN is not used for, and im2col.

pub(crate) mod direct;
pub(crate) mod im2col;
