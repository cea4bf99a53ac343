//! What the methods of the library are made of, for methods written elsewhere.
//!
//! Together they are the three acts of most methods: an inner loop ([`InnerLoop`](crate::InnerLoop), from [`Start`]), a linear solve at the [`Point`]
//! where it ends ([`ConjugateGradients`], [`Richardson`]), and the product that makes a hypergradient of the solution
//! ([`Implicit`]). A method that samples counts what its samples are worth with [`effective_samples`]. Everything beneath, the
//! problem as tensors and compiled programs of it, is [`Trace`](crate::programs::Trace) and [`Routine`](crate::programs::Routine).

pub use crate::compiled::norms::LazyNorm;
pub use crate::hypergradient::parts::effective_samples;
pub use crate::hypergradient::parts::implicit::{Ending, Implicit, Point};
pub use crate::hypergradient::parts::solve::{ConjugateGradients, Ended, Matrix, Richardson, Solution};
pub use crate::inner::walk::{InnerStep, Start};
