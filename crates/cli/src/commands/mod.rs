//! One file a command.

pub mod check;
pub mod list;
pub mod report;
pub mod reproduce;
pub mod resume;
pub mod run;
