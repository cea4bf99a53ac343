//! AlexNet: convolutions with some pooling between them, then affine maps. For 32×32 images it comes in several forms,
//! so that the config lists the layers.

use crate::error::{Result, require, sizes};
use crate::init::he_normal;
use crate::layers::{Activation, Conv, Padding, flat};
use crate::mlp::{Mlp, MlpConfig};
use bilevel::Variable;
use bilevel_graph::{Tensor, Tree, nn};

/// Convolutions with rectifiers, some followed by a 2×2 max pool; then a perceptron.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct AlexNet<T> {
    /// The convolutions, in order.
    pub features: Vec<Layer<T>>,
    /// The classifier: from the last features to the classes.
    pub classifier: Mlp<T>,
}

/// Convolution, rectifier, and an optional pool.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Layer<T> {
    /// With a bias.
    pub conv: Conv<T>,
    /// Whether a 2×2 max pool follows.
    pub pooled: bool,
}

/// One convolution of an [`AlexNetConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerConfig {
    /// Output channels.
    pub channels: usize,
    /// Height and width of the kernel.
    pub kernel: usize,
    /// Step between output positions.
    pub stride: usize,
    /// Zeros on every side.
    pub padding: usize,
    /// Whether a 2×2 max pool follows.
    pub pooled: bool,
}

impl LayerConfig {
    /// Stride 1, as many zeros as keep the size of the image.
    pub fn same(channels: usize, kernel: usize, pooled: bool) -> Self {
        LayerConfig { channels, kernel, stride: 1, padding: kernel / 2, pooled }
    }

    /// Length of an axis after this layer, or `None` if the kernel or the pool does not fit.
    fn length_after(&self, length: usize) -> Option<usize> {
        let steps = (length + 2 * self.padding).checked_sub(self.kernel)?;
        let length = steps / self.stride + 1;
        Some(if self.pooled { length / 2 } else { length }).filter(|&length| length > 0)
    }
}

/// Sizes of an [`AlexNet`].
///
/// ```
/// use bilevel_models::{AlexNetConfig, parameter_count};
/// let net = AlexNetConfig::for_32x32(10).build()?;
/// assert_eq!(parameter_count(&net), 2_472_266);
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AlexNetConfig {
    /// Height and width of the images.
    pub image: [usize; 2],
    /// Channels of the images.
    pub channels: usize,
    /// The convolutions, in order.
    pub features: Vec<LayerConfig>,
    /// Widths of the hidden affine maps.
    pub hidden: Vec<usize>,
    /// Classes.
    pub classes: usize,
}

impl AlexNetConfig {
    /// The common form for 32×32 images: a first kernel of 11×11 at stride 4, and one affine map after the
    /// convolutions. 2.47 million parameters with 10 classes.
    pub fn for_32x32(classes: usize) -> Self {
        let first = LayerConfig { channels: 64, kernel: 11, stride: 4, padding: 5, pooled: true };
        let features = vec![
            first,
            LayerConfig::same(192, 5, true),
            LayerConfig::same(384, 3, false),
            LayerConfig::same(256, 3, false),
            LayerConfig::same(256, 3, true),
        ];
        AlexNetConfig { image: [32, 32], channels: 3, features, hidden: vec![], classes }
    }

    /// A form with 3×3 kernels only and two hidden affine maps of 1024 and 512, whose first layers see 16 times as many
    /// places.
    pub fn with_small_kernels(classes: usize) -> Self {
        let layers = [(64, true), (192, true), (384, false), (256, false), (256, true)];
        let features = layers.map(|(channels, pooled)| LayerConfig::same(channels, 3, pooled)).into();
        AlexNetConfig { image: [32, 32], channels: 3, features, hidden: vec![1024, 512], classes }
    }

    /// The model; weights start as [`he_normal`], biases at 0.
    ///
    /// # Errors
    ///
    /// If a size is 0, or a kernel or a pool does not fit the features before it.
    pub fn build(&self) -> Result<AlexNet<Variable>> {
        let name = "AlexNet";
        let ([mut height, mut width], mut channels) = (self.image, self.channels);
        let named = [("image height", height), ("image width", width), ("channels", channels)];
        sizes(name, &[&named[..], &[("classes", self.classes)]].concat())?;
        let mut features = vec![];
        for (number, layer) in self.features.iter().enumerate() {
            let LayerConfig { channels: out, kernel, stride, padding, pooled } = *layer;
            sizes(
                name,
                &[
                    ("channels", out),
                    ("a kernel", kernel),
                    ("a stride", stride),
                    ("padding + 1", padding.saturating_add(1)),
                ],
            )?;
            let left = layer.length_after(height).zip(layer.length_after(width));
            require(name, left.is_some(), || {
                format!("convolution {number} leaves nothing of {height}×{width} images")
            })?;
            let weight = he_normal([out, channels, kernel, kernel], channels * kernel * kernel);
            let bias = Some(Variable::constant([out], 0.0));
            let conv = Conv { bias, stride, ..Conv::new(weight, Padding::Each(padding)) };
            features.push(Layer { conv, pooled });
            channels = out;
            (height, width) = left.unwrap_or_default();
        }
        let widths = [&[channels * height * width], &self.hidden[..], &[self.classes]].concat();
        let classifier = MlpConfig { widths, activation: Activation::Relu }.build()?;
        Ok(AlexNet { features, classifier })
    }
}

impl<T> AlexNet<T> {
    /// The name of a leaf in PyTorch programs. Convolutions are numbered together with the rectifiers and pools between
    /// them. Affine maps, as in torchvision, are numbered with the rectifiers and dropouts between them; a single one
    /// has no number.
    ///
    /// ```
    /// use bilevel_models::AlexNetConfig;
    /// let net = AlexNetConfig::for_32x32(10).build()?;
    /// assert_eq!(net.torchvision_name("features.1.conv.weight"), "features.3.weight");
    /// # Ok::<(), bilevel_models::ModelError>(())
    /// ```
    pub fn torchvision_name(&self, leaf: &str) -> String {
        let parts: Vec<&str> = leaf.split('.').collect();
        match parts[..] {
            ["features", number, "conv", leaf] => {
                let before = self.features.iter().take(number.parse().unwrap_or(0));
                let place: usize = before.map(|layer| if layer.pooled { 3 } else { 2 }).sum();
                format!("features.{place}.{leaf}")
            }
            ["classifier", "layers", _, leaf] if self.classifier.layers.len() == 1 => format!("classifier.{leaf}"),
            // Dropout, affine, rectifier, dropout, affine, rectifier, affine.
            ["classifier", "layers", number, leaf] => {
                let (number, last) = (number.parse().unwrap_or(0), self.classifier.layers.len().saturating_sub(1));
                format!("classifier.{}.{leaf}", if number == last { 3 * number } else { 3 * number + 1 })
            }
            _ => leaf.into(),
        }
    }
}

impl AlexNet<Tensor> {
    /// Logits `[n, classes]` of images `[n, c, h, w]`.
    #[track_caller]
    pub fn forward(&self, images: Tensor) -> Tensor {
        let mut x = images;
        for layer in &self.features {
            x = nn::relu(layer.conv.forward(x));
            if layer.pooled {
                x = nn::max_pool2d(x, nn::Pool2d::of([2, 2]));
            }
        }
        self.classifier.forward(flat(x))
    }
}
