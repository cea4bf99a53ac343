//! Methods that turn the inner problem into a penalty on the outer loss, from gradients alone.

pub(crate) mod bome;
pub(crate) mod f2sa;
pub(crate) mod g_pbgd;
pub(crate) mod meha;
pub(crate) mod v_pbgd;
