//! Gradient-based bi-level optimization: a problem is two losses, a method estimates the derivative of the outer loss
//! through the inner training, and an outer loop follows it.

mod error;
mod estimator;
mod estimators;
mod problem;
mod scope;
mod trace;
mod variable;

pub use bilevel_cpu::Cpu;
pub use bilevel_graph as graph;
pub use bilevel_graph::{Array, DType, Leaf, Tensor, Tree};
pub use error::{Error, Result};
pub use estimator::{Estimator, Hypergradient, Method, Oracles, State};
pub use estimators::{
    AmigoCg, AmigoSgd, Covariance, Es, Fmd, HpoSgld, IftCg, IftNeumann, Imaml, LangevinAdjoint, PreparedRmd, Reptile,
    Rmd, RmdFo, Storage,
};
pub use problem::{Problem, ProblemBuilder};
pub use scope::Scope;
pub use variable::{Start, Variable};
