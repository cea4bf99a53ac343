//! The tests of this crate as one program, so that they are linked once.

mod golden;
mod gpu;
mod interpreted;
mod kernels;

#[path = "../common/mod.rs"]
mod common;
