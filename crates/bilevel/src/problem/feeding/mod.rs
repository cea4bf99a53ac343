//! Data on its way to the device: epochs, permutations, finite sums, streams and their loaders.

pub(crate) mod epochs;
pub(crate) mod feed;
pub(crate) mod finite_sum;
pub(crate) mod loader;
pub(crate) mod permutation;
pub(crate) mod sources;
pub(crate) mod stream;
