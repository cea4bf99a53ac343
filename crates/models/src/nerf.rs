//! A simplified NeRF (Mildenhall et al. 2020, Tancik et al. 2021): colour and density at every point of a scene from
//! one network, without view directions.

use crate::error::{Result, require, sizes};
use crate::mlp::{Mlp, MlpConfig};
use bilevel::Variable;
use bilevel_graph::{Tensor, Tree, nn};

/// A perceptron with rectifiers on encoded positions; its four outputs are colour and density.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Nerf<T> {
    /// From the encoded position to four numbers.
    pub mlp: Mlp<T>,
    /// Frequencies of the encoding.
    pub bands: usize,
    /// log₂ of the highest frequency.
    pub highest: f64,
}

/// Sizes of a [`Nerf`].
///
/// ```
/// use bilevel_models::{NerfConfig, parameter_count};
/// let net = NerfConfig { bands: 4, layers: 2, width: 16, ..NerfConfig::default() }.build()?;
/// assert_eq!(parameter_count(&net), 25 * 16 + 17 * 16 + 17 * 4);
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NerfConfig {
    /// Frequencies of the encoding; each gives sine and cosine of three coordinates.
    pub bands: usize,
    /// log₂ of the highest frequency; the others lie between 1 and it, at equal ratios.
    pub highest: f64,
    /// Hidden layers.
    pub layers: usize,
    /// The width of every hidden layer.
    pub width: usize,
}

impl Default for NerfConfig {
    /// Six layers of 256 and 20 frequencies up to 2⁸.
    fn default() -> Self {
        NerfConfig { bands: 20, highest: 8.0, layers: 6, width: 256 }
    }
}

impl NerfConfig {
    /// The model.
    ///
    /// # Errors
    ///
    /// If a size is 0 or the highest frequency is not a number.
    pub fn build(&self) -> Result<Nerf<Variable>> {
        let NerfConfig { bands, highest, layers, width } = *self;
        let name = "NeRF";
        sizes(name, &[("bands", bands), ("layers", layers), ("width", width)])?;
        require(name, highest.is_finite(), || format!("the highest frequency must be a number, not 2^{highest}"))?;
        let widths = [&[6 * bands], &vec![width; layers][..], &[4]].concat();
        Ok(Nerf { mlp: MlpConfig::relu(widths).build()?, bands, highest })
    }
}

/// The colour and density at some points of a scene.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Red, green and blue in 0..1: `[.., 3]`.
    pub colour: Tensor,
    /// How much light a unit of length takes away, at least 0: `[..]`.
    pub density: Tensor,
}

impl Nerf<Tensor> {
    /// The field at these points `[.., 3]`. The density is a softplus: a rectifier that starts at 0 everywhere stays
    /// there.
    #[track_caller]
    pub fn field(&self, points: Tensor) -> Field {
        let last = points.rank().saturating_sub(1);
        self.field_of(self.mlp.forward(self.encoded(points)), last)
    }

    /// Colour and density from the four outputs along an axis.
    #[track_caller]
    pub(crate) fn field_of(&self, out: Tensor, last: usize) -> Field {
        Field { colour: nn::sigmoid(out.slice(last, 0, 3)), density: nn::softplus(out.index(last, 3)) }
    }

    /// sin(2ᵏx) and cos(2ᵏx) for `bands` numbers k from 0 to `highest`: `[.., 3]` to `[.., 6·bands]`.
    #[track_caller]
    pub(crate) fn encoded(&self, points: Tensor) -> Tensor {
        let mut shape = points.shape();
        let last = shape.len().saturating_sub(1);
        let step = self.highest / self.bands.saturating_sub(1).max(1) as f64;
        // One for every place along the axis that comes before the last: [1, .., bands, 1].
        let mut ratios = vec![1; last + 2];
        ratios[last] = self.bands;
        let exponent = points.constant_like(0.0, ratios).iota_like(last) * step;
        let angle = points.unsqueeze([last]) * (exponent * std::f64::consts::LN_2).exp();
        if let Some(width) = shape.last_mut() {
            *width *= 2 * self.bands;
        }
        angle.sin().concat(&[angle.cos()], last).reshape(shape)
    }

    /// The colours of rays with these origins and directions `[rays, 3]`, seen at these depths `[rays, samples]`
    /// against a white background.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph};
    /// use bilevel_models::{NerfConfig, inputs, nerf::depths};
    /// let g = Graph::new();
    /// let config = NerfConfig { bands: 2, layers: 1, width: 8, ..NerfConfig::default() };
    /// let net = inputs(&config.build()?, &g, DType::F32);
    /// let [origins, directions] = ["origins", "directions"].map(|name| g.input(name, [5, 3], DType::F32));
    /// let seen = net.render(origins, directions, depths(origins, 2.0, 6.0, 16, None));
    /// assert_eq!(seen.colour.check().unwrap().shape(), [5, 3]);
    /// # Ok::<(), bilevel_models::ModelError>(())
    /// ```
    #[track_caller]
    pub fn render(&self, origins: Tensor, directions: Tensor, depths: Tensor) -> Seen {
        let points = origins.unsqueeze([1]) + directions.unsqueeze([1]) * depths.unsqueeze([2]);
        see(self.field(points), depths)
    }
}

/// The rendering of rays.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Against a white background: `[rays, 3]`.
    pub colour: Tensor,
    /// The mean depth along each ray: `[rays]`.
    pub depth: Tensor,
    /// How much of the background is hidden, in 0..1: `[rays]`.
    pub opacity: Tensor,
}

/// The length assigned to the last sample of a ray, so small that it hardly counts.
const LAST: f64 = 1e-3;

/// The picture of a field along rays: with δᵢ from depth i to the next,
/// wᵢ = exp(−Σ_{j<i} σⱼδⱼ)·(1 − exp(−σᵢδᵢ)) and colour Σᵢ wᵢcᵢ + 1 − Σᵢ wᵢ.
#[track_caller]
pub fn see(field: Field, depths: Tensor) -> Seen {
    let (rays, samples) = (depths.dim(0), depths.dim(1));
    let apart = depths.slice(1, 1, samples) - depths.slice(1, 0, samples.saturating_sub(1));
    let taken = field.density * apart.concat(&[apart.constant_like(LAST, [rays, 1])], 1);
    // The absorption before sample i: the running sum without its own part.
    let reaching = (taken - taken.cumsum(1)).exp();
    let weights = reaching * -(-taken).expm1();
    let opacity = weights.sum([1]);
    let colour = (weights.unsqueeze([2]) * field.colour).sum([1]) + (1.0 - opacity).unsqueeze([1]);
    Seen { colour, depth: (weights * depths).sum([1]), opacity }
}

/// Depths `[rays, samples]` between two, one in each of `samples` equal parts: in its middle, or displaced by `jitter`
/// `[rays, samples]`, uniform on 0..1. The rays are those of a tensor `[rays, ..]`.
#[track_caller]
pub fn depths(rays: Tensor, near: f64, far: f64, samples: usize, jitter: impl Into<Option<Tensor>>) -> Tensor {
    let part = rays.constant_like(0.0, [rays.dim(0), samples]).iota_like(1);
    let place = match jitter.into() {
        Some(jitter) => part + jitter,
        None => part + 0.5,
    };
    place * ((far - near) / samples.max(1) as f64) + near
}
