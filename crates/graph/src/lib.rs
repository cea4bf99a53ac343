//! Trace a loss once, derive it to any order.

mod dtype;
mod op;
pub mod random;

pub use dtype::DType;
pub use op::{BinaryOp, ConvDims, DotDims, Op, RandomKind, ReduceOp, UnaryOp, WindowDims};
