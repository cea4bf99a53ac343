//! Tests of the partition and of ranks that are threads.

mod communicators;
mod conformance;
mod mpi;
mod runs;
