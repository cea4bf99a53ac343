//! Methods that sample the inner loss as a Gibbs distribution.

pub(crate) mod covariance;
pub(crate) mod evidence;
pub(crate) mod hpo_sgld;
pub(crate) mod langevin_adjoint;
