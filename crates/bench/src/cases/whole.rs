//! Whole models, small or cut short, only compared with JAX and not timed.

use crate::cases::case::Start::{self, Constant, Labels, Uniform};
use crate::cases::case::{Case, Inputs};
use crate::error::Result;
use bilevel_graph::{DType, Graph, Tensor, nn};
use bilevel_models::nerf::depths;
use bilevel_models::{AlexNetConfig, EfficientNetConfig, NerfConfig, Padding, Statistics, VitConfig, WideResNetConfig};

/// A ViT of two blocks: 32×32 images, patches of 8, width 48, 3 heads, 10 classes, cross entropy, batch 4.
pub fn vit(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let sizes = VitConfig { image: [32, 32], width: 48, depth: 2, heads: 3, hidden: 96, ..VitConfig::small(8, 10) };
    let net = inputs.model(&sizes.build()?, |_| Uniform(0.3));
    let (x, y) = images(&mut inputs, 4, 32);
    Ok(inputs.case("vit", nn::cross_entropy(net.forward(x), y)))
}

/// AlexNet for 32×32 images, 10 classes, cross entropy, batch 4.
pub fn alexnet(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let net = inputs.model(&AlexNetConfig::for_32x32(10).build()?, |_| Uniform(0.05));
    let (x, y) = images(&mut inputs, 4, 32);
    Ok(inputs.case("alexnet", nn::cross_entropy(net.forward(x), y)))
}

/// WRN-10-2 on 16×16 images, padded as JAX pads, with statistics of the batch, 10 classes, cross entropy, batch 6.
pub fn wide_resnet(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let sizes =
        WideResNetConfig { padding: Padding::Same, running_statistics: false, ..WideResNetConfig::new(10, 2, 10) };
    let net = inputs.model(&sizes.build()?, normalised);
    let (x, y) = images(&mut inputs, 6, 16);
    Ok(inputs.case("wide_resnet", nn::cross_entropy(net.forward(x, Statistics::Batch), y)))
}

/// The first three stages of EfficientNet-Lite0 on 24×24 images, running statistics, 10 classes, cross entropy, batch
/// 4.
pub fn efficientnet(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let mut sizes = EfficientNetConfig::lite0(10);
    sizes.stages.truncate(3);
    let net = inputs.model(&sizes.build()?, normalised);
    let (x, y) = images(&mut inputs, 4, 24);
    Ok(inputs.case("efficientnet", nn::cross_entropy(net.forward(x, Statistics::Running), y)))
}

/// A NeRF of two layers of 16, 12 rays of 8 samples, mean squared distance of their colours to targets.
pub fn nerf(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let net = inputs.model(&NerfConfig { bands: 4, highest: 3.0, layers: 2, width: 16 }.build()?, |_| Uniform(0.5));
    let [origins, directions, target] = [0, 1, 2].map(|_| inputs.data(&[12, 3], Uniform(1.0)));
    let seen = net.render(origins, directions, depths(origins, 0.5, 2.5, 8, None));
    Ok(inputs.case("nerf", nn::mse(seen.colour, target)))
}

/// Square images in colour, and labels of 10 classes.
fn images(inputs: &mut Inputs, batch: usize, side: usize) -> (Tensor, Tensor) {
    (inputs.data(&[batch, 3, side, side], Uniform(1.0)), inputs.data(&[batch], Labels(10)))
}

/// Gains and variances of 1, small biases and means, and weights that keep signals alive.
fn normalised(name: &str) -> Start {
    let gain = name.contains("norm") && name.ends_with("weight");
    match name {
        _ if gain || name.ends_with("running_var") => Constant(1.0),
        _ if name.ends_with("bias") || name.ends_with("running_mean") => Uniform(0.1),
        _ => Uniform(0.3),
    }
}
