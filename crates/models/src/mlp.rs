//! Perceptrons with any number of layers, and logistic regression, which has one.

use crate::error::{Result, require};
use crate::init::{glorot_uniform, he_normal, zeros};
use crate::layers::{Activation, Linear};
use bilevel::Variable;
use bilevel_graph::{Tensor, Tree};

/// Affine maps with an activation between them: `[.., in]` to `[.., out]`.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Mlp<T> {
    /// From the input to the logits.
    pub layers: Vec<Linear<T>>,
    /// Between the layers.
    pub activation: Activation,
}

/// Sizes of an [`Mlp`].
///
/// ```
/// use bilevel_models::{MlpConfig, parameter_count};
/// let net = MlpConfig::tanh([784, 1000, 10]).build()?;
/// assert_eq!(parameter_count(&net), 795_010);
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MlpConfig {
    /// The widths of the input, the hidden layers and the output.
    pub widths: Vec<usize>,
    /// Between the layers.
    pub activation: Activation,
}

impl MlpConfig {
    /// With rectifiers.
    pub fn relu(widths: impl Into<Vec<usize>>) -> Self {
        MlpConfig { widths: widths.into(), activation: Activation::Relu }
    }

    /// With tanh.
    pub fn tanh(widths: impl Into<Vec<usize>>) -> Self {
        MlpConfig { widths: widths.into(), activation: Activation::Tanh }
    }

    /// The model. Weights start as [`he_normal`] before a rectifier or similar, as [`glorot_uniform`] for tanh and
    /// sigmoid; biases at 0.
    ///
    /// # Errors
    ///
    /// If there are fewer than two widths, or one is 0.
    pub fn build(&self) -> Result<Mlp<Variable>> {
        let name = "MLP";
        require(name, self.widths.len() >= 2, || "it needs at least the widths of the input and the output".into())?;
        self.widths.iter().try_for_each(|&width| fits(name, "a width", width))?;
        let weight = |i: usize, o: usize| match self.activation {
            Activation::Tanh | Activation::Sigmoid => glorot_uniform([i, o], i, o),
            _ => he_normal([i, o], i),
        };
        let layers = self.widths.windows(2).map(|w| Linear::new(weight(w[0], w[1]))).collect();
        Ok(Mlp { layers, activation: self.activation })
    }
}

impl Mlp<Tensor> {
    /// The output, before any softmax.
    #[track_caller]
    pub fn forward(&self, x: Tensor) -> Tensor {
        let hidden = self.features(x);
        match self.layers.last() {
            Some(last) => last.forward(hidden),
            None => hidden,
        }
    }

    /// The input of the last layer. Its mean over several views of an input gives the mean of the outputs at the price
    /// of one.
    #[track_caller]
    pub fn features(&self, x: Tensor) -> Tensor {
        self.features_by(x, Linear::forward)
    }

    /// The same with affine maps of one network or of many.
    #[track_caller]
    pub(crate) fn features_by(&self, x: Tensor, affine: impl Fn(&Linear<Tensor>, Tensor) -> Tensor) -> Tensor {
        let mut hidden = x;
        for layer in self.layers.iter().take(self.layers.len().saturating_sub(1)) {
            hidden = self.activation.apply(affine(layer, hidden));
        }
        hidden
    }
}

/// Logistic regression: one affine map that starts at 0, which is as good a start as any, as the loss is convex.
///
/// ```
/// use bilevel_models::logistic;
/// assert_eq!(logistic(64, 10)?.weight.shape(), [64, 10]);
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
///
/// # Errors
///
/// If a size is 0.
pub fn logistic(features: usize, classes: usize) -> Result<Linear<Variable>> {
    let name = "logistic regression";
    fits(name, "the number of features", features)?;
    fits(name, "the number of classes", classes)?;
    Ok(Linear::new(zeros([features, classes])))
}

/// Refuses a width of 0, and one whose product with another would overflow. Words as features come in millions.
fn fits(model: &'static str, name: &str, width: usize) -> Result<()> {
    require(model, (1..=1 << 31).contains(&width), || format!("{name} is {width}; it must be between 1 and 2^31"))
}
