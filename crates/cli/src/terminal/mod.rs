//! Progress while the command works, and how to stop it.

pub mod interrupt;
pub mod progress;
pub mod readable;
