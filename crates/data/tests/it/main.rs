//! The tests of this crate as one program, so that they are linked once.

mod augment;
mod fetch;
mod readers;
mod real_files;

#[path = "../common/mod.rs"]
mod common;
