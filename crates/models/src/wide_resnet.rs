//! Wide residual networks (Zagoruyko and Komodakis 2016) for small images.

use crate::batch_norm::{BatchNorm, Statistics};
use crate::error::{Result, require, sizes};
use crate::init::{he_normal, zeros};
use crate::layers::{Conv, Linear, Padding};
use bilevel::Variable;
use bilevel_graph::{Tensor, Tree, nn};

/// A convolution, three groups of residual blocks of which the second and third halve the image, norm, rectifier, mean
/// over the image, linear head.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct WideResNet<T> {
    /// To 16 channels.
    pub stem: Conv<T>,
    /// All blocks, in order.
    pub blocks: Vec<Block<T>>,
    /// Behind the last block.
    pub norm: BatchNorm<T>,
    /// To the classes.
    pub head: Linear<T>,
}

/// With h = relu(norm1 x): shortcut + conv2(relu(norm2(conv1 h))), where the shortcut is x, or a 1×1 convolution of h
/// if the number of channels changes.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Block<T> {
    /// Before the first convolution.
    pub norm1: BatchNorm<T>,
    /// 3×3; halves the image in the first block of the second and the third group.
    pub conv1: Conv<T>,
    /// Before the second convolution.
    pub norm2: BatchNorm<T>,
    /// 3×3.
    pub conv2: Conv<T>,
    /// 1×1, if the number of channels changes.
    pub shortcut: Option<Conv<T>>,
}

/// Sizes of a [`WideResNet`].
///
/// ```
/// use bilevel_models::{WideResNetConfig, parameter_count};
/// let net = WideResNetConfig::new(28, 10, 10).build()?;
/// assert_eq!(parameter_count(&net), 36_479_194);
/// assert!(WideResNetConfig::new(27, 10, 10).build().is_err());
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct WideResNetConfig {
    /// Layers: 6·n + 4 for n blocks per group.
    pub depth: usize,
    /// How many times wider than 16, 32 and 64 channels.
    pub width: usize,
    /// Channels of the first convolution, 16 in the paper; the groups have as many, twice and four times as many, times
    /// the width.
    pub stem: usize,
    /// Classes.
    pub classes: usize,
    /// Channels of the images.
    pub channels: usize,
    /// Zeros around images before a 3×3 convolution.
    pub padding: Padding,
    /// Whether batch norms keep running statistics.
    pub running_statistics: bool,
}

impl WideResNetConfig {
    /// WRN-depth-width for colour images, padded as in PyTorch, with running statistics.
    pub fn new(depth: usize, width: usize, classes: usize) -> Self {
        let (stem, channels, padding) = (16, 3, Padding::Each(1));
        WideResNetConfig { depth, width, stem, classes, channels, padding, running_statistics: true }
    }

    /// The model. Convolutions start as [`he_normal`] with the fan out, as in the authors' program; the head at 0.
    ///
    /// # Errors
    ///
    /// If a size is 0, or the depth is not 6·n + 4.
    pub fn build(&self) -> Result<WideResNet<Variable>> {
        let WideResNetConfig { depth, width, stem, classes, channels, padding, running_statistics } = *self;
        let name = "Wide-ResNet";
        sizes(name, &[("depth", depth), ("classes", classes), ("channels", channels)])?;
        sizes(
            name,
            &[("width", width), ("stem", stem), ("4·width·stem", 4usize.saturating_mul(width).saturating_mul(stem))],
        )?;
        let whole = depth >= 10 && (depth - 4).is_multiple_of(6);
        require(name, whole, || format!("a depth of {depth} is not 6·n + 4; take 10, 16, 22, 28 or more"))?;
        let norm = |channels| {
            let norm = BatchNorm::new(channels);
            if running_statistics { norm.running() } else { norm }
        };
        let conv = |inputs: usize, outputs: usize, side: usize, padding| {
            Conv::new(he_normal([outputs, inputs, side, side], outputs * side * side), padding)
        };
        let (mut blocks, mut inputs) = (vec![], stem);
        for (times, first_stride) in [(1, 1), (2, 2), (4, 2)] {
            let outputs = times * width * stem;
            for number in 0..(depth - 4) / 6 {
                let stride = if number == 0 { first_stride } else { 1 };
                let shortcut = || Conv { stride, ..conv(inputs, outputs, 1, Padding::Each(0)) };
                blocks.push(Block {
                    norm1: norm(inputs),
                    conv1: Conv { stride, ..conv(inputs, outputs, 3, padding) },
                    norm2: norm(outputs),
                    conv2: conv(outputs, outputs, 3, padding),
                    shortcut: (inputs != outputs).then(shortcut),
                });
                inputs = outputs;
            }
        }
        let (norm, head) = (norm(inputs), Linear::new(zeros([inputs, classes])));
        Ok(WideResNet { stem: conv(channels, stem, 3, padding), blocks, norm, head })
    }
}

impl WideResNet<Tensor> {
    /// Logits `[n, classes]` of images `[n, c, h, w]`.
    #[track_caller]
    pub fn forward(&self, images: Tensor, statistics: Statistics) -> Tensor {
        self.head.forward(self.features(images, statistics))
    }

    /// The input of the head, `[n, 4·width·stem]`.
    #[track_caller]
    pub fn features(&self, images: Tensor, statistics: Statistics) -> Tensor {
        let mut x = self.stem.forward(images);
        for block in &self.blocks {
            x = block.forward(x, statistics);
        }
        nn::global_avg_pool2d(nn::relu(self.norm.forward(x, statistics)))
    }
}

impl Block<Tensor> {
    /// `[n, c, h, w]` to `[n, c', h', w']`.
    #[track_caller]
    pub fn forward(&self, x: Tensor, statistics: Statistics) -> Tensor {
        let h = nn::relu(self.norm1.forward(x, statistics));
        let shortcut = match &self.shortcut {
            Some(conv) => conv.forward(h),
            None => x,
        };
        let h = nn::relu(self.norm2.forward(self.conv1.forward(h), statistics));
        shortcut + self.conv2.forward(h)
    }
}
