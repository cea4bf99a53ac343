//! Trace a loss once, derive it to any order.

// `#[derive(Tree)]` names this crate from outside and from inside alike.
extern crate self as bilevel_graph;

mod dtype;
mod op;
pub mod tree;

pub use dtype::DType;
pub use op::{BinaryOp, ConvDims, DotDims, Op, RandomKind, ReduceOp, UnaryOp, WindowDims};
pub use tree::{Leaf, Tree, TreeError, TreeOf};
