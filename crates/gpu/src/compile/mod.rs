//! From a schedule to steps: the kernels and calls of its groups, with the memory they read and write.

pub mod backend;
pub mod conv_as_gemm;
pub mod device_asserts;
pub mod dump;
pub mod failure_record;
pub mod fused_loop;
pub mod lower_group;
pub mod passes;
pub mod plan;
pub mod segments;
pub mod step;
pub mod workspace;
