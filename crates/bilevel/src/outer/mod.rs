//! The outer loop: driver, steps on λ, schedules, stopping, observers and metrics.

pub(crate) mod driver;
pub(crate) mod json_lines;
pub(crate) mod last_good;
pub(crate) mod measures;
pub(crate) mod observer;
mod outcome;
pub(crate) mod progress;
pub(crate) mod progress_line;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod step;
pub(crate) mod stopping;
