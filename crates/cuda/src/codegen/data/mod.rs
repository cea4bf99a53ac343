//! Kernels that move elements: copies, transposes, gathers and scatters.

pub(crate) mod copy;
pub(crate) mod index_ops;
pub(crate) mod init_casts;
pub(crate) mod inline_gather;
pub(crate) mod smem_transpose;
pub(crate) mod transpose;
