//! Scheduling of steps: streams, horizontal fusion, software pipelining, and a symbolic executor to test them.

pub mod horizontal_fusion;
pub mod oracle;
pub mod pipeline;
pub mod streams;
