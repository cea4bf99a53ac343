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

mod alike;
mod blas;
mod branches;
mod bundle;
mod cache;
mod capture;
mod checks;
mod compile;
mod conv;
mod cuda;
mod dnn;
mod dnn_calls;
mod dnn_choice;
mod dnn_described;
mod dnn_engine;
mod dnn_graph;
mod dnn_handles;
mod dnn_name;
mod dot;
mod driver;
mod events;
mod failures;
mod fastest;
mod form;
mod group;
mod kept;
mod later;
mod load;
mod loops;
mod overlap;
mod plan;
mod products;
mod profile;
mod rehearsal;
mod run;
mod source;
mod spent;
mod stagger;
mod start;
mod step;
mod storage;
mod survey;
#[cfg(test)]
mod symbolic;
mod target;
mod trial;
mod unfolded;
mod ways;
mod workspace;

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod test_common;

pub use compile::{Architecture, compile_program, compile_programs, kernel_texts};
pub use cuda::{CopiedBytes, Cuda, DeviceInfo};
pub use load::{Missing, found_libraries};
pub use profile::Profiled;
pub use run::{CudaRun, PlannedBytes};
pub use spent::Spent;
pub use survey::planned_bytes;
