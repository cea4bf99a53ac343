//! A family of signals, some to learn from and some held out, and the problem of many of them side by side:
//!
//!   θ⁰\[t\] = λ,   L_T = Σ_t E_t(θ\[t\]),   f = mean over t of E_t(θ\[t\]) + w·‖λ − sg(θ\[t\])‖²,
//!
//! E_t the mean squared error of signal t: over all pixels of an image, or over rays drawn again in every step. In f
//! the rays are those of views that training does not see.

use super::network::Network;
use super::views::{CAMERA, Camera, Scene};
use super::{ImplicitRepresentation, Signal, images, views};
use bilevel::graph::gradient_or_zeros;
use bilevel::{Array, DType, Error, Problem, Result, Scope, Tensor, Tree, Variable};
use bilevel_models::nerf::depths;
use bilevel_models::{for_tasks, same_for_tasks};
use bilevel_run::Context;
use std::f64::consts::LN_10;
use std::ops::Range;
use std::path::PathBuf;

/// Signals of one kind and size.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub count: usize,
    /// Images: `[count, pixels, channels]`; scenes: `[count · views · pixels, 3]`.
    pub colours: Vec<f32>,
    /// The cameras of every view of every scene; empty for images.
    pub cameras: Vec<Camera>,
}

/// A family with its network.
#[derive(Clone, Debug)]
pub struct Family {
    /// The settings.
    pub task: ImplicitRepresentation,
    pub(crate) channels: usize,
    pub(crate) network: Network<Variable>,
    /// The frequencies of Fourier features, which are not learned.
    pub(crate) frequencies: Option<Array>,
    pub(crate) learn: Part,
    pub(crate) held_out: Part,
}

/// Errors below this are rounding, and have a logarithm all the same.
const LEAST_ERROR: f64 = 1e-12;
/// An inner loop of at most this many steps is written out in the measure on held-out images.
pub(super) const SHORT: usize = 4;

/// −10·log₁₀ of a mean squared error, in decibels.
pub(crate) fn psnr(error: f64) -> f64 {
    -10.0 * error.max(LEAST_ERROR).log10()
}

impl Family {
    /// The signals of these settings.
    pub fn read(task: &ImplicitRepresentation, context: &Context) -> Result<Self> {
        task.check()?;
        let wanted = task.signals + task.held_out;
        let enough = |found: usize| match found >= wanted {
            true => Ok(()),
            false => Err(Error::other(format!(
                "there are {found} signals, but task.signals and task.held_out need {} + {}; reduce one of them",
                task.signals, task.held_out
            ))),
        };
        let folder = || -> Result<PathBuf> { Ok(context.data_dir(super::NAME)?.join(&task.source)) };
        let (channels, learn, held_out) = match task.signal {
            Signal::Images => {
                let found =
                    if task.source.is_empty() { images::digits() } else { images::read(&folder()?, task.side)? };
                enough(found.count)?;
                let size = task.side * task.side * found.channels;
                let part = |from: usize, count: usize| Part {
                    count,
                    colours: found.values[from * size..(from + count) * size].to_vec(),
                    cameras: vec![],
                };
                (found.channels, part(task.held_out, task.signals), part(0, task.held_out))
            }
            Signal::Views => {
                let found = match task.source.is_empty() {
                    true => views::lamps(wanted, task.views, task.side),
                    false => views::read(&folder()?, task.views, task.side)?,
                };
                enough(found.len())?;
                let part = |scenes: &[Scene]| Part {
                    count: scenes.len(),
                    colours: scenes.iter().flat_map(|scene| &scene.colours).copied().collect(),
                    cameras: scenes.iter().flat_map(|scene| &scene.cameras).cloned().collect(),
                };
                (3, part(&found[task.held_out..wanted]), part(&found[..task.held_out]))
            }
        };
        let (network, frequencies) = Network::new(task, channels)?;
        Ok(Family { task: task.clone(), channels, network, frequencies, learn, held_out })
    }

    /// The middles of all pixels, row by row: to the right and downwards, within ±1.
    pub fn coordinates(&self) -> Vec<[f64; 2]> {
        let side = self.task.side;
        let place = |i: usize| 2.0 * (i as f64 + 0.5) / side as f64 - 1.0;
        (0..side * side).map(|pixel| [place(pixel % side), place(pixel / side)]).collect()
    }

    /// The coordinates as an array.
    pub fn coordinate_array(&self) -> Result<Array> {
        let all = self.coordinates();
        Ok(Array::from_f64([all.len(), 2], all.into_iter().flatten().collect())?)
    }

    /// The colours of a part.
    fn colours(&self, part: &Part) -> Result<Array> {
        let pixels = self.task.side * self.task.side;
        let shape = match self.task.signal {
            Signal::Images => vec![part.count, pixels, self.channels],
            Signal::Views => vec![part.count * self.task.views * pixels, 3],
        };
        Ok(Array::from_f32(shape, part.colours.clone())?)
    }

    /// Learning λ from the signals to learn from.
    pub fn learning(&self, dtype: DType) -> Result<Problem> {
        let task = &self.task;
        // Training does not see the last fifth of the views, by which λ is judged.
        let seen = task.views - (task.views / 5).max(1);
        let losses = self.losses(task.tasks, Some(self.learn.count));
        self.problem(&self.learn, losses, [0..seen, seen..task.views], dtype)
    }

    /// Training on every held-out signal from λ: an image as it is, a scene from its first view.
    pub fn adapting(&self, dtype: DType) -> Result<Problem> {
        let losses = self.losses(self.held_out.count, None);
        self.problem(&self.held_out, losses, [0..1, 0..1], dtype)
    }

    fn losses(&self, tasks: usize, drawn: Option<usize>) -> Losses {
        Losses { task: self.task.clone(), fixed: self.frequencies.is_some(), tasks, drawn }
    }

    fn problem(&self, part: &Part, losses: Losses, [inner, outer]: [Range<usize>; 2], dtype: DType) -> Result<Problem> {
        let (tasks, extra) = (losses.tasks, self.task.extra);
        let theta = for_tasks(&self.network, tasks);
        let mut builder = Problem::builder(self.network.clone(), theta)
            .dtype(dtype)
            .data("coordinates", self.coordinate_array()?)
            .data("colours", self.colours(part)?);
        if let Some(frequencies) = &self.frequencies {
            builder = builder.data("frequencies", frequencies.clone());
        }
        if !part.cameras.is_empty() {
            let numbers = part.cameras.iter().flat_map(Camera::numbers).collect();
            builder = builder.data("cameras", Array::from_f32([part.cameras.len(), CAMERA], numbers)?);
        }
        let (first, second) = (losses.clone(), losses.clone());
        builder = builder
            .start(move |_, lambda| same_for_tasks(lambda, tasks))
            .inner(move |s, _, nets| first.errors(s, nets, &inner).sum_all())
            .outer(move |s, lambda, nets| {
                let error = second.errors(s, nets, &outer).mean_all();
                if extra == 0.0 { error } else { error + apart(lambda, nets) * (extra / tasks as f64) }
            });
        if losses.drawn.is_some() && self.task.signal == Signal::Images && self.task.steps <= SHORT {
            let held = self.losses(self.held_out.count, None);
            builder = builder
                .data("held-out colours", self.colours(&self.held_out)?)
                .measure("PSNR of held-out images", move |s, lambda, _| held.after_training(s, lambda));
        }
        builder.build().map(Problem::erase)
    }
}

/// Σ over tasks of ‖λ − θ\[t\]‖², for a fixed θ.
fn apart(lambda: &Network<Tensor>, nets: &Network<Tensor>) -> Tensor {
    let (lambda, nets) = (lambda.leaves(), nets.leaves());
    let one = |(l, t): (&&Tensor, &&Tensor)| (l.unsqueeze([0]) - t.stop_gradient()).square().sum_all();
    let mut all = lambda.iter().zip(&nets).map(one);
    let first = all.next();
    first.map_or_else(|| Tensor::zeros_like(*nets[0]).sum_all(), |first| all.fold(first, |sum, next| sum + next))
}

/// The mean over signals of −10·log₁₀ of their errors.
fn decibels(errors: Tensor) -> Tensor {
    (errors + LEAST_ERROR).log().mean_all() * (-10.0 / LN_10)
}

/// The inputs of the losses: this many signals side by side, drawn from some or all of them.
#[derive(Clone)]
struct Losses {
    task: ImplicitRepresentation,
    /// The frequencies of the first layer are data.
    fixed: bool,
    tasks: usize,
    drawn: Option<usize>,
}

impl Losses {
    /// The mean squared error of every signal, `[tasks]`.
    fn errors(&self, s: &Scope, nets: &Network<Tensor>, views: &Range<usize>) -> Tensor {
        let rows = self.drawn.map(|count| s.episode().epochs(count, self.tasks));
        match self.task.signal {
            Signal::Images => {
                let all = s.data("colours");
                self.of_images(s, nets, rows.map_or(all, |rows| all.take(rows)))
            }
            Signal::Views => self.of_views(s, nets, rows, views),
        }
    }

    fn of_images(&self, s: &Scope, nets: &Network<Tensor>, images: Tensor) -> Tensor {
        let frequencies = self.fixed.then(|| s.data("frequencies"));
        let colours = nets.colours(self.tasks, s.data("coordinates"), frequencies);
        (colours - images).square().mean([1, 2])
    }

    /// Over rays of these views, drawn again.
    fn of_views(&self, s: &Scope, nets: &Network<Tensor>, scenes: Option<Tensor>, views: &Range<usize>) -> Tensor {
        let ImplicitRepresentation { rays, samples, near, far, side, views: all, .. } = self.task;
        let (tasks, pixels) = (self.tasks, side * side);
        let count = tasks * rays;
        let whole = |value: Tensor| value.convert(DType::I32);
        // The draw is below the number, but may be rounded up to it.
        let draw = |n: usize| whole(s.uniform([count], 0.0, n as f64).floor().clamp(0.0, n as f64 - 1.0));
        let scenes = scenes.unwrap_or_else(|| whole(s.graph().constant(0.0, [tasks], s.dtype()).iota_like(0)));
        let scene = scenes.unsqueeze([1]).broadcast_to([tasks, rays]).reshape([count]);
        let (view, pixel) = (draw(views.len()) + views.start as f64, draw(pixels));
        let camera = scene * all as f64 + view;
        let colours = s.data("colours").take(camera * pixels as f64 + pixel);
        let (camera, place) = (s.data("cameras").take(camera), s.data("coordinates").take(pixel));
        let (rotation, slope) = (camera.slice(1, 0, 9).reshape([count, 3, 3]), camera.slice(1, 12, 13));
        let (x, y) = (place.slice(1, 0, 1) * slope, place.slice(1, 1, 2) * slope);
        let own = x.concat(&[-y, -x.ones_like()], 1);
        let directions = (rotation * own.unsqueeze([1])).sum([2]);
        let origins = camera.slice(1, 9, 12);
        let jitter = s.uniform([count, samples], 0.0, 1.0);
        let seen = nets.seen(tasks, origins, directions, depths(origins, near, far, samples, jitter));
        (seen - colours).square().reshape([tasks, rays * 3]).mean([1])
    }

    /// The PSNR of held-out images after training from λ on each of them.
    fn after_training(&self, s: &Scope, lambda: &Network<Tensor>) -> Tensor {
        let images = s.data("held-out colours");
        let mut nets = same_for_tasks(lambda, self.tasks);
        for _ in 0..self.task.steps {
            let leaves: Vec<Tensor> = nets.leaves().into_iter().copied().collect();
            // A tensor that could not be made carries its error, and so does the loss computed from it.
            let Ok(slopes) = gradient_or_zeros(self.of_images(s, &nets, images).sum_all(), &leaves) else { break };
            let moved = leaves.iter().zip(slopes).map(|(leaf, slope)| *leaf - slope * self.task.learning_rate);
            match nets.rebuild(moved) {
                Ok(next) => nets = next,
                Err(_) => break,
            }
        }
        decibels(self.of_images(s, &nets, images))
    }
}
