//! The estimators, one file each.

mod amigo_cg;
mod amigo_sgd;
mod hpo_sgld;
mod ift_cg;
mod ift_neumann;
mod imaml;
mod implicit;
mod langevin_adjoint;
mod solve;

pub use amigo_cg::AmigoCg;
pub use amigo_sgd::AmigoSgd;
pub use hpo_sgld::HpoSgld;
pub use ift_cg::IftCg;
pub use ift_neumann::IftNeumann;
pub use imaml::Imaml;
pub use langevin_adjoint::LangevinAdjoint;
