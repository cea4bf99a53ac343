//! From a schedule to the steps of a CPU plan.

pub(crate) mod collective;
pub(crate) mod gemm_conv;
pub(crate) mod host;
pub(crate) mod plan;
pub(crate) mod scratch_alloc;
pub(crate) mod standalone_op;
pub(crate) mod step;
pub(crate) mod tile_build;
