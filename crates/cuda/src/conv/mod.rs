//! Convolutions: canonical forms, im2col and cuDNN.

pub(crate) mod canonical;
pub(crate) mod cudnn;
pub(crate) mod im2col;
pub(crate) mod lower;
