//! The lowered program: nodes, views of their memory, and the layouts of matrix products and row-indexed operations.

pub(crate) mod dot_layout;
pub(crate) mod index_dims;
pub(crate) mod node;
pub(crate) mod view;
