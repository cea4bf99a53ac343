//! One run of the driver: everything it depends on, its result, and its numbers per iteration.

mod config;
pub(crate) use config::hash;
mod device;
pub mod dtype_name;
mod history;
mod lambda;
mod outer;
mod result;

pub use config::{Checkpoint, Config, Inner, Metrics};
pub use device::{DEVICE_PATTERN, Device};
pub use history::{Damage, History, IterationRow};
pub use lambda::LambdaLeaf;
pub use outer::{Outer, ScheduleSettings, optimizers, schedules};
pub use result::{LeafSummary, RunResult};
