//! From a schedule to a plan of kernels and library calls, and compilation by NVRTC.

pub(crate) mod backend;
pub(crate) mod background;
pub(crate) mod disk_cache;
pub(crate) mod nvrtc;
pub(crate) mod plan;
pub(crate) mod stats;
pub(crate) mod step;
#[cfg(test)]
mod tests_pipeline;
