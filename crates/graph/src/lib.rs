//! Trace a loss once, derive it to any order.
//!
//! A loss is written in plain Rust on symbolic [`Tensor`]s. [`gradient`], [`jvp`], [`hessian_vector`] and [`mixed_vector`]
//! answer with tensors of the same kind, so they apply to their own results. A [`Program`] is the live part of the graph
//! with names; an [`Executor`] runs it.

#![warn(clippy::too_many_lines)]

// `#[derive(Tree)]` names this crate from outside and from inside alike.
extern crate self as bilevel_graph;

mod array;
mod autodiff;
mod check;
pub mod conformance;
mod dtype;
mod elements;
mod error;
mod exec;
#[cfg(feature = "ndarray")]
pub mod interop;
mod ir;
mod line;
pub mod nn;
pub mod random;
pub mod scalar;
mod scalar_gamma;
pub mod shape;
mod tensor;
pub mod tree;

pub use crate::autodiff::custom::{CustomRule, custom};
pub use crate::autodiff::gauss_newton::{GaussNewton, gauss_newton_vector};
pub use crate::autodiff::transform::{
    Derivatives, gradient, gradient_or_zeros, hessian_vector, jvp, mixed_vector, vjp,
};
pub use crate::check::report::{CheckReport, CheckRow, Quantity};
pub use crate::exec::bindings::Bindings;
pub use crate::exec::block_ops;
pub use crate::exec::buffer::{Access, Buffer, Storage};
pub use crate::exec::communicator::{Communicator, Link, even_parts, rank_error};
pub use crate::exec::executor::{Executor, Runnable};
pub use crate::exec::reference::{HostBytes, Reference};
pub use crate::exec::reference_ops;
pub use crate::ir::collective::{Collective, CollectiveKind};
pub use crate::ir::conv_role::{ConvArray, ConvPass, ConvRole};
pub use crate::ir::function::Function;
pub use crate::ir::graph::Graph;
pub use crate::ir::host::{HostCall, HostFunction};
pub use crate::ir::infer::Meta;
pub use crate::ir::op::{BinaryOp, BlockOp, ConvDims, DotDims, Op, RandomKind, ReduceOp, UnaryOp, WindowDims};
pub use crate::ir::precision::Precision;
pub use crate::ir::program::{Carry, Port, Program, ProgramBuilder, ProgramNode, STEP, Shard};
pub use array::{Array, Data, DataMut};
pub use check::{GradientCheck, check_gradients};
pub use dtype::DType;
pub use elements::Elements;
pub use error::{Error, ErrorKind, Result};
pub use line::Line;
pub use tensor::{Operand, Tensor};
pub use tree::{Leaf, Tree, TreeError, TreeOf};
