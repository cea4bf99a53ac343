//! Methods in which θ, the linear system and λ all move at once.

pub(crate) mod ma_soba;
pub(crate) mod saba;
pub(crate) mod soba;
pub(crate) mod srba;
