//! Plans a program and runs it on the CPU: elementwise chains and their reductions as fused loops over cache-sized tiles,
//! matrix products and convolutions on packed panels, all memory in one block reserved when the program is planned. What
//! to fuse, in which order, and where everything lies is decided in `bilevel-plan`.

mod block;
pub mod conv;
pub mod gemm;
mod heavy;
mod indexing;
pub mod kernels;
mod memory;
mod moves;
mod plan;
mod pool;
mod run;
mod scalar_loop;
mod scalars;
mod single;
mod slots;
mod step;
mod storage;
mod target;
pub mod team;
mod tile;
mod tile_build;

pub use run::{Cpu, CpuRun};
pub use target::CpuTarget;
