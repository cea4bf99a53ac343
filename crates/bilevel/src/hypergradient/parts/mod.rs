//! Parts shared by several methods: solvers and their combinations, single loops, penalties, warm starts.

pub(crate) mod combination;
pub mod effective_samples;
pub(crate) mod implicit;
pub(crate) mod minibatches;
pub(crate) mod neumann;
pub(crate) mod nystrom;
pub(crate) mod penalty;
pub(crate) mod shrinking;
pub(crate) mod single_loop;
pub(crate) mod solve;
pub(crate) mod trust_region;
pub(crate) mod unit_vectors;
pub(crate) mod warm;
