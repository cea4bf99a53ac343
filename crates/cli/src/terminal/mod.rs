//! What a person sees while the command works, and how they stop it.

pub mod board;
pub mod display;
pub mod interrupt;
pub mod readable;
