//! The estimators, one file each.

mod hpo_sgld;
mod inner_loop;
mod langevin_adjoint;
mod rmd;

pub use hpo_sgld::HpoSgld;
pub use langevin_adjoint::LangevinAdjoint;
pub use rmd::{PreparedRmd, Rmd, Storage};
