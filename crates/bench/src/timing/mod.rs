//! Times, compared with those of the peers and of the machine.

pub mod calls;
pub mod compare;
pub mod flops;
pub mod goals;
pub mod line;
pub mod peak;
pub mod peers;
pub mod profile;
pub mod statistics;
