//! Pages of runs and studies.

mod calm;
mod lambda;
pub mod own;
pub mod plots;
pub mod run;
pub mod study;
