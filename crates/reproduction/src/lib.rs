//! The tables of Kim and Hospedales' HPO-SGLD, of the papers it builds on, and comparisons that go beyond them.
//!
//! ```text
//! bilevel reproduce [STUDY|all] [--quick] [--json] [--out DIR]
//! ```
//!
//! The guide's chapter *Reproducing* lists the rows that are reproduced, and the reasons for the others.

#![forbid(unsafe_code)]

pub mod cma_es;
pub mod kronecker;
mod prepared;
pub mod runs;
pub mod studies;

pub use studies::register;
