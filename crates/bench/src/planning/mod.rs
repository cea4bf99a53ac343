//! How programs are planned: passes, memory, and the time it takes.

pub mod memory;
pub mod passes;
pub mod vit_b16;
