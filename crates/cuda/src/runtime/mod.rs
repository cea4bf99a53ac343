//! The device, its libraries and memory, and the execution of a plan.

pub(crate) mod buffer;
pub(crate) mod capture;
pub(crate) mod device;
pub(crate) mod dynlib;
pub(crate) mod events;
pub(crate) mod launch;
pub(crate) mod profile;
pub(crate) mod run;
