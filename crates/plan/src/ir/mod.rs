//! The lowered program: nodes, views of their memory, and the layouts of matrix products and row-indexed operations.

pub(crate) mod dot_layout;
pub(crate) mod dump;
pub(crate) mod index_dims;
pub(crate) mod lowered;
pub(crate) mod node;
pub(crate) mod verify;
pub(crate) mod verify_groups;
pub(crate) mod verify_nodes;
pub(crate) mod view;
