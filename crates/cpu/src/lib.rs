//! Plans a program and runs it on the CPU: elementwise chains and their reductions as fused loops over cache-sized tiles,
//! matrix products and convolutions on packed panels, all memory in one block reserved when the program is planned. What
//! to fuse, in which order, and where everything lies is decided in `bilevel-plan`.

#![warn(clippy::too_many_lines)]

mod compile;
pub mod conv;
mod data;
mod executor;
pub mod gemm;
mod isa;
pub mod kernels;
mod runtime;
mod target;
mod vm;

pub use crate::executor::{Cpu, CpuRun};
pub use crate::runtime::thread_pool::Team;
pub use crate::target::cpu_target;
