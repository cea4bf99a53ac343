//! Methods that evaluate the outer loss at perturbed λ.

pub(crate) mod es;
pub(crate) mod pes;
