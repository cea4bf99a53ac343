//! Parts of the library's methods, for methods written elsewhere.
//!
//! They are the three stages of most methods. The first is an inner loop ([`InnerLoop`](crate::InnerLoop), from
//! [`InnerStart`]). The second is a linear solve at its end, a [`Point`] ([`ConjugateGradients`], [`Richardson`]). The
//! third is the product that turns the solution into a hypergradient ([`Implicit`]). A method that samples measures its
//! effective sample size with [`effective_samples`]. All of them use the problem as tensors, a
//! [`Trace`](crate::programs::Trace), and compiled programs, a [`Routine`](crate::programs::Routine).

pub use crate::compiled::norms::LazyNorm;
pub use crate::hypergradient::parts::effective_samples;
pub use crate::hypergradient::parts::implicit::{Ending, Implicit, Point};
pub use crate::hypergradient::parts::solve::{ConjugateGradients, Ended, Matrix, Richardson, Solution};
pub use crate::inner::walk::{InnerStart, InnerStep};
