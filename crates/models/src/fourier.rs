//! Fourier features before a perceptron (Tancik et al. 2020): coordinates to values, with details as fine as the
//! frequencies allow.

use crate::error::{Result, require, sizes};
use crate::mlp::{Mlp, MlpConfig};
use bilevel::{Array, Variable};
use bilevel_graph::random::{fill_normal_f64, seed_key};
use bilevel_graph::{Tensor, Tree, nn};
use std::f64::consts::TAU;

/// mlp(\[sin(2π·x·B), cos(2π·x·B)\]) with fixed frequencies B: `[.., in]` to `[.., out]`.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct FourierMlp<T> {
    /// B, `[in, features]`; frozen.
    pub frequencies: T,
    /// From the sines and cosines to the values.
    pub mlp: Mlp<T>,
}

/// Sizes of a [`FourierMlp`].
///
/// ```
/// use bilevel_models::{FourierMlpConfig, parameter_count};
/// let net = FourierMlpConfig { features: 16, hidden: vec![32], ..FourierMlpConfig::default() }.build()?;
/// assert_eq!(parameter_count(&net), 33 * 32 + 33 * 3);
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FourierMlpConfig {
    /// Coordinates.
    pub inputs: usize,
    /// Frequencies; each gives a sine and a cosine.
    pub features: usize,
    /// Standard deviation of the frequencies: the larger, the finer the details.
    pub deviation: f64,
    /// From which the frequencies are drawn. They are a part of the model, so every run of it has the same.
    pub seed: u64,
    /// Widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// Values.
    pub outputs: usize,
}

impl Default for FourierMlpConfig {
    /// Colour images as in the paper: 256 frequencies of deviation 10, three layers of 256.
    fn default() -> Self {
        FourierMlpConfig { inputs: 2, features: 256, deviation: 10.0, seed: 0, hidden: vec![256; 3], outputs: 3 }
    }
}

/// The scale of the last layer's start, relative to a layer followed by a rectifier.
const QUIET: f64 = 0.02;

impl FourierMlpConfig {
    /// The model, with rectifiers. Its values start near 0. With the start of other layers, its outputs would deviate
    /// by 1, more than most signals, and training would have to unlearn them first.
    ///
    /// # Errors
    ///
    /// If a size is 0, there are too many frequencies to draw for every run, or the deviation is not a number.
    pub fn build(&self) -> Result<FourierMlp<Variable>> {
        let name = "Fourier-feature MLP";
        sizes(
            name,
            &[
                ("inputs", self.inputs),
                ("features", self.features),
                ("frequencies", self.inputs.saturating_mul(self.features)),
            ],
        )?;
        require(name, self.deviation.is_finite(), || {
            format!("the deviation must be a number, not {}", self.deviation)
        })?;
        let mut values = vec![0.0; self.inputs * self.features];
        fill_normal_f64(seed_key(self.seed).map(|word| word as u32), 0, 0, 0, &mut values);
        values.iter_mut().for_each(|value| *value *= self.deviation);
        let shape = [self.inputs, self.features];
        let frequencies = Array::from_f64(shape, values).map(|array| Variable::fixed(array).frozen());
        let frequencies = frequencies.map_err(|e| crate::ModelError::Config { model: name, reason: e.to_string() })?;
        let widths = [&[2 * self.features], &self.hidden[..], &[self.outputs]].concat();
        let mut mlp = MlpConfig::relu(widths).build()?;
        if let Some(last) = mlp.layers.last_mut() {
            let fan = last.weight.shape()[0];
            last.weight = Variable::normal(last.weight.shape(), QUIET * (2.0 / fan as f64).sqrt());
        }
        Ok(FourierMlp { frequencies, mlp })
    }
}

impl FourierMlp<Tensor> {
    /// Values at coordinates.
    #[track_caller]
    pub fn forward(&self, coordinates: Tensor) -> Tensor {
        self.mlp.forward(encoded(coordinates, self.frequencies))
    }
}

/// Sines and cosines of coordinates `[.., in]` at these frequencies `[in, features]`: `[.., 2·features]`, the input of
/// the perceptron of a [`FourierMlp`].
///
/// ```
/// use bilevel_graph::{DType, Graph};
/// let g = Graph::new();
/// let [x, b] = [("x", [7, 2]), ("b", [2, 5])].map(|(name, shape)| g.input(name, shape, DType::F32));
/// assert_eq!(bilevel_models::fourier::encoded(x, b).shape(), [7, 10]);
/// ```
#[track_caller]
pub fn encoded(coordinates: Tensor, frequencies: Tensor) -> Tensor {
    let angle = nn::linear(coordinates, frequencies, None) * TAU;
    angle.sin().concat(&[angle.cos()], angle.rank().saturating_sub(1))
}
