//! One run of the driver: everything it depends on, its result, and its numbers per iteration.

mod about;
mod config;
pub(crate) use config::hash;
mod device;
mod division;
pub mod dtype_name;
mod history;
mod lambda;
mod learning;
mod outer;
mod result;
mod start;

pub use about::About;
pub use config::{Checkpoint, Config, HeldOut, Metrics};
pub use device::{DEVICE_PATTERN, Device};
pub use division::Division;
pub use history::{Damage, History, IterationRow};
pub use lambda::{LambdaLeaf, read_lambda, save_lambda};
pub use outer::{Outer, optimizers, schedules};
pub use result::{BestRecord, LeafSummary, RunResult};
pub use start::Start;
