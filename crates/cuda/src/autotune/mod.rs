//! Autotuning: timed trials that choose among algorithms, and the store of their results.

pub(crate) mod bench;
pub(crate) mod conv_candidate;
pub(crate) mod select;
pub(crate) mod store;
