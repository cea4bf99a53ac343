//! Learns the invariances of a network: how far images may be shifted, turned, scaled and sheared without a change of
//! class.
//!
//!   logits(x; λ, θ) = mean over views of net(x seen through exp(Σ εᵢ·λᵢ·Gᵢ); θ),   ε uniform in ±1 for every view
//!   L_T = cross entropy of logits on training images
//!   f   = cross entropy of logits on validation images − reward·‖λ‖
//!
//! Images are transformed once, at random, when they are prepared; λ should learn the ranges of that transformation. λ
//! = 0 is a saddle by symmetry (λ and −λ are the same views), so λ starts away from it. The last layer of the network
//! is linear, so the mean of its inputs gives the mean of the logits at a fraction of the cost.

mod images;
mod show;
#[cfg(test)]
mod tests;
mod views;

pub use images::{Images, Parts};
pub use show::pictures;
pub use views::views;

use crate::digits::{CLASSES, share_right};
use bilevel::graph::nn::{cross_entropy, cross_entropy_rows, gaussian_prior};
use bilevel::methods::AnyMethod;
use bilevel::splits::Part;
use bilevel::{Array, DType, Error, InnerLoop, Problem, Result, Scope, Tensor, Tree, Variable};
use bilevel_models::{Mlp, MlpConfig};
use bilevel_report::Section;
use bilevel_run::LambdaLeaf;
use bilevel_run::{Context, Defaults, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The transformations whose ranges are λ's six numbers.
pub const GENERATORS: [&str; 6] = ["x shift", "y shift", "rotation", "x scale", "y scale", "shear"];

/// λ: the range of each generator.
#[derive(Clone, Debug, Tree)]
#[tree(crate = "bilevel::graph")]
pub struct Ranges<T> {
    /// One per generator, in the order of [`GENERATORS`].
    pub ranges: T,
}

/// The source of the images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Dataset {
    /// 1797 digits of 8 × 8, embedded.
    Digits,
    /// 70 000 digits of 28 × 28, from `--data`.
    Mnist,
}

/// The transformation that was applied to each image, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Transformation {
    /// Nothing.
    None,
    /// Turned by up to 180 degrees either way.
    #[serde(rename = "rotated-180")]
    Rotated180,
    /// Turned by up to 90 degrees either way.
    #[serde(rename = "rotated-90")]
    Rotated90,
    /// Scaled by a factor from one half to two.
    Scaled,
    /// Shifted by up to 8 of 28 pixels along each axis.
    Shifted,
}

/// The treatment of λ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Views {
    /// Views are drawn from ranges that are learned.
    Learned,
    /// Views are drawn from the ranges that the images were made with, and these stay.
    Known,
    /// Views are drawn from the ranges in the settings, and these stay.
    Given,
    /// The network sees images as they are.
    None,
}

/// The judge of λ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Judge {
    /// The loss on validation images.
    Validation,
    /// The loss on training images, as in Augerino, which has one level.
    Training,
    /// The marginal likelihood of the training images, along a chain at the temperature 1/n: with the method `evidence`.
    Evidence,
}

/// Ranges of the views over which a network's answers are averaged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Invariance {
    /// images: embedded digits of 8 x 8, or mnist from --data
    pub dataset: Dataset,
    /// transformation of each image: none, rotated-180, rotated-90, scaled, shifted
    pub transformation: Transformation,
    /// ranges of the views: learned, known (the transformation's), given (by task.ranges), or none (the image alone)
    pub views: Views,
    /// ranges of given views: x shift, y shift, rotation, x scale, y scale, shear
    pub ranges: [f64; 6],
    /// views of each image that are averaged
    pub draws: usize,
    /// units of the hidden layer
    pub hidden: usize,
    /// images of a minibatch, for training and for validation
    pub batch: usize,
    /// the share of the training images for validation
    pub held_out: f64,
    /// judge of λ: validation, training, or evidence, which the method of that name always uses
    pub judge: Judge,
    /// the precision of the prior of all weights, if the criterion is the evidence
    pub precision: f64,
    /// every range at the start; 0 is a saddle
    pub start: f64,
    /// how much wider ranges are worth: this times the norm of λ is taken off the outer loss
    pub reward: f64,
    /// norm of λ above which wider ranges earn no reward; 0 is no limit
    pub cap: f64,
    /// labelled images, for training and validation; 0 is all of them
    pub images: usize,
    /// test images; 0 is all of them
    pub test: usize,
}

impl Default for Invariance {
    fn default() -> Self {
        Invariance {
            dataset: Dataset::Digits,
            transformation: Transformation::Rotated90,
            views: Views::Learned,
            ranges: [0.0; 6],
            draws: 7,
            hidden: 32,
            batch: 100,
            held_out: 0.2,
            judge: Judge::Validation,
            precision: 50.0,
            start: 0.2,
            reward: 0.01,
            cap: 10.0,
            images: 0,
            test: 0,
        }
    }
}

impl Invariance {
    /// The paper's experiment: MNIST, 1000 hidden units, batches of 1000, 31 views.
    pub fn paper(transformation: Transformation) -> Self {
        let full = Invariance { dataset: Dataset::Mnist, draws: 31, hidden: 1000, batch: 1000, ..Self::default() };
        Invariance { transformation, ..full }
    }

    /// The start of λ, or its fixed value.
    pub fn first_ranges(&self) -> Result<[f64; 6]> {
        match self.views {
            Views::Learned => Ok([self.start; 6]),
            Views::None => Ok([0.0; 6]),
            Views::Known => Ok(self.transformation.ranges()),
            Views::Given if self.ranges.iter().all(|range| range.is_finite()) => Ok(self.ranges),
            Views::Given => Err(Error::setting("ranges", f64::NAN, "finite")),
        }
    }

    /// The images, and the network's view of them.
    pub fn prepared(&self, context: &Context) -> Result<(Parts, Arc<Network>)> {
        self.check()?;
        // The evidence needs no validation images.
        let by_evidence = context.evidence || self.judge == Judge::Evidence;
        let held_out = if by_evidence { 0.0 } else { self.held_out };
        let parts = Parts::of(self.dataset, self.transformation, held_out, [self.images, self.test], context)?;
        let (mean, deviation) = parts.train.normalisation()?;
        Ok((parts, Arc::new(Network { views: self.views, draws: self.draws, mean, deviation })))
    }

    /// The network to train, with its first weights.
    pub fn classifier(&self, images: &Images) -> Result<Mlp<Variable>> {
        Ok(MlpConfig::tanh([images.side * images.side, self.hidden, CLASSES]).build()?)
    }

    fn check(&self) -> Result<()> {
        let setting = |name, value: f64, must| Err(Error::setting(name, value, must));
        match self {
            _ if self.draws == 0 => setting("draws", 0.0, "at least 1"),
            _ if self.batch == 0 => setting("batch", 0.0, "at least 1"),
            _ if !(0.0..1.0).contains(&self.held_out) => setting("held_out", self.held_out, "from 0 to below 1"),
            _ if !(self.precision > 0.0 && self.precision.is_finite()) => {
                setting("precision", self.precision, "above 0")
            }
            _ if !self.start.is_finite() => setting("start", self.start, "a number"),
            _ if !(self.reward >= 0.0 && self.reward.is_finite()) => setting("reward", self.reward, "0 or more"),
            _ if !(self.cap >= 0.0 && self.cap.is_finite()) => setting("cap", self.cap, "0 or more"),
            _ if self.judge == Judge::Validation && self.held_out == 0.0 => {
                setting("held_out", 0.0, "above 0 if task.judge is validation")
            }
            _ => Ok(()),
        }
    }
}

/// Logits `[n, classes]` of images `[n, 1, h, w]`.
pub struct Network {
    views: Views,
    draws: usize,
    mean: f64,
    deviation: f64,
}

impl Network {
    /// Views of the images, as the first layer sees them: `[n, views, h·w]`.
    pub fn seen(&self, s: &Scope, ranges: Tensor, images: Tensor) -> Tensor {
        let (count, size) = (images.dim(0), images.dim(2) * images.dim(3));
        let seen = match self.views {
            Views::None => images.reshape([count, 1, size]),
            Views::Known | Views::Given => {
                views(images, s.data("ranges"), s.uniform([6, count, self.draws], -1.0, 1.0))
            }
            Views::Learned => views(images, ranges, s.uniform([6, count, self.draws], -1.0, 1.0)),
        };
        (seen - self.mean) * (1.0 / self.deviation)
    }

    /// The mean over views of the logits of images.
    pub fn logits(&self, s: &Scope, ranges: Tensor, net: &Mlp<Tensor>, images: Tensor) -> Tensor {
        let features = net.features(self.seen(s, ranges, images)).mean([1]);
        net.layers.last().map_or(features, |last| last.forward(features))
    }

    /// The share of test images that are recognised.
    pub fn accuracy(&self, s: &Scope, ranges: Tensor, net: &Mlp<Tensor>) -> Tensor {
        let s = s.part(Part::Test);
        let count = s.data("x").dim(0) as f64;
        let right = |(logits, y): (Tensor, Tensor)| share_right(logits, y) * (y.dim(0) as f64 / count);
        let shares = self.in_pieces(&s, ranges, net).into_iter().map(right);
        shares.reduce(|a, b| a + b).unwrap_or(s.graph().scalar(0.0, s.dtype()))
    }

    /// The loss of every image that the scope sees.
    pub fn losses(&self, s: &Scope, ranges: Tensor, net: &Mlp<Tensor>) -> Tensor {
        let pieces = self.in_pieces(s, ranges, net).into_iter().map(|(logits, y)| cross_entropy_rows(logits, y));
        let pieces: Vec<Tensor> = pieces.collect();
        pieces.split_first().map_or(s.graph().scalar(0.0, s.dtype()), |(first, rest)| first.concat(rest, 0))
    }

    /// Logits and labels of the images that the scope sees, [`AT_ONCE`] at a time.
    fn in_pieces(&self, s: &Scope, ranges: Tensor, net: &Mlp<Tensor>) -> Vec<(Tensor, Tensor)> {
        let (x, y) = (s.data("x"), s.data("y"));
        let piece = |from: usize| {
            let to = (from + AT_ONCE).min(x.dim(0));
            (self.logits(s, ranges, net, x.slice(0, from, to)), y.slice(0, from, to))
        };
        (0..x.dim(0)).step_by(AT_ONCE).map(piece).collect()
    }
}

/// The measure of all problems made here.
pub const ACCURACY: &str = "test accuracy";

/// Images at a time, so that all their views need not be in memory at once.
const AT_ONCE: usize = 1000;

impl Task for Invariance {
    const NAME: &'static str = "invariance";
    const SUMMARY: &'static str = "the ranges of rotation, shift and scale that do not change the class of an image";

    fn build(&self, context: &Context) -> Result<Problem> {
        let (Parts { train, validation, test }, network) = self.prepared(context)?;
        let batch = self.batch;
        if batch > train.count() {
            return Err(Error::setting("batch", batch, "at most the number of training images"));
        }
        let loss = {
            let network = network.clone();
            move |s: &Scope, ranges: Tensor, net: &Mlp<Tensor>| {
                let (x, y) = (s.data("x"), s.data("y"));
                let rows = s.epochs(x.dim(0), batch.min(x.dim(0)));
                cross_entropy(network.logits(s, ranges, net, x.take(rows)), y.take(rows))
            }
        };
        let inner = loss.clone();
        let judge = if context.evidence { Judge::Evidence } else { self.judge };
        let (reward, cap, precision) = (self.reward, self.cap, self.precision);
        let start = Array::from_f64([6], self.first_ranges()?.to_vec())?;
        let learned = self.views == Views::Learned;
        let ranges = Variable::fixed(start.clone());
        let net = self.classifier(&train)?;
        let rows = train.count() as f64;
        let mut parts = vec![(Part::Train, train), (Part::Test, test)];
        if judge == Judge::Validation {
            parts.push((Part::Validation, validation));
        }
        let of = |array: fn(&Images) -> Result<Array>| {
            parts.iter().map(|(part, images)| Ok((*part, array(images)?))).collect::<Result<Vec<_>>>()
        };
        let (for_accuracy, for_loss) = (network.clone(), network.clone());
        let problem = Problem::builder(Ranges { ranges }, net)
            .dtype(context.dtype)
            .parts("x", of(Images::x)?)
            .parts("y", of(Images::y)?)
            .data("ranges", start)
            .measure(ACCURACY, move |s, l, net| for_accuracy.accuracy(s, l.ranges, net))
            .measure("test loss", move |s, l, net| for_loss.losses(&s.part(Part::Test), l.ranges, net).mean_all());
        if judge == Judge::Evidence {
            return problem
                .inner(move |s, l, net| {
                    let constant = s.graph().scalar(precision, s.dtype());
                    let priors = net.leaves().into_iter().map(|weight| gaussian_prior(*weight, constant));
                    let prior = priors.reduce(|sum, prior| sum + prior).unwrap_or(constant);
                    inner(s, l.ranges, net) + prior / rows
                })
                .outer_rows(move |s, l, net| network.losses(s, l.ranges, net))
                .evidence()
                .build()
                .map(Problem::erase);
        }
        problem
            .inner(move |s, l, net| inner(s, l.ranges, net))
            .outer(move |s, l, net| {
                let train = s.part(Part::Train);
                let s = if judge == Judge::Validation { s } else { &train };
                if !learned {
                    // λ has no effect, and stays at its value.
                    return loss(s, l.ranges, net) + (l.ranges - s.data("ranges")).square().sum_all();
                }
                // The root has no slope at 0.
                let norm = (l.ranges.square().sum_all() + 1e-12).sqrt();
                let norm = if cap > 0.0 { norm.clamp(0.0, cap) } else { norm };
                loss(s, l.ranges, net) - norm * reward
            })
            .outer_rows(move |s, l, net| network.losses(s, l.ranges, net))
            .build()
            .map(Problem::erase)
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            method: "langevin-adjoint",
            inner: InnerLoop::new(0.1, 5).at_temperature(1e-6),
            curvature: 10.0,
            rate: 0.01,
            iterations: 500,
            dtype: DType::F32,
            ..Defaults::default()
        }
    }

    fn tune(&self, method: &mut AnyMethod, inner: &mut InnerLoop) {
        if let AnyMethod::Evidence(_) = method {
            let all = match (self.images, self.dataset) {
                (0, Dataset::Digits) => 1197.0,
                (0, Dataset::Mnist) => 60_000.0,
                (images, _) => images as f64,
            };
            *inner = InnerLoop { burn_in: 0, ..*inner }.at_temperature(1.0 / all);
        }
    }

    fn reads_data(&self) -> bool {
        self.dataset == Dataset::Mnist
    }

    fn show(&self, lambda: &[LambdaLeaf], context: &Context) -> Vec<Section> {
        show::sections(self, lambda, context)
    }
}
