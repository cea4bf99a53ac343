//! Kernels of fused loops: elementwise maps, rows and reductions.

pub(crate) mod amax;
pub(crate) mod column_reduce;
pub(crate) mod erf;
pub(crate) mod map;
pub(crate) mod reduce;
pub(crate) mod reduce_finalize;
pub(crate) mod reduction_shape;
pub(crate) mod rows;
pub(crate) mod segment_reduce;
