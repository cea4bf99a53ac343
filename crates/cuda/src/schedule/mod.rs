//! Scheduling of the steps of a plan: streams, horizontal fusion and software pipelining of the loop.

pub(crate) mod horizontal_fusion;
pub(crate) mod loop_pipeline;
pub(crate) mod loop_stages;
#[cfg(test)]
mod oracle;
pub(crate) mod streams;
