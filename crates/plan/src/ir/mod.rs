//! The lowered program: nodes, their storage types, views of their memory, and the layouts of matrix products and row-indexed operations.

pub(crate) mod dot_layout;
pub(crate) mod dump;
pub(crate) mod index_dims;
pub(crate) mod interpret;
pub(crate) mod lowered;
pub(crate) mod lowered_graph;
pub(crate) mod node;
pub(crate) mod rewrite;
pub(crate) mod snapshot;
pub(crate) mod storage_type;
pub(crate) mod verify;
pub(crate) mod view;

#[cfg(test)]
mod tests_planted;
