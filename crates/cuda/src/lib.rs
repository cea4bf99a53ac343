//! Plans a program and runs it on an NVIDIA GPU.
//!
//! The driver and the libraries are looked for when [`Cuda::new`] is called, so a program that links this crate builds and runs
//! on machines without any of them. Kernels are written from the groups that `bilevel-plan` makes, compiled by NVRTC and
//! kept on disk; matrix products go through cuBLASLt, and convolutions
//! through cuDNN where it is there. One step of a program's loop is one CUDA graph, in which independent work
//! runs side by side, and nothing crosses to the host before somebody reads it.
//!
//! Unsafe code is in `driver.rs`, `storage.rs`, `blas.rs`, `products.rs`, `dnn.rs`, `compile.rs`, `load.rs`, `run.rs` and `later.rs`:
//! calls of the driver and of the libraries, with addresses that the plan gives.

mod alike;
mod blas;
mod branches;
mod cache;
mod checks;
mod compile;
mod conv;
mod cuda;
mod dnn;
mod dnn_graph;
mod dot;
mod driver;
mod form;
mod group;
mod later;
mod load;
mod plan;
mod products;
mod run;
mod source;
mod spent;
mod step;
mod storage;
mod survey;
mod target;
mod ways;
mod workspace;

pub use compile::{Architecture, compile_program, compile_programs, kernel_texts};
pub use cuda::{CopiedBytes, Cuda, DeviceInfo};
pub use load::{Missing, found_libraries};
pub use run::{CudaRun, PlannedBytes, Profiled};
pub use spent::Spent;
pub use survey::planned_bytes;
