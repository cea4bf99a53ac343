//! EfficientNet-Lite (Tan and Le 2019, without squeeze and excitation and with ReLU6), padded as in TensorFlow.

use crate::batch_norm::{BatchNorm, Statistics};
use crate::error::{Result, sizes};
use crate::init::{fan_in_uniform, he_normal};
use crate::layers::{Conv, Linear, Padding};
use bilevel::Variable;
use bilevel_graph::{Tensor, Tree, nn};

/// A convolution, stages of inverted bottlenecks, a 1×1 convolution, mean over the image, linear head.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct EfficientNet<T> {
    /// 3×3 at stride 2.
    pub stem: Unit<T>,
    /// The blocks of every stage, in order.
    pub stages: Vec<Vec<Block<T>>>,
    /// 1×1.
    pub top: Unit<T>,
    /// To the classes.
    pub head: Linear<T>,
}

/// A convolution and its batch norm.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Unit<T> {
    /// Without bias, as the norm has one.
    pub conv: Conv<T>,
    /// The norm of its output.
    pub norm: BatchNorm<T>,
}

/// project(relu6(depthwise(relu6(expand x)))), plus x if the shapes are the same.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Block<T> {
    /// 1×1 to more channels; none in the first stage.
    pub expand: Option<Unit<T>>,
    /// Each channel by itself.
    pub depthwise: Unit<T>,
    /// 1×1 to fewer channels.
    pub project: Unit<T>,
    /// Whether x is added.
    pub residual: bool,
}

/// Sizes of an [`EfficientNet`].
///
/// ```
/// use bilevel_models::{EfficientNetConfig, parameter_count};
/// assert_eq!(parameter_count(&EfficientNetConfig::lite0(1000).build()?), 4_652_008);
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct EfficientNetConfig {
    /// Channels of the images.
    pub channels: usize,
    /// Channels after the first convolution.
    pub stem: usize,
    /// The stages, in order.
    pub stages: Vec<StageConfig>,
    /// Channels after the last convolution.
    pub top: usize,
    /// Classes.
    pub classes: usize,
}

/// One stage of an [`EfficientNetConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageConfig {
    /// Blocks.
    pub blocks: usize,
    /// Height and width of the depthwise kernels.
    pub kernel: usize,
    /// The stride of the first block; the others have 1.
    pub stride: usize,
    /// How many times more channels there are inside a block.
    pub expansion: usize,
    /// Channels after the stage.
    pub channels: usize,
}

/// Added to variances, as in TensorFlow.
const EPS: f64 = 1e-3;
/// How far running statistics move towards those of a batch, as in TensorFlow (there 1 − 0.99).
const MOMENTUM: f64 = 0.01;

impl EfficientNetConfig {
    /// EfficientNet-Lite0, made for 224×224 images with pixels (x − 127)/128: 4.65 million parameters with 1000
    /// classes.
    pub fn lite0(classes: usize) -> Self {
        let stage = |[blocks, kernel, stride, expansion, channels]: [usize; 5]| StageConfig {
            blocks,
            kernel,
            stride,
            expansion,
            channels,
        };
        let stages = [
            [1, 3, 1, 1, 16],
            [2, 3, 2, 6, 24],
            [2, 5, 2, 6, 40],
            [3, 3, 2, 6, 80],
            [3, 5, 1, 6, 112],
            [4, 5, 2, 6, 192],
            [1, 3, 1, 6, 320],
        ];
        EfficientNetConfig { channels: 3, stem: 32, stages: stages.map(stage).into(), top: 1280, classes }
    }

    /// The model, with running statistics. Convolutions start as [`he_normal`] with the fan out, the head as
    /// [`fan_in_uniform`].
    ///
    /// # Errors
    ///
    /// If a size is 0.
    pub fn build(&self) -> Result<EfficientNet<Variable>> {
        let name = "EfficientNet";
        let named = [("channels", self.channels), ("stem", self.stem), ("top", self.top), ("classes", self.classes)];
        sizes(name, &named)?;
        let (mut stages, mut inputs) = (vec![], self.stem);
        for stage in &self.stages {
            let StageConfig { blocks, kernel, stride, expansion, channels } = *stage;
            sizes(name, &[("blocks of a stage", blocks), ("a kernel", kernel), ("a stride", stride)])?;
            sizes(name, &[("an expansion", expansion), ("channels of a stage", channels)])?;
            sizes(name, &[("channels inside a block", inputs.max(channels) * expansion)])?;
            let mut made = vec![];
            for number in 0..blocks {
                let stride = if number == 0 { stride } else { 1 };
                made.push(Block::new(inputs, channels, (kernel, stride, expansion)));
                inputs = channels;
            }
            stages.push(made);
        }
        let stem = Unit::new(self.channels, self.stem, (3, 2, 1));
        let top = Unit::new(inputs, self.top, (1, 1, 1));
        let head = Linear::new(fan_in_uniform([self.top, self.classes], self.top));
        Ok(EfficientNet { stem, stages, top, head })
    }
}

impl Unit<Variable> {
    fn new(inputs: usize, outputs: usize, (kernel, stride, groups): (usize, usize, usize)) -> Self {
        let fan_out = outputs / groups * kernel * kernel;
        let weight = he_normal([outputs, inputs / groups, kernel, kernel], fan_out);
        let norm = BatchNorm { eps: EPS, momentum: MOMENTUM, ..BatchNorm::new(outputs).running() };
        Unit { conv: Conv { stride, groups, ..Conv::new(weight, Padding::Same) }, norm }
    }
}

impl Block<Variable> {
    fn new(inputs: usize, outputs: usize, (kernel, stride, expansion): (usize, usize, usize)) -> Self {
        let inside = inputs * expansion;
        Block {
            expand: (expansion != 1).then(|| Unit::new(inputs, inside, (1, 1, 1))),
            depthwise: Unit::new(inside, inside, (kernel, stride, inside)),
            project: Unit::new(inside, outputs, (1, 1, 1)),
            residual: stride == 1 && inputs == outputs,
        }
    }
}

impl<T> EfficientNet<T> {
    /// The name timm has for a leaf, as in `tf_efficientnet_lite0`.
    ///
    /// ```
    /// use bilevel_models::EfficientNetConfig;
    /// let net = EfficientNetConfig::lite0(10).build()?;
    /// assert_eq!(net.timm_name("stages.2.1.expand.norm.weight"), "blocks.2.1.bn1.weight");
    /// # Ok::<(), bilevel_models::ModelError>(())
    /// ```
    pub fn timm_name(&self, leaf: &str) -> String {
        let parts: Vec<&str> = leaf.split('.').collect();
        match parts[..] {
            ["stages", stage, block, unit, layer, leaf] => {
                let expands = self.block(stage, block).is_some_and(|block| block.expand.is_some());
                let place = match (unit, expands) {
                    ("expand", _) => 1,
                    ("depthwise", expands) => 1 + usize::from(expands),
                    (_, expands) => 2 + usize::from(expands),
                };
                let conv = match (unit, expands) {
                    ("depthwise", _) => "conv_dw",
                    ("project", true) => "conv_pwl",
                    _ => "conv_pw",
                };
                match layer {
                    "norm" => format!("blocks.{stage}.{block}.bn{place}.{leaf}"),
                    _ => format!("blocks.{stage}.{block}.{conv}.{leaf}"),
                }
            }
            ["stem", "norm", leaf] => format!("bn1.{leaf}"),
            ["stem", _, leaf] => format!("conv_stem.{leaf}"),
            ["top", "norm", leaf] => format!("bn2.{leaf}"),
            ["top", _, leaf] => format!("conv_head.{leaf}"),
            ["head", leaf] => format!("classifier.{leaf}"),
            _ => leaf.into(),
        }
    }

    /// The name the PyTorch package `efficientnet_lite_pytorch` has for a leaf.
    ///
    /// ```
    /// use bilevel_models::EfficientNetConfig;
    /// let net = EfficientNetConfig::lite0(10).build()?;
    /// assert_eq!(net.pytorch_name("stages.2.1.expand.norm.weight"), "_blocks.4._bn0.weight");
    /// # Ok::<(), bilevel_models::ModelError>(())
    /// ```
    pub fn pytorch_name(&self, leaf: &str) -> String {
        let parts: Vec<&str> = leaf.split('.').collect();
        match parts[..] {
            ["stages", stage, block, unit, layer, leaf] => {
                let before = stage.parse().unwrap_or(0);
                let number = self.stages.iter().take(before).map(Vec::len).sum::<usize>() + block.parse().unwrap_or(0);
                let (conv, norm) = match unit {
                    "expand" => ("_expand_conv", "_bn0"),
                    "depthwise" => ("_depthwise_conv", "_bn1"),
                    _ => ("_project_conv", "_bn2"),
                };
                format!("_blocks.{number}.{}.{leaf}", if layer == "norm" { norm } else { conv })
            }
            ["stem", "norm", leaf] => format!("_bn0.{leaf}"),
            ["stem", _, leaf] => format!("_conv_stem.{leaf}"),
            ["top", "norm", leaf] => format!("_bn1.{leaf}"),
            ["top", _, leaf] => format!("_conv_head.{leaf}"),
            ["head", leaf] => format!("_fc.{leaf}"),
            _ => leaf.into(),
        }
    }

    fn block(&self, stage: &str, block: &str) -> Option<&Block<T>> {
        self.stages.get(stage.parse::<usize>().ok()?)?.get(block.parse::<usize>().ok()?)
    }
}

impl EfficientNet<Tensor> {
    /// Logits `[n, classes]` of images `[n, c, h, w]`.
    #[track_caller]
    pub fn forward(&self, images: Tensor, statistics: Statistics) -> Tensor {
        self.head.forward(self.features(images, statistics))
    }

    /// The input of the head, `[n, top]`.
    #[track_caller]
    pub fn features(&self, images: Tensor, statistics: Statistics) -> Tensor {
        let mut x = nn::relu6(self.stem.forward(images, statistics));
        for block in self.stages.iter().flatten() {
            x = block.forward(x, statistics);
        }
        nn::global_avg_pool2d(nn::relu6(self.top.forward(x, statistics)))
    }
}

impl Unit<Tensor> {
    #[track_caller]
    fn forward(&self, x: Tensor, statistics: Statistics) -> Tensor {
        self.norm.forward(self.conv.forward(x), statistics)
    }
}

impl Block<Tensor> {
    /// `[n, c, h, w]` to `[n, c', h', w']`.
    #[track_caller]
    pub fn forward(&self, x: Tensor, statistics: Statistics) -> Tensor {
        let mut h = x;
        if let Some(expand) = &self.expand {
            h = nn::relu6(expand.forward(h, statistics));
        }
        h = nn::relu6(self.depthwise.forward(h, statistics));
        h = self.project.forward(h, statistics);
        if self.residual { h + x } else { h }
    }
}
