//! Every model at its real size, only compared with JAX and not timed: few and small images, all layers, all channels.

use crate::cases::case::Start::{Labels, Uniform};
use crate::cases::case::{Case, Inputs};
use crate::error::Result;
use bilevel_graph::{DType, Graph, Tensor, nn};
use bilevel_models::nerf::depths;
use bilevel_models::{
    Conv4Config, EfficientNetConfig, FourierMlpConfig, NerfConfig, SirenConfig, Statistics, VitConfig,
    WideResNetConfig, logistic as logistic_regression,
};

/// Logistic regression of MNIST's shape.
pub fn logistic(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let net = inputs.model_as_it_starts(&logistic_regression(784, 10)?);
    let (x, y) = (inputs.data(&[100, 784], Uniform(1.0)), inputs.data(&[100], Labels(10)));
    Ok(inputs.case("logistic", nn::cross_entropy(net.forward(x), y)))
}

/// Conv4 with its batch norms on 84×84 images.
pub fn conv4(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let net = inputs.model_as_it_starts(&Conv4Config::default().build()?);
    let (x, y) = images(&mut inputs, 5, 84, 5);
    Ok(inputs.case("conv4", nn::cross_entropy(net.forward(x, Statistics::Batch), y)))
}

/// WRN-28-10, padded as in PyTorch, with the statistics of the batch.
pub fn wrn_28_10(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let sizes = WideResNetConfig { running_statistics: false, ..WideResNetConfig::new(28, 10, 10) };
    let net = inputs.model_as_it_starts(&sizes.build()?);
    let (x, y) = images(&mut inputs, 3, 16, 10);
    Ok(inputs.case("wrn_28_10", nn::cross_entropy(net.forward(x, Statistics::Batch), y)))
}

/// ViT-B/16 on one image.
pub fn vit_b16(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let net = inputs.model_as_it_starts(&VitConfig::base(16, 1000).build()?);
    let (x, y) = images(&mut inputs, 1, 224, 1000);
    Ok(inputs.case("vit_b16", nn::cross_entropy(net.forward(x), y)))
}

/// EfficientNet-Lite0 with running statistics.
pub fn efficientnet_lite0(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let net = inputs.model_as_it_starts(&EfficientNetConfig::lite0(1000).build()?);
    let (x, y) = images(&mut inputs, 2, 64, 1000);
    Ok(inputs.case("efficientnet_lite0", nn::cross_entropy(net.forward(x, Statistics::Running), y)))
}

/// SIREN, mean squared distance of its colours to targets.
pub fn siren(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let net = inputs.model_as_it_starts(&SirenConfig::default().build()?);
    let (x, colours) = (inputs.data(&[64, 2], Uniform(1.0)), inputs.data(&[64, 3], Uniform(1.0)));
    Ok(inputs.case("siren", nn::mse(net.forward(x), colours)))
}

/// The perceptron on Fourier features, with derivatives by its frequencies too.
pub fn fourier(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let net = inputs.model_as_it_starts(&FourierMlpConfig::default().build()?);
    let (x, colours) = (inputs.data(&[64, 2], Uniform(1.0)), inputs.data(&[64, 3], Uniform(1.0)));
    Ok(inputs.case("fourier", nn::mse(net.forward(x), colours)))
}

/// The simplified NeRF, 8 rays of 64 samples, mean squared distance of their colours to targets.
pub fn nerf_whole(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let net = inputs.model_as_it_starts(&NerfConfig::default().build()?);
    let [origins, directions, target] = [0, 1, 2].map(|_| inputs.data(&[8, 3], Uniform(1.0)));
    let seen = net.render(origins, directions, depths(origins, 2.0, 6.0, 64, None));
    Ok(inputs.case("nerf_whole", nn::mse(seen.colour, target)))
}

/// Square images in colour, and labels.
fn images(inputs: &mut Inputs, batch: usize, side: usize, classes: usize) -> (Tensor, Tensor) {
    (inputs.data(&[batch, 3, side, side], Uniform(1.0)), inputs.data(&[batch], Labels(classes)))
}
