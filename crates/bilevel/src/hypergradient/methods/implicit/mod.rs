//! Methods that solve a linear system with the inner Hessian.

pub(crate) mod amigo_cg;
pub(crate) mod amigo_sgd;
pub(crate) mod d_tfbo;
pub(crate) mod hoag;
pub(crate) mod ift_cg;
pub(crate) mod ift_neumann;
pub(crate) mod imaml;
pub(crate) mod nystrom;
pub(crate) mod sama;
pub(crate) mod stocbio;
