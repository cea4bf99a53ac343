//! Trace a loss once, derive it to any order.
//!
//! A loss is written in plain Rust on symbolic [`Tensor`]s. [`gradient`], [`jvp`], [`hessian_vector`] and [`mixed_vector`]
//! answer with tensors of the same kind, so they apply to their own results. A [`Program`] is the live part of the graph
//! with names; an [`Executor`] runs it.

// `#[derive(Tree)]` names this crate from outside and from inside alike.
extern crate self as bilevel_graph;

mod array;
mod bindings;
mod buffer;
mod check;
mod check_report;
pub mod conformance;
mod differences;
mod dtype;
mod dump;
mod error;
mod executor;
mod gauss_newton;
mod graph;
mod infer;
pub mod nn;
mod op;
mod operators;
mod precision;
mod program;
pub mod random;
mod reference;
pub mod reference_ops;
mod rules;
mod rules_conv;
pub mod scalar;
pub mod shape;
mod simplify;
mod simplify_shape;
mod tensor;
mod transform;
pub mod tree;
mod validate;

pub use array::{Array, Data, DataMut};
pub use bindings::Bindings;
pub use buffer::{Access, Buffer, Storage};
pub use check::{GradientCheck, check_gradients};
pub use check_report::{CheckReport, CheckRow, Quantity};
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use executor::{Executor, Runnable};
pub use gauss_newton::{GaussNewton, gauss_newton_vector};
pub use graph::Graph;
pub use infer::Meta;
pub use op::{BinaryOp, ConvDims, DotDims, Op, RandomKind, ReduceOp, UnaryOp, WindowDims};
pub use precision::Precision;
pub use program::{Carry, Port, Program, ProgramBuilder, ProgramNode, STEP};
pub use reference::{HostBytes, Reference};
pub use tensor::{Operand, Tensor};
pub use transform::{Derivatives, gradient, gradient_or_zeros, hessian_vector, jvp, mixed_vector, vjp};
pub use tree::{Leaf, Tree, TreeError, TreeOf};
