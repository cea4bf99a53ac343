//! Kernels that move elements: copies, transposes, gathers and scatters.

pub mod block_ops;
pub mod copy;
pub mod index_ops;
pub mod init_casts;
pub mod inline_gather;
pub mod smem_transpose;
pub mod transpose;
