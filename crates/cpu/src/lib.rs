//! Plans a program and runs it on the CPU.

pub mod kernels;
pub mod conv;
pub mod gemm;
pub mod team;
