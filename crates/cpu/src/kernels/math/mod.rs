//! Elementary functions of vectors, each written once over the vector traits.

pub(crate) mod basic;
pub(crate) mod erf;
pub(crate) mod exp;
pub(crate) mod log;
mod poly;
pub(crate) mod pow;
pub(crate) mod trig;
