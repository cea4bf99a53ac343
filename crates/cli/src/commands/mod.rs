//! One file a command.

pub mod check;
pub mod compare;
pub mod devices;
pub mod digits;
pub mod list;
pub mod report;
pub mod reproduce;
pub mod resume;
pub mod run;
