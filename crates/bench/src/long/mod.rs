//! Runs too large to be held twice.

pub mod large;
pub mod wide_run;
