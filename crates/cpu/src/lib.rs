//! Plans a program and runs it on the CPU. Elementwise chains and their reductions are fused loops over cache-sized
//! tiles, and matrix products and convolutions use packed panels. All memory is one block, reserved when the program is
//! planned. Fusion, order and memory layout come from `bilevel-plan`.

#![warn(clippy::too_many_lines)]

mod compile;
pub mod conv;
mod data;
mod executor;
pub mod gemm;
pub mod kernels;
mod runtime;
mod simd;
mod target;
mod vm;

pub use crate::executor::{Cpu, CpuRun};
pub use crate::runtime::thread_pool::Team;
pub use crate::target::cpu_target;
