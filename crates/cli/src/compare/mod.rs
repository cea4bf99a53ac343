//! Several methods on several seeds: what is planned, run, summed up and shown.

pub mod curves;
pub mod lambda;
pub mod page;
pub mod plan;
pub mod summary;
pub mod work;
