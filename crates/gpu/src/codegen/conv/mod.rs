//! Convolutions: a direct kernel, and the patches of those that are matrix products.

pub mod direct;
pub mod im2col;
