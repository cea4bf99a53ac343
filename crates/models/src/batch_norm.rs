//! Batch normalisation, with the statistics of the batch or running ones.

use bilevel::{Scope, Variable};
use bilevel_graph::{Tensor, Tree, nn};

/// Whose mean and variance a [`BatchNorm`] uses. One that keeps no running statistics always uses those of the batch.
#[derive(Clone, Copy)]
pub enum Statistics<'a> {
    /// Those of the batch, in training and elsewhere; running statistics do not change.
    Batch,
    /// The running ones as they are, in training too: a pretrained network whose statistics are frozen.
    Running,
    /// Those of the batch in training, with which the running ones are updated; the running ones in the outer loss, in
    /// measures and wherever else nothing is trained.
    Tracked(&'a Scope<'a>),
}

/// (x − mean)/√(variance + eps)·weight + bias for each channel of `[n, c, ..]`.
///
/// ```
/// use bilevel_graph::{DType, Graph};
/// use bilevel_models::{BatchNorm, Statistics, inputs};
/// let g = Graph::new();
/// let norm = inputs(&BatchNorm::new(3), &g, DType::F32);
/// let y = norm.forward(g.input("x", [8, 3, 5, 5], DType::F32), Statistics::Batch);
/// assert_eq!(y.check().unwrap().shape(), [8, 3, 5, 5]);
/// ```
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct BatchNorm<T> {
    /// `[c]`.
    pub weight: T,
    /// `[c]`.
    pub bias: T,
    /// `[c]`, if running statistics are kept.
    pub running_mean: Option<T>,
    /// `[c]`, if running statistics are kept.
    pub running_var: Option<T>,
    /// Added to the variance.
    pub eps: f64,
    /// How far running statistics move towards those of a batch.
    pub momentum: f64,
}

impl BatchNorm<Variable> {
    /// For this many channels, with gain 1, bias 0 and no running statistics.
    pub fn new(channels: usize) -> Self {
        let at = |value| Variable::constant([channels], value);
        BatchNorm { weight: at(1.0), bias: at(0.0), running_mean: None, running_var: None, eps: 1e-5, momentum: 0.1 }
    }

    /// With running statistics that start at mean 0 and variance 1.
    ///
    /// ```
    /// use bilevel::prelude::*;
    /// use bilevel_models::{BatchNorm, Statistics};
    /// let norm = BatchNorm::new(1).running();
    /// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), norm)
    ///     .data("x", Array::from_f64([2, 1], vec![3.0, 5.0])?)
    ///     .inner(|s, l, norm| (norm.forward(s.data("x"), Statistics::Tracked(s)) - l.0).square().sum_all())
    ///     .outer(|s, _, norm| norm.forward(s.data("x"), Statistics::Tracked(s)).square().sum_all())
    ///     .build()?;
    /// let outcome = Driver::new(&problem, Rmd::default()).inner(InnerLoop::new(0.01, 1)).iterations(1).run()?;
    /// let found = [outcome.theta.running_mean, outcome.theta.running_var].map(|s| s.unwrap().item().unwrap());
    /// // A tenth of the way from 0 to 4, and from 1 to the unbiased variance, 2.
    /// assert!((found[0] - 0.4).abs() < 1e-12 && (found[1] - 1.1).abs() < 1e-12);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn running(self) -> Self {
        let at = |value| Some(Variable::constant(self.weight.shape(), value).statistic());
        let (running_mean, running_var) = (at(0.0), at(1.0));
        BatchNorm { running_mean, running_var, ..self }
    }
}

impl BatchNorm<Tensor> {
    /// `[n, c, ..]` to the same shape.
    #[track_caller]
    pub fn forward(&self, x: Tensor, statistics: Statistics) -> Tensor {
        let (Some(mean), Some(variance)) = (self.running_mean, self.running_var) else {
            return nn::batch_norm(x, self.weight, self.bias, self.eps).y;
        };
        let scope = match statistics {
            Statistics::Tracked(scope) if scope.training() => Some(scope),
            Statistics::Batch => None,
            Statistics::Running | Statistics::Tracked(_) => {
                return nn::batch_norm_frozen(x, mean, variance, self.weight, self.bias, self.eps);
            }
        };
        let norm = nn::batch_norm(x, self.weight, self.bias, self.eps);
        if let Some(scope) = scope {
            let count = x.len().checked_div(x.dim(1)).unwrap_or(0) as f64;
            // As PyTorch: the unbiased variance is kept, though the biased one normalises.
            let unbiased = norm.variance * (count / (count - 1.0).max(1.0));
            let moved = |old: Tensor, new: Tensor| old * (1.0 - self.momentum) + new.stop_gradient() * self.momentum;
            scope.update(mean, moved(mean, norm.mean));
            scope.update(variance, moved(variance, unbiased));
        }
        norm.y
    }
}
