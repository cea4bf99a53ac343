//! Matrix products of strided, batched operands.
//!
//! A [`GemmSpec`] defines the product; [`GemmPlan::new`] chooses a method from the shape alone; [`GemmPlan::run`]
//! computes it, any number of times, without allocating, and with the same bits for any number of threads.

mod batch;
pub(crate) mod blocked;
mod choose;
mod direct;
mod inner;
pub(crate) mod kernel;
pub(crate) mod kernel_tables;
pub(crate) mod output_tile;
pub(crate) mod pack;
mod plan;
mod split;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::gemm::kernel_tables::{Kernels, Real};
pub use crate::gemm::output_tile::{Piece, Pieces, Then};
pub use crate::simd::Isa;
pub use batch::BatchAxis;
pub use plan::{GemmPlan, GemmSpec, Strides};
