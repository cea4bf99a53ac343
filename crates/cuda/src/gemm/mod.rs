//! Matrix products by cuBLASLt: lowering, keys, and algorithm selection.

pub(crate) mod algo_cache;
pub(crate) mod cublaslt;
pub(crate) mod key;
pub(crate) mod lower;
pub(crate) mod select;
