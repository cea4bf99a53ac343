//! Methods that differentiate the steps of the inner loop.

pub(crate) mod fg2u;
pub(crate) mod fmd;
pub(crate) mod reptile;
pub(crate) mod rmd;
pub(crate) mod rmd_fo;
