//! The multilayer perceptron and the convolutional network of the peers' programs.

use crate::cases::case::Start::{Labels, Uniform};
use crate::cases::case::{Case, Inputs};
use crate::error::Result;
use bilevel_graph::{DType, Graph, nn};
use bilevel_models::{Conv4Config, MlpConfig, Statistics};

/// 784-1000(tanh)-10, cross entropy, batch 1000.
pub fn mlp(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let net = inputs.model(&MlpConfig::tanh([784, 1000, 10]).build()?, |_| Uniform(0.05));
    let x = inputs.data(&[1000, 784], Uniform(1.0));
    let y = inputs.data(&[1000], Labels(10));
    let loss = nn::cross_entropy(net.forward(x), y);
    Ok(inputs.case("mlp", loss))
}

/// 4 × [3×3 convolution of 64, relu, 2×2 max pool] on 84×84×3, 5-way head without bias, batch 25.
pub fn conv64(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let mut net = Conv4Config { normalised: false, ..Conv4Config::default() }.build()?;
    net.head.bias = None;
    let net = inputs.model(&net, |name| match name {
        "layers.0.conv.weight" => Uniform(0.2),
        "head.weight" => Uniform(0.05),
        _ => Uniform(0.06),
    });
    let x = inputs.data(&[25, 3, 84, 84], Uniform(1.0));
    let y = inputs.data(&[25], Labels(5));
    let loss = nn::cross_entropy(net.forward(x, Statistics::Batch), y);
    Ok(inputs.case("conv64", loss))
}
