//! Parts of the library's methods, for methods written elsewhere.
//!
//! They are the three stages of most methods: an inner loop ([`InnerLoop`](crate::InnerLoop), from [`InnerStart`]), a linear
//! solve at its end, a [`Point`] ([`ConjugateGradients`], [`Richardson`]), and the product that turns the solution into
//! a hypergradient ([`Implicit`]). A method that samples measures its effective sample size with [`effective_samples`].
//! Everything beneath, the problem as tensors and compiled programs of it, is [`Trace`](crate::programs::Trace) and
//! [`Routine`](crate::programs::Routine).

pub use crate::compiled::norms::LazyNorm;
pub use crate::hypergradient::parts::effective_samples;
pub use crate::hypergradient::parts::implicit::{Ending, Implicit, Point};
pub use crate::hypergradient::parts::solve::{ConjugateGradients, Ended, Matrix, Richardson, Solution};
pub use crate::inner::walk::{InnerStart, InnerStep};
