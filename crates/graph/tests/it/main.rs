//! The tests of this crate as one program, so that they are linked once.

mod block_ops;
mod common;
mod custom;
mod dump;
mod elementwise;
mod errors;
mod gauss_newton;
mod indexing;
mod inline;
#[cfg(feature = "ndarray")]
mod interop;
mod means;
mod nn_accuracy;
mod nn_activation;
mod nn_attention;
mod nn_conv;
mod nn_encode;
mod nn_errors;
mod nn_linalg;
mod nn_loss;
mod nn_normalise;
mod nn_pool;
mod nn_sample;
mod nn_support;
mod nn_trigonometry;
mod precision;
mod products;
mod random_expressions;
mod reference;
mod shapes;
mod simplification;
mod special_functions;
mod structural_zeros;
mod thread_end;
mod tree;
