//! A toy GPU on the host: kernels as C++ that run one thread at a time, and a runtime that checks their accesses.

mod executor;
mod renderer;
mod tests;

pub use renderer::HostCpp;

use crate::compile::step::{Access, LibraryCall};
use bilevel_plan::{CostModel, Place};

/// The costs of a fast GPU, on which launches count.
pub const COSTS: CostModel = CostModel {
    launch_seconds: 2e-6,
    bytes_per_second: 2e12,
    flops_per_second: 1e14,
    tiny_loop: 64,
    horizontal_fusion_max: 1024,
    reuse_distance: 2,
    no_alias_bytes: 64,
    min_copy_bytes: 32 << 10,
    max_fused_blocks: 128,
    max_rotating_bytes: 384 << 20,
    max_copied_bytes: 64 << 20,
    max_stage_bytes: 256 << 20,
    remat_min_bytes: Some(1 << 20),
    ..CostModel::PLAIN
};

/// A GPU without libraries has no calls.
#[derive(Clone, Copy, Debug)]
pub enum NoCall {}

impl LibraryCall for NoCall {
    fn accesses(&self) -> Vec<Access> {
        match *self {}
    }

    fn moved(&self, _: &dyn Fn(Place) -> Place) -> Self {
        *self
    }

    fn multiplications(&self) -> usize {
        match *self {}
    }
}
