//! The networks that signals become, one shape for all signals of a family.

use super::{ImplicitRepresentation, Kind, Signal};
use bilevel::data::Start;
use bilevel::{Array, Error, Result, Tensor, Tree, Variable};
use bilevel_models::fourier::encoded;
use bilevel_models::{FourierMlp, FourierMlpConfig, Mlp, Nerf, NerfConfig, Siren, SirenConfig};

/// A network of one kind.
#[derive(Clone, Debug, PartialEq, Tree)]
#[tree(crate = "bilevel::graph")]
pub(crate) enum Network<T> {
    /// Coordinates of an image to colours.
    Siren(Siren<T>),
    /// Their sines and cosines to colours.
    Fourier(Mlp<T>),
    /// Places of a scene to colours and densities.
    Nerf(Nerf<T>),
}

/// The offset between images and the output of their network, which starts near 0.
const MIDDLE: f64 = 0.5;

impl Network<Variable> {
    /// The network of these settings for signals with this many colours, and the frequencies of its first layer if
    /// those are not learned.
    pub fn new(task: &ImplicitRepresentation, colours: usize) -> Result<(Self, Option<Array>)> {
        let ImplicitRepresentation { width, layers, features, frequency, .. } = *task;
        match (task.signal, task.network) {
            (Signal::Images, Kind::Siren) => {
                let config = SirenConfig { width, layers, outputs: colours, ..SirenConfig::default() };
                let config = SirenConfig { first_frequency: frequency, frequency, ..config };
                Ok((Network::Siren(config.build()?), None))
            }
            (Signal::Images, Kind::Fourier) => {
                let hidden = vec![width; layers];
                let config =
                    FourierMlpConfig { features, deviation: frequency, hidden, outputs: colours, ..Default::default() };
                let FourierMlp { frequencies, mlp } = config.build()?;
                let fixed = match frequencies.start() {
                    Start::Fixed(array) => Some((**array).clone()),
                    _ => None,
                };
                Ok((Network::Fourier(mlp), fixed))
            }
            (Signal::Views, Kind::Nerf) => {
                Ok((Network::Nerf(NerfConfig { bands: features, highest: frequency, layers, width }.build()?), None))
            }
            (signal, network) => {
                let (signal, fits, network) = match signal {
                    Signal::Images => ("images", "siren or fourier", network.word()),
                    Signal::Views => ("views", "nerf", network.word()),
                };
                let reason = format!("task.network is {network}, but task.signal is {signal}, which take {fits}");
                Err(Error::Conflict { reason })
            }
        }
    }
}

impl Network<Tensor> {
    /// The colours of this many images at coordinates `[pixels, 2]`: `[tasks, pixels, colours]`.
    pub fn colours(&self, tasks: usize, coordinates: Tensor, frequencies: Option<Tensor>) -> Tensor {
        let x = frequencies.map_or(coordinates, |frequencies| encoded(coordinates, frequencies));
        let x = x.broadcast_to([tasks, x.dim(0), x.dim(1)]);
        match self {
            Network::Siren(nets) => nets.forward_tasks(x) + MIDDLE,
            Network::Fourier(nets) => nets.forward_tasks(x) + MIDDLE,
            // Never made for images.
            Network::Nerf(_) => x,
        }
    }

    /// The colours along rays of this many scenes; see [`Nerf::render_tasks`].
    pub fn seen(&self, tasks: usize, origins: Tensor, directions: Tensor, depths: Tensor) -> Tensor {
        match self {
            Network::Nerf(nets) => nets.render_tasks(tasks, origins, directions, depths).colour,
            // Never made for views.
            Network::Siren(_) | Network::Fourier(_) => origins,
        }
    }

    /// The raw outputs of the networks at points of their domain: from `[tasks, n, in]` to `[tasks, n, out]`.
    pub fn outputs(&self, tasks: usize, points: Tensor, frequencies: Option<Tensor>) -> Tensor {
        match self {
            Network::Nerf(nets) => {
                let field = nets.field_tasks(points.broadcast_to([tasks, points.dim(0), points.dim(1)]));
                field.colour.concat(&[field.density.unsqueeze([2])], 2)
            }
            _ => self.colours(tasks, points, frequencies),
        }
    }
}
