//! Plans a program and runs it on the CPU.

pub mod conv;
pub mod gemm;
pub mod team;
