//! SIREN (Sitzmann et al. 2020): a signal, such as an image, as a perceptron with sines, from coordinates to values.

use crate::error::{Result, require, sizes};
use crate::init::{fan_in_uniform, symmetric};
use crate::layers::Linear;
use bilevel::Variable;
use bilevel_graph::{Tensor, Tree};

/// sin(ω·(x·weight + bias)) in every layer but the last, which is affine: `[.., in]` to `[.., out]`.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Siren<T> {
    /// The layers with sines.
    pub layers: Vec<Linear<T>>,
    /// The last layer.
    pub head: Linear<T>,
    /// ω of the first layer.
    pub first_frequency: f64,
    /// ω of the others.
    pub frequency: f64,
}

/// Sizes of a [`Siren`].
///
/// ```
/// use bilevel_models::{SirenConfig, parameter_count};
/// let net = SirenConfig { inputs: 2, outputs: 3, width: 256, layers: 4, ..SirenConfig::default() }.build()?;
/// assert_eq!(parameter_count(&net), 198_915);
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SirenConfig {
    /// Coordinates.
    pub inputs: usize,
    /// Values.
    pub outputs: usize,
    /// The width of every layer with sines.
    pub width: usize,
    /// Layers with sines.
    pub layers: usize,
    /// ω of the first layer: the larger, the finer the details at the start.
    pub first_frequency: f64,
    /// ω of the others.
    pub frequency: f64,
}

impl Default for SirenConfig {
    /// Colour images as in the paper: four layers of 256, ω = 30.
    fn default() -> Self {
        SirenConfig { inputs: 2, outputs: 3, width: 256, layers: 4, first_frequency: 30.0, frequency: 30.0 }
    }
}

impl SirenConfig {
    /// The model. Weights start uniform in ±1/in in the first layer and in ±√(6/in)/ω in the others, which keeps the
    /// distribution of the activations from layer to layer; biases as [`fan_in_uniform`].
    ///
    /// # Errors
    ///
    /// If a size is 0 or a frequency is not positive.
    pub fn build(&self) -> Result<Siren<Variable>> {
        let SirenConfig { inputs, outputs, width, layers, first_frequency, frequency } = *self;
        let name = "SIREN";
        sizes(name, &[("inputs", inputs), ("outputs", outputs), ("width", width), ("layers", layers)])?;
        let positive = [first_frequency, frequency].iter().all(|w| w.is_finite() && *w > 0.0);
        require(name, positive, || format!("frequencies must be positive, not {first_frequency} and {frequency}"))?;
        let layer = |i: usize, o: usize, bound: f64| Linear {
            weight: symmetric([i, o], bound),
            bias: Some(fan_in_uniform([o], i)),
        };
        let later = (6.0 / width as f64).sqrt() / frequency;
        let mut all = vec![layer(inputs, width, 1.0 / inputs as f64)];
        all.extend((1..layers).map(|_| layer(width, width, later)));
        Ok(Siren { layers: all, head: layer(width, outputs, later), first_frequency, frequency })
    }
}

impl Siren<Tensor> {
    /// Values at coordinates, which are meant to lie in ±1.
    #[track_caller]
    pub fn forward(&self, coordinates: Tensor) -> Tensor {
        self.by(coordinates, Linear::forward)
    }

    /// The same with affine maps of one network or of many.
    #[track_caller]
    pub(crate) fn by(&self, coordinates: Tensor, affine: impl Fn(&Linear<Tensor>, Tensor) -> Tensor) -> Tensor {
        let mut x = coordinates;
        for (number, layer) in self.layers.iter().enumerate() {
            let frequency = if number == 0 { self.first_frequency } else { self.frequency };
            x = (affine(layer, x) * frequency).sin();
        }
        affine(&self.head, x)
    }
}
