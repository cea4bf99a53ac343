//! Plans a program and runs it on the CPU: elementwise chains and their reductions as fused loops over cache-sized tiles,
//! matrix products and convolutions on packed panels, all memory in one block reserved when the program is planned.

mod arena;
mod block;
pub mod conv;
mod fuse;
pub mod gemm;
mod indexing;
pub mod kernels;
mod lower;
mod lower_dot;
mod memory;
mod moves;
mod order;
mod plan;
mod planning;
mod pool;
mod run;
mod scalar_loop;
mod scalars;
mod slots;
mod step;
mod storage;
pub mod team;
mod tile;
mod tile_build;
mod view;

pub use run::{Cpu, CpuRun};
