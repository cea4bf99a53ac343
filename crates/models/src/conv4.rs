//! Conv4: four convolutions with pooling, the network of few-shot learning (Vinyals et al. 2016, Finn et al. 2017).

use crate::batch_norm::{BatchNorm, Statistics};
use crate::error::{Result, require, sizes};
use crate::init::glorot_uniform;
use crate::layers::{Conv, Linear, Padding, flat};
use bilevel::Variable;
use bilevel_graph::{Tensor, Tree, nn};

/// Four times 3×3 convolution, batch norm, rectifier and 2×2 max pool; then a linear head.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Conv4<T> {
    /// The convolutions, in order.
    pub layers: Vec<Layer<T>>,
    /// The head: from the last features to the classes.
    pub head: Linear<T>,
}

/// Convolution, norm, rectifier, pool.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Layer<T> {
    /// 3×3, without bias, as the norm has one.
    pub conv: Conv<T>,
    /// `None` if the config omits it.
    pub norm: Option<BatchNorm<T>>,
}

/// Sizes of a [`Conv4`].
///
/// ```
/// use bilevel_models::{Conv4Config, parameter_count};
/// let net = Conv4Config { channels: 1, image: [28, 28], classes: 5, ..Conv4Config::default() }.build()?;
/// assert_eq!(net.head.weight.shape(), [64, 5]);
/// assert_eq!(parameter_count(&net), 112_005);
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Conv4Config {
    /// Height and width of the images.
    pub image: [usize; 2],
    /// Channels of the images.
    pub channels: usize,
    /// Channels of every convolution.
    pub width: usize,
    /// Classes.
    pub classes: usize,
    /// Whether each convolution is followed by a batch norm. It keeps no running statistics: few-shot learning
    /// normalises every task with its own.
    pub normalised: bool,
}

impl Default for Conv4Config {
    /// miniImageNet's 84×84 in colour, 64 channels, 5 classes, normalised.
    fn default() -> Self {
        Conv4Config { image: [84, 84], channels: 3, width: 64, classes: 5, normalised: true }
    }
}

impl Conv4Config {
    /// The model; weights start as [`glorot_uniform`], biases at 0.
    ///
    /// # Errors
    ///
    /// If a size is 0, or the images are smaller than 16×16, which leaves nothing after four halvings.
    pub fn build(&self) -> Result<Conv4<Variable>> {
        let Conv4Config { image: [height, width_of_image], channels, width, classes, normalised } = *self;
        let name = "Conv4";
        let named = [("image height", height), ("image width", width_of_image), ("channels", channels)];
        sizes(name, &[&named[..], &[("width", width), ("classes", classes)]].concat())?;
        require(name, height.min(width_of_image) >= 16, || {
            "images must be at least 16×16, so that they can be halved \
             four times"
                .into()
        })?;
        let layer = |inputs: usize| Layer {
            conv: Conv::new(glorot_uniform([width, inputs, 3, 3], 9 * inputs, 9 * width), Padding::Each(1)),
            norm: normalised.then(|| BatchNorm::new(width)),
        };
        let layers = [channels, width, width, width].map(layer).into();
        let left = width * (height / 16) * (width_of_image / 16);
        Ok(Conv4 { layers, head: Linear::new(glorot_uniform([left, classes], left, classes)) })
    }
}

impl Conv4<Tensor> {
    /// Logits `[n, classes]` of images `[n, c, h, w]`.
    #[track_caller]
    pub fn forward(&self, images: Tensor, statistics: Statistics) -> Tensor {
        self.head.forward(self.features(images, statistics))
    }

    /// The input of the head, `[n, ..]` flat: prototypes are means of these.
    #[track_caller]
    pub fn features(&self, images: Tensor, statistics: Statistics) -> Tensor {
        let mut x = images;
        for layer in &self.layers {
            x = layer.conv.forward(x);
            if let Some(norm) = &layer.norm {
                x = norm.forward(x, statistics);
            }
            x = nn::max_pool2d(nn::relu(x), nn::Pool2d::of([2, 2]));
        }
        flat(x)
    }
}
