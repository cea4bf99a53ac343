//! Building blocks of models: affine maps, convolutions, layer norms and activations.

use bilevel::Variable;
use bilevel_graph::{ConvDims, Tensor, Tree, nn};

/// x·weight + bias along the last axis, with a weight `[in, out]`.
///
/// ```
/// use bilevel_graph::{DType, Graph};
/// use bilevel_models::{Linear, init, inputs};
/// let layer = Linear::new(init::zeros([4, 3]));
/// let g = Graph::new();
/// let y = inputs(&layer, &g, DType::F32).forward(g.input("x", [8, 4], DType::F32));
/// assert_eq!(y.check().unwrap().shape(), [8, 3]);
/// ```
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Linear<T> {
    /// `[in, out]`.
    pub weight: T,
    /// `[out]`, or none.
    pub bias: Option<T>,
}

impl Linear<Variable> {
    /// With this weight, and a bias that starts at 0.
    pub fn new(weight: Variable) -> Self {
        let bias = Some(Variable::constant(weight.shape().get(1..).unwrap_or(&[]), 0.0));
        Linear { weight, bias }
    }
}

impl Linear<Tensor> {
    /// `[.., in]` to `[.., out]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor) -> Tensor {
        nn::linear(x, self.weight, self.bias)
    }
}

/// Zeros around an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Padding {
    /// This many on every side, as in PyTorch.
    Each(usize),
    /// Zeros so that the output has the size of the image divided by the stride, rounded up; if their number is odd,
    /// the extra one comes after. This is "SAME" in TensorFlow and JAX, and differs from PyTorch's padding if the
    /// stride is not 1.
    Same,
}

impl Padding {
    /// Zeros before and after along an axis of this length.
    pub(crate) fn around(self, length: usize, kernel: usize, stride: usize) -> (i64, i64) {
        match self {
            Padding::Each(zeros) => [i64::try_from(zeros).unwrap_or(i64::MAX); 2].into(),
            Padding::Same => {
                let outputs = length.div_ceil(stride.max(1));
                let reach = outputs.saturating_sub(1) * stride + kernel;
                let zeros = reach.saturating_sub(length);
                ((zeros / 2) as i64, zeros.div_ceil(2) as i64)
            }
        }
    }
}

/// A convolution of images with a weight `[out, in/groups, height, width]`.
///
/// ```
/// use bilevel_graph::{DType, Graph};
/// use bilevel_models::{Conv, Padding, init, inputs};
/// let conv = Conv { stride: 2, ..Conv::new(init::he_normal([6, 3, 3, 3], 27), Padding::Same) };
/// let g = Graph::new();
/// let y = inputs(&conv, &g, DType::F32).forward(g.input("x", [1, 3, 15, 14], DType::F32));
/// assert_eq!(y.check().unwrap().shape(), [1, 6, 8, 7]);
/// ```
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Conv<T> {
    /// `[out, in/groups, height, width]`.
    pub weight: T,
    /// `[out]`, or none.
    pub bias: Option<T>,
    /// Step between output positions, in both directions.
    pub stride: usize,
    /// Zeros around the image.
    pub padding: Padding,
    /// Groups of channels, each convolved by its own kernels.
    pub groups: usize,
}

impl Conv<Variable> {
    /// Without a bias, at stride 1.
    pub fn new(weight: Variable, padding: Padding) -> Self {
        Conv { weight, bias: None, stride: 1, padding, groups: 1 }
    }
}

impl Conv<Tensor> {
    /// `[n, in, h, w]` to `[n, out, h', w']`.
    #[track_caller]
    pub fn forward(&self, x: Tensor) -> Tensor {
        let around = |axis| self.padding.around(x.dim(axis), self.weight.dim(axis), self.stride);
        let dims = ConvDims {
            stride: [self.stride; 2],
            padding: [around(2), around(3)],
            image_dilation: [1, 1],
            kernel_dilation: [1, 1],
            groups: self.groups,
        };
        let y = x.conv(self.weight, dims);
        match self.bias {
            Some(bias) => y + bias.reshape([bias.len(), 1, 1]),
            None => y,
        }
    }
}

/// A layer norm over the last axis: (x − mean)/√(variance + eps)·weight + bias.
///
/// ```
/// use bilevel_graph::{DType, Graph};
/// use bilevel_models::{LayerNorm, inputs};
/// let g = Graph::new();
/// let y = inputs(&LayerNorm::new(4, 1e-6), &g, DType::F32).forward(g.input("x", [8, 4], DType::F32));
/// assert_eq!(y.check().unwrap().shape(), [8, 4]);
/// ```
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct LayerNorm<T> {
    /// `[width]`.
    pub weight: T,
    /// `[width]`.
    pub bias: T,
    /// Added to the variance.
    pub eps: f64,
}

impl LayerNorm<Variable> {
    /// Starts with gain 1 and bias 0.
    pub fn new(width: usize, eps: f64) -> Self {
        LayerNorm { weight: Variable::constant([width], 1.0), bias: Variable::constant([width], 0.0), eps }
    }
}

impl LayerNorm<Tensor> {
    /// `[.., width]` to the same shape.
    #[track_caller]
    pub fn forward(&self, x: Tensor) -> Tensor {
        nn::layer_norm(x, self.weight, self.bias, self.eps)
    }
}

/// The function applied to every number between two layers.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference};
/// use bilevel_models::Activation;
/// let g = Graph::new();
/// let y = Activation::Relu.apply(g.constant(-2.0, [], DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].item(), Some(0.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// min(max(x, 0), 6).
    Relu6,
    /// tanh x.
    Tanh,
    /// 1/(1 + e⁻ˣ).
    Sigmoid,
    /// x·Φ(x) with the normal distribution function Φ.
    Gelu,
    /// log(1 + eˣ).
    Softplus,
}

impl Activation {
    /// Applied to every element.
    #[track_caller]
    pub fn apply(self, x: Tensor) -> Tensor {
        match self {
            Activation::Relu => nn::relu(x),
            Activation::Relu6 => nn::relu6(x),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => nn::sigmoid(x),
            Activation::Gelu => nn::gelu(x),
            Activation::Softplus => nn::softplus(x),
        }
    }
}

/// `[n, ..]` as `[n, all the rest]`.
#[track_caller]
pub(crate) fn flat(x: Tensor) -> Tensor {
    let rows = x.dim(0);
    x.reshape([rows, x.len().checked_div(rows).unwrap_or(0)])
}
