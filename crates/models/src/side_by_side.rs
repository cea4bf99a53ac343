//! Many networks of one shape side by side, each with its own weights and images, as in the tasks of few-shot learning.
//!
//! Every leaf has a leading axis of tasks, and the activations between two layers are `[tasks, channels, n, h, w]`:
//! then a convolution is one product of matrices per task,
//!
//!   y\[t\] = W\[t\]·P\[t\],   W `[out, in·kh·kw]`,   P `[in·kh·kw, n·h·w]` the patches of all images of the task,
//!
//! whose result has the layout of the next layer's input, as do the products of all its derivatives. The alternative is
//! one convolution whose groups are the tasks. Its kernel's gradient has the images as kernels. The derivatives of that
//! need a padding as large as the images, so most products would be with zeros: images and kernels can be exchanged
//! only without groups.

use crate::batch_norm::BatchNorm;
use crate::conv4::Conv4;
use crate::layers::{Conv, Linear};
use crate::mlp::Mlp;
use crate::nerf::{Field, Nerf, Seen, see};
use crate::siren::Siren;
use bilevel::Variable;
use bilevel_graph::{Tensor, Tree, nn};

/// The same leaves for this many tasks: an axis in front of each, to be started at one network's leaves by
/// [`same_for_tasks`].
///
/// ```
/// use bilevel_models::{for_tasks, logistic};
/// assert_eq!(for_tasks(&logistic(64, 5)?, 32).weight.shape(), [32, 64, 5]);
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
pub fn for_tasks<S: Tree<Leaf = Variable>>(model: &S, tasks: usize) -> S::With<Variable> {
    model.map(|leaf| Variable::constant([&[tasks], leaf.shape()].concat(), 0.0))
}

/// One network's leaves as those of this many tasks, all equal: the start of MAML's tasks.
///
/// ```
/// use bilevel_graph::{DType, Graph};
/// use bilevel_models::{inputs, logistic, same_for_tasks};
/// let g = Graph::new();
/// let start = inputs(&logistic(64, 5)?, &g, DType::F32);
/// assert_eq!(same_for_tasks(&start, 32).weight.shape(), [32, 64, 5]);
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
#[track_caller]
pub fn same_for_tasks<S: Tree<Leaf = Tensor>>(model: &S, tasks: usize) -> S::With<Tensor> {
    model.map(|leaf| leaf.broadcast_to([&[tasks], &leaf.shape()[..]].concat()))
}

impl Linear<Tensor> {
    /// As [`forward`](Self::forward), for many tasks: `[tasks, n, in]` to `[tasks, n, out]`.
    #[track_caller]
    pub fn forward_tasks(&self, x: Tensor) -> Tensor {
        let y = x.matmul(self.weight);
        self.bias.map_or(y, |bias| y + bias.unsqueeze([1]))
    }
}

impl Mlp<Tensor> {
    /// As [`forward`](Self::forward), for many tasks: `[tasks, n, in]` to `[tasks, n, out]`.
    #[track_caller]
    pub fn forward_tasks(&self, x: Tensor) -> Tensor {
        let hidden = self.features_by(x, Linear::forward_tasks);
        self.layers.last().map_or(hidden, |last| last.forward_tasks(hidden))
    }
}

impl Siren<Tensor> {
    /// As [`forward`](Self::forward), for many signals: `[tasks, n, in]` to `[tasks, n, out]`.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph};
    /// use bilevel_models::{SirenConfig, for_tasks, inputs};
    /// let g = Graph::new();
    /// let nets = inputs(&for_tasks(&SirenConfig { width: 16, ..SirenConfig::default() }.build()?, 8), &g, DType::F32);
    /// let y = nets.forward_tasks(g.input("x", [8, 100, 2], DType::F32));
    /// assert_eq!(y.check().unwrap().shape(), [8, 100, 3]);
    /// # Ok::<(), bilevel_models::ModelError>(())
    /// ```
    #[track_caller]
    pub fn forward_tasks(&self, coordinates: Tensor) -> Tensor {
        self.by(coordinates, Linear::forward_tasks)
    }
}

impl Nerf<Tensor> {
    /// As [`field`](Self::field), for many scenes, at points `[tasks, n, 3]`.
    #[track_caller]
    pub fn field_tasks(&self, points: Tensor) -> Field {
        self.field_of(self.mlp.forward_tasks(self.encoded(points)), 2)
    }

    /// As [`render`](Self::render), for many scenes with as many rays each: origins and directions `[tasks·rays, 3]`
    /// and depths `[tasks·rays, samples]`, those of the first scene first.
    #[track_caller]
    pub fn render_tasks(&self, tasks: usize, origins: Tensor, directions: Tensor, depths: Tensor) -> Seen {
        let (rays, samples) = (depths.dim(0), depths.dim(1));
        let points = origins.unsqueeze([1]) + directions.unsqueeze([1]) * depths.unsqueeze([2]);
        let each = rays.checked_div(tasks).unwrap_or(0) * samples;
        let Field { colour, density } = self.field_tasks(points.reshape([tasks, each, 3]));
        see(Field { colour: colour.reshape([rays, samples, 3]), density: density.reshape([rays, samples]) }, depths)
    }
}

impl Conv<Tensor> {
    /// As [`forward`](Self::forward), for many tasks and with one group of channels: `[tasks, in, n, h, w]` to
    /// `[tasks, out, n, h', w']`.
    #[track_caller]
    pub fn forward_tasks(&self, x: Tensor) -> Tensor {
        let [tasks, out, inputs, kh, kw] = [0, 1, 2, 3, 4].map(|axis| self.weight.dim(axis));
        let [high, wide] =
            [(3, kh), (4, kw)].map(|(axis, kernel)| self.padding.around(x.dim(axis), kernel, self.stride));
        let zeros = |number: i64| usize::try_from(number).unwrap_or(0);
        let around = |of: [i64; 2]| vec![0, 0, 0, zeros(of[0]), zeros(of[1])];
        let padded = x.pad_all(around([high.0, wide.0]), around([high.1, wide.1]), vec![0; 5]);
        // One more than from the first to the last of the places that are kept.
        let reach = |axis: usize, kernel: usize| {
            padded.dim(axis).saturating_sub(kernel).checked_div(self.stride).unwrap_or(0) * self.stride + 1
        };
        let (rows, columns) = (reach(3, kh), reach(4, kw));
        let shifted = |place: usize| {
            let (down, right) = (place / kw.max(1), place % kw.max(1));
            let cut = padded.slice_step(3, down, down + rows, self.stride);
            cut.slice_step(4, right, right + columns, self.stride).unsqueeze([2])
        };
        let others: Vec<Tensor> = (1..kh * kw).map(shifted).collect();
        let patches = shifted(0).concat(&others, 2);
        let places = [x.dim(2), patches.dim(4), patches.dim(5)];
        let count = places.iter().product();
        let weight = self.weight.reshape([tasks, out, inputs * kh * kw]);
        let y = weight.matmul(patches.reshape([tasks, x.dim(1) * kh * kw, count]));
        let y = y.reshape([&[tasks, out], &places[..]].concat());
        self.bias.map_or(y, |bias| y + bias.unsqueeze([2, 3, 4]))
    }
}

impl BatchNorm<Tensor> {
    /// For many tasks, each with the statistics of its batch: `[tasks, c, ..]` to the same shape.
    #[track_caller]
    pub fn forward_tasks(&self, x: Tensor) -> Tensor {
        let channels = self.weight.len();
        let rows = x.reshape([1, channels, x.len().checked_div(channels).unwrap_or(0)]);
        let [weight, bias] = [self.weight, self.bias].map(|leaf| leaf.reshape([channels]));
        nn::batch_norm(rows, weight, bias, self.eps).y.reshape(x.shape())
    }
}

impl Conv4<Tensor> {
    /// As [`forward`](Self::forward), for many tasks with their own leaves and statistics: logits `[tasks, n, classes]`
    /// of images `[tasks, n, c, h, w]`.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph};
    /// use bilevel_models::{Conv4Config, for_tasks, inputs};
    /// let config = Conv4Config { channels: 1, image: [28, 28], ..Conv4Config::default() };
    /// let g = Graph::new();
    /// let nets = inputs(&for_tasks(&config.build()?, 32), &g, DType::F32);
    /// let y = nets.forward_tasks(g.input("x", [32, 75, 1, 28, 28], DType::F32));
    /// assert_eq!(y.check().unwrap().shape(), [32, 75, 5]);
    /// # Ok::<(), bilevel_models::ModelError>(())
    /// ```
    #[track_caller]
    pub fn forward_tasks(&self, images: Tensor) -> Tensor {
        let swap = [0, 2, 1, 3, 4];
        let mut x = images.transpose(swap);
        for layer in &self.layers {
            x = layer.conv.forward_tasks(x);
            if let Some(norm) = &layer.norm {
                x = norm.forward_tasks(x);
            }
            let planes = x.reshape([x.dim(0) * x.dim(1), x.dim(2), x.dim(3), x.dim(4)]);
            let pooled = nn::max_pool2d(nn::relu(planes), nn::Pool2d::of([2, 2]));
            x = pooled.reshape([x.dim(0), x.dim(1), x.dim(2), pooled.dim(2), pooled.dim(3)]);
        }
        let (tasks, images) = (x.dim(0), x.dim(2));
        let features = x.dim(1) * x.dim(3) * x.dim(4);
        self.head.forward_tasks(x.transpose(swap).reshape([tasks, images, features]))
    }
}
