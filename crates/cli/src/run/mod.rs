//! Runs and studies as they are done and kept.

pub mod device;
pub mod execute;
pub mod folder;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "no_gpu.rs"]
mod gpu;
pub mod metrics;
pub mod provenance;
pub mod ranks;
pub mod record;
pub mod result;
pub mod study;
mod tensorboard;
