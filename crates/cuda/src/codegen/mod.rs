//! What is CUDA's own in kernels: the renderer of CUDA C++, products by tensor cores, and im2col in cuDNN's layouts.

pub(crate) mod cuda_cpp;
pub(crate) mod gemm;

pub(crate) use crate::codegen::gemm::batched_mma::is_small;
pub(crate) use crate::codegen::gemm::fused_attention::is_fused_attention;
pub(crate) use crate::codegen::gemm::im2col::{col2im, im2col, swapped};
