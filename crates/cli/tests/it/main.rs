//! The tests of this crate as one program, so that they are linked once.

mod architecture;
mod command;
mod common;
mod compare;
mod contributing;
mod damaged;
mod defaults;
mod device;
mod digits;
mod files;
mod guide;
mod including;
mod interrupting;
mod manifest;
mod numbers;
mod options;
mod own;
mod ranks;
mod report;
mod reproduce;
mod resuming;
mod runs;
mod serve;
mod settings;
mod sweep;
mod tensorboard;
