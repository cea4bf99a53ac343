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
#[cfg(feature = "packs")]
pub mod pack;
#[cfg(not(feature = "packs"))]
#[path = "pack_absent.rs"]
pub mod pack;
pub mod provenance;
pub mod ranks;
pub mod record;
pub mod result;
pub mod side_by_side;
pub mod study;
pub mod study_folder;
pub mod study_progress;
mod tensorboard;
