//! Plans a program and runs it on an NVIDIA GPU.
//!
//! The driver and the libraries are looked for when [`Cuda::new`] is called, so a program that links this crate builds and runs
//! on machines without any of them. Kernels are written from the groups that `bilevel-plan` makes, compiled by NVRTC and
//! kept on disk; matrix products go through cuBLASLt, and convolutions
//! through cuDNN where it is there. One step of a program's loop is one CUDA graph, in which independent work
//! runs side by side, and nothing crosses to the host before somebody reads it.
//!
//! Unsafe code is in `driver.rs`, `capture.rs`, `events.rs`, `storage.rs`, `blas.rs`, `products.rs`, `trial.rs`, `dnn.rs` and the files of
//! that name, `rehearsal.rs`, `compile.rs`, `load.rs`, `start.rs`, `run.rs` and `later.rs`: calls of the driver and of the libraries, with
//! addresses that the plan gives.

mod autotune;
mod codegen;
mod compile;
mod conv;
mod executor;
mod gemm;
mod memory_estimate;
mod runtime;
mod schedule;
mod target;

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod test_common;

pub use crate::compile::nvrtc::{Architecture, compile_program, compile_programs, kernel_texts};
pub use crate::compile::stats::Spent;
pub use crate::executor::{CopiedBytes, Cuda, DeviceInfo};
pub use crate::memory_estimate::planned_bytes;
pub use crate::runtime::dynlib::{Missing, found_libraries};
pub use crate::runtime::profile::Profiled;
pub use crate::runtime::run::{CudaRun, PlannedBytes};
pub use crate::target::CudaTarget;
