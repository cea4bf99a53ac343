//! Compiles programs for NVIDIA GPUs and runs them.
//!
//! The driver and the libraries are loaded when [`Cuda::new`] is called, so a program that links this crate also builds
//! and runs on machines without them. Kernels are generated from the groups of `bilevel-plan`, compiled by NVRTC and
//! cached on disk. Matrix products use cuBLASLt, and convolutions use cuDNN if it is available. One step of a program's
//! loop is one CUDA graph in which independent work runs concurrently, and nothing is copied to the host before it is
//! read.
//!
//! Unsafe code, that is calls of the driver and of the libraries with addresses from the plan, is confined to
//! `runtime`, `autotune`, `gemm/{cublaslt,select}.rs`, `conv/cudnn`, and `compile/{nvrtc,background}.rs`.

#![warn(clippy::too_many_lines)]

mod autotune;
mod codegen;
mod compile;
mod conv;
mod executor;
mod gemm;
mod memory_estimate;
mod runtime;
mod target;

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod test_common;

pub use crate::compile::nvrtc::{Architecture, compile_program, compile_programs, kernel_texts};
pub use crate::compile::plan::observe_passes;
pub use crate::compile::stats::Spent;
pub use crate::executor::{CopiedBytes, Cuda, DeviceInfo};
pub use crate::memory_estimate::planned_bytes;
pub use crate::runtime::dynlib::{Missing, found_libraries};
pub use crate::runtime::profile::Profiled;
pub use crate::runtime::run::CudaRun;
pub use crate::target::gpu_target;
pub use bilevel_gpu::compile::passes::{GPU_PASSES, GpuPipeline};
pub use bilevel_gpu::compile::plan::PlannedBytes;
