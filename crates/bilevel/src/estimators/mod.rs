//! The estimators, one file each, and what several of them share.

mod amigo_cg;
mod amigo_sgd;
mod chains;
mod covariance;
pub mod effective_samples;
mod es;
mod fmd;
mod growth;
mod hpo_sgld;
mod ift_cg;
mod ift_neumann;
mod imaml;
pub(crate) mod implicit;
pub(crate) mod inner_loop;
mod langevin_adjoint;
mod reptile;
mod rmd;
mod rmd_fo;
mod shrinking;
pub(crate) mod solve;
mod trust_region;

pub use amigo_cg::AmigoCg;
pub use amigo_sgd::AmigoSgd;
pub use chains::Chains;
pub use covariance::Covariance;
pub use es::Es;
pub use fmd::Fmd;
pub use hpo_sgld::HpoSgld;
pub use ift_cg::IftCg;
pub use ift_neumann::IftNeumann;
pub use imaml::Imaml;
pub use implicit::CurvatureProduct;
pub use langevin_adjoint::LangevinAdjoint;
pub use reptile::Reptile;
pub use rmd::{PreparedRmd, Rmd, Storage};
pub use rmd_fo::RmdFo;
