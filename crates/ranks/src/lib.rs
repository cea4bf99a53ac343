//! One program on several ranks.
//!
//! [`partition`] turns a program, derivatives included, into the program of each rank. [`Ranks`] is an executor that does so with every
//! program it compiles, so that nothing above it depends on ranks. Its
//! [`sharding`](bilevel_graph::Executor::sharding) gives every rank only a part of large tensors. Ranks are connected by
//! [`Threads`] of one process, by [`Mpi`], or by [`Tcp`]; [`Launch`] detects which, from the variables of a launcher.
//! [`share_out`] distributes independent jobs.

#![warn(clippy::too_many_lines)]

mod digest;
mod executor;
mod implementation;
mod jobs;
mod launch;
#[cfg(all(unix, feature = "mpi"))]
mod mpi;
#[cfg(not(all(unix, feature = "mpi")))]
#[path = "mpi/absent.rs"]
mod mpi;
#[doc(hidden)]
pub mod mpirun;
mod partition;
mod sharded;
mod tcp;
mod threads;

pub use crate::executor::Ranks;
pub use crate::implementation::Implementation;
pub use crate::jobs::{Jobs, share_out};
pub use crate::launch::{Launch, Transport};
pub use crate::mpi::Mpi;
pub use crate::partition::{partition, partition_with_parts};
pub use crate::tcp::Tcp;
pub use crate::threads::Threads;
