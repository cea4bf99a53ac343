//! Axes: from values to places, ticks, and curves thinned to what is visible.

pub(crate) mod scale;
pub(crate) mod thin;
pub(crate) mod ticks;
