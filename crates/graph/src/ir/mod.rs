//! The intermediate representation: operations, shape inference, simplification, and programs.

pub(crate) mod dump;
pub(crate) mod graph;
pub(crate) mod infer;
pub(crate) mod op;
pub(crate) mod precision;
pub(crate) mod program;
pub(crate) mod simplify;
pub(crate) mod simplify_shape;
pub(crate) mod validate;
