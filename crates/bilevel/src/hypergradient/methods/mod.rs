//! The methods, one file each, in six families.

pub(crate) mod implicit;
pub(crate) mod langevin;
pub(crate) mod penalty;
pub(crate) mod search;
pub(crate) mod single_loop;
pub(crate) mod unrolled;
