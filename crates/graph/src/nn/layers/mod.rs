//! Layers: functions with weights, windows or statistics.

pub(super) mod attention;
pub(super) mod conv;
pub(super) mod linear;
pub(super) mod normalise;
pub(super) mod pool;
