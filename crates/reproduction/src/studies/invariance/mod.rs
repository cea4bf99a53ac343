//! The parts of invariance learning beyond its table: LILA, the marginal likelihood of the training images.

mod evidence;
mod laplace;
mod lila;

pub(crate) use lila::Lila;
