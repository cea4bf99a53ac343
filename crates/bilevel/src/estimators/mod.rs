//! The estimators, one file each.

mod hpo_sgld;
mod ift_cg;
mod ift_neumann;
mod implicit;
mod langevin_adjoint;
mod solve;

pub use hpo_sgld::HpoSgld;
pub use ift_cg::IftCg;
pub use ift_neumann::IftNeumann;
pub use langevin_adjoint::LangevinAdjoint;
