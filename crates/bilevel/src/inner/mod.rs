//! The inner loop: its optimizers, and training of θ alone.

pub(crate) mod growth;
pub(crate) mod inner_loop;
pub(crate) mod optimizer;
pub(crate) mod trainer;
pub(crate) mod training;
pub(crate) mod walk;
