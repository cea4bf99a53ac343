//! Runs and studies as they are done and kept.

pub mod device;
pub mod execute;
pub mod folder;
pub mod metrics;
pub mod provenance;
pub mod record;
pub mod result;
pub mod side_by_side;
pub mod study;
pub mod study_folder;
mod tensorboard;
