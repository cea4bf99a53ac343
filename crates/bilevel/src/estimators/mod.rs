//! The estimators, one file each.

mod hpo_sgld;
mod langevin_adjoint;

pub use hpo_sgld::HpoSgld;
pub use langevin_adjoint::LangevinAdjoint;
