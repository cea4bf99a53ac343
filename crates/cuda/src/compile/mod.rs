//! From a schedule to kernels and library calls: lowering of groups, workspaces, and compilation by NVRTC.

pub(crate) mod background;
pub(crate) mod device_asserts;
pub(crate) mod disk_cache;
pub(crate) mod failure_record;
pub(crate) mod fused_loop;
pub(crate) mod lower_group;
pub(crate) mod nvrtc;
pub(crate) mod plan;
pub(crate) mod stats;
pub(crate) mod step;
pub(crate) mod workspace;
