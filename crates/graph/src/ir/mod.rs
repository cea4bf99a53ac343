//! The intermediate representation: operations, shape inference, simplification, and programs.

pub(crate) mod collective;
pub(crate) mod conv_role;
pub(crate) mod dump;
pub(crate) mod function;
pub(crate) mod graph;
pub(crate) mod host;
pub(crate) mod infer;
pub(crate) mod op;
pub(crate) mod precision;
pub(crate) mod program;
#[cfg(feature = "serde")]
pub(crate) mod serial;
pub(crate) mod simplify;
pub(crate) mod simplify_shape;
pub(crate) mod validate;
