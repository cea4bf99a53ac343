//! Models for bilevel problems: structs of parameters with their forward pass.
//!
//! Use it for a standard network: an MLP, convolutional networks, a Wide-ResNet, a ViT, a SIREN or a NeRF.
//! A model is a [`Tree`](bilevel_graph::Tree). Its config builds it with a [`Variable`](bilevel::Variable) at every
//! leaf, which defines the start of the leaf. Inside a loss the same struct holds tensors, and
//! [`forward`](vit::Vit::forward) is a plain function of them. Images are `[n, c, h, w]`. Nothing panics: an invalid
//! config is a [`ModelError`], and a batch that does not fit gives a tensor that carries an error.
//!
//! ```
//! use bilevel::prelude::*;
//! use bilevel_graph::nn;
//! use bilevel_models::MlpConfig;
//!
//! // One weight decay for a small network, chosen on other data than it is trained on.
//! let net = MlpConfig::tanh([2, 3, 2]).build()?;
//! let points = |shift: f64| Array::from_f64([4, 2], (0..8).map(|i| f64::from(i) * 0.3 - shift).collect());
//! let labels = Array::from_i32([4], vec![0, 0, 1, 1])?;
//! let problem = Problem::builder(Leaf(Variable::constant([], -2.0)), net)
//!     .data("x", points(1.0)?)
//!     .data("x other", points(1.1)?)
//!     .data("y", labels)
//!     .inner(|s, decay, net| {
//!         let squares = net.layers[0].weight.square().sum_all() + net.layers[1].weight.square().sum_all();
//!         nn::cross_entropy(net.forward(s.data("x")), s.data("y")) + decay.0.exp() * squares
//!     })
//!     .outer(|s, _, net| nn::cross_entropy(net.forward(s.data("x other")), s.data("y")))
//!     .build()?;
//! let outcome = Driver::new(&problem, Rmd::default()).iterations(2).run()?;
//! assert!(outcome.theta.layers[0].weight.to_f64().iter().all(|w| w.is_finite()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod alexnet;
pub mod batch_norm;
pub mod conv4;
pub mod efficientnet;
mod error;
pub mod fourier;
pub mod init;
pub mod layers;
pub mod mlp;
mod model;
pub mod nerf;
mod side_by_side;
pub mod siren;
pub mod vit;
mod weights;
pub mod wide_resnet;

pub use alexnet::{AlexNet, AlexNetConfig};
pub use batch_norm::{BatchNorm, Statistics};
pub use conv4::{Conv4, Conv4Config};
pub use efficientnet::{EfficientNet, EfficientNetConfig};
pub use error::{ModelError, Result};
pub use fourier::{FourierMlp, FourierMlpConfig};
pub use layers::{Activation, Conv, LayerNorm, Linear, Padding};
pub use mlp::{Mlp, MlpConfig, logistic};
pub use model::{inputs, parameter_count, with_frozen_statistics};
pub use nerf::{Nerf, NerfConfig};
pub use side_by_side::{for_tasks, same_for_tasks};
pub use siren::{Siren, SirenConfig};
pub use vit::{Vit, VitConfig};
pub use weights::Weights;
pub use wide_resnet::{WideResNet, WideResNetConfig};
