//! What a person sees while the command works, and how they stop it.

pub mod interrupt;
pub mod progress;
pub mod readable;
