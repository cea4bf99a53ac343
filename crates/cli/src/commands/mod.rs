//! One file per command.

mod advice;
pub mod advise;
pub mod check;
pub mod compare;
#[cfg(feature = "download")]
pub mod data;
#[cfg(feature = "cuda")]
pub mod devices;
pub mod export;
pub mod list;
pub mod report;
pub mod reproduce;
pub mod resume;
pub mod run;
pub mod runs;
#[cfg(feature = "serve")]
pub mod serve;
mod sweep;
