//! Layers: what has weights, windows or statistics of its own.

pub(super) mod attention;
pub(super) mod conv;
pub(super) mod linear;
pub(super) mod normalise;
pub(super) mod pool;
