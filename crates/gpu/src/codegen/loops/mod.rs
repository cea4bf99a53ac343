//! Kernels of fused loops: elementwise maps, rows and reductions.

pub mod amax;
pub mod column_reduce;
pub mod erf;
pub mod map;
pub mod reduce;
pub mod reduce_finalize;
pub mod reduction_shape;
pub mod rows;
pub mod segment_reduce;
