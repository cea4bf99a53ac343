//! The tests of this crate as one program, so that they are linked once.

mod again;
mod bad_input;
mod broken_programs;
mod buffers;
mod carries;
mod draws;
mod epilogues;
mod host_functions;
mod interpreted;
mod long_chains;
mod nn_on_cpu;
mod precision;
mod random_programs;
mod scalar_loop;
mod scalars;

#[path = "../common/mod.rs"]
mod common;
