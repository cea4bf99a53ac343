//! One program on several ranks.
//!
//! [`partition`] turns a program, derivatives included, into the program of each rank. [`Ranks`] is an executor that does so with every
//! program it compiles, so that nothing above it knows of ranks. Ranks are connected by [`Threads`] of one process.

#![warn(clippy::too_many_lines)]

mod digest;
mod executor;
mod partition;
mod threads;

pub use crate::executor::Ranks;
pub use crate::partition::partition;
pub use crate::threads::Threads;
