//! Layers, losses and other composites, all written in the primitives of [`Tensor`](crate::Tensor), so that each has
//! derivatives of every order with respect to every argument.
//!
//! Images are `[n, c, h, w]`. A call whose operands do not fit answers with a tensor that carries an error, which names
//! the composite, the shapes and the line of the call; nothing panics.
//!
//! ```
//! use bilevel_graph::{DType, Graph, gradient, nn};
//! let g = Graph::new();
//! let (x, labels) = (g.input("x", [8, 4], DType::F32), g.input("labels", [8], DType::I32));
//! let (w, b) = (g.input("w", [4, 3], DType::F32), g.input("b", [3], DType::F32));
//! let loss = nn::cross_entropy(nn::linear(x, w, b), labels);
//! let d = gradient(loss, &[w, b]).unwrap();
//! assert_eq!(d[0].unwrap().shape(), [4, 3]);
//! ```

mod accuracy;
mod activation;
mod call;
mod encode;
mod layers;
mod linalg;
mod loss;
mod prior;
mod random;
mod sample;
mod scan;
mod softmax;
mod trigonometry;

pub use accuracy::{accuracy, top_k_accuracy};
pub use activation::{elu, gelu, gelu_tanh, leaky_relu, relu, relu6, sigmoid, silu, softplus, tanh};
pub use encode::{embedding, one_hot, position_table, sine_encoding};
pub use layers::attention::{AttentionParameters, Projection, multi_head_attention, scaled_dot_product_attention};
pub use layers::conv::{Conv2d, ConvTranspose2d, conv_transpose2d, conv2d};
pub use layers::linear::linear;
pub use layers::normalise::{BatchNorm, batch_norm, batch_norm_frozen, group_norm, layer_norm};
pub use layers::pool::{Pool2d, avg_pool2d, global_avg_pool2d, global_max_pool2d, max_pool2d};
pub use linalg::{matrix_exponential, norm, safe_sqrt};
pub use loss::{convex_in, cross_entropy, cross_entropy_rows, cross_entropy_soft, mse};
pub use prior::{gaussian_prior, laplace_prior};
pub use random::{bernoulli, dropout, normal, uniform};
pub use sample::{affine_grid, grid_sample, sample_at};
pub use scan::{cumprod, cumsum};
pub use softmax::{log_softmax, logsumexp, softmax};
pub use trigonometry::{acos, asin, atan2};
