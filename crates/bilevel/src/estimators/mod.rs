//! The estimators, one file each.

mod covariance;
mod es;
mod fmd;
mod hpo_sgld;
mod inner_loop;
mod langevin_adjoint;
mod reptile;
mod rmd;
mod rmd_fo;

pub use covariance::Covariance;
pub use es::Es;
pub use fmd::Fmd;
pub use hpo_sgld::HpoSgld;
pub use langevin_adjoint::LangevinAdjoint;
pub use reptile::Reptile;
pub use rmd::{PreparedRmd, Rmd, Storage};
pub use rmd_fo::RmdFo;
