//! A separate L2 penalty for every parameter of an MLP with two hidden layers, as many as memory allows.
//!
//!   L_T = mean cross entropy of a minibatch of training digits + ½·Σ e^λᵢ·θᵢ²,   f = mean cross entropy of the validation digits

use crate::digits::{CLASSES, DigitSource, share_right};
use bilevel::graph::nn::{cross_entropy, cross_entropy_rows};
use bilevel::splits::Part;
use bilevel::{DType, Error, InnerLoop, Problem, Result, Scope, Tensor, Tree, Variable};
use bilevel_models::{Mlp, MlpConfig};
use bilevel_run::{Context, Defaults, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A penalty for each parameter of a network on digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MlpL2 {
    /// digits (embedded) or mnist (from --data)
    pub source: DigitSource,
    /// digits to train on
    pub train: usize,
    /// digits the penalties are chosen by
    pub clean: usize,
    /// test digits
    pub test: usize,
    /// units of each of the two hidden layers
    pub hidden: usize,
    /// rows of a minibatch of the inner loss
    pub batch: usize,
    /// logarithm of every penalty at the start
    pub start: f64,
}

impl Default for MlpL2 {
    fn default() -> Self {
        MlpL2 { source: DigitSource::Digits, train: 599, clean: 599, test: 599, hidden: 32, batch: 64, start: -9.0 }
    }
}

impl Task for MlpL2 {
    const NAME: &'static str = "mlp-l2";
    const SUMMARY: &'static str = "a penalty for each parameter of a network with two hidden layers";

    fn build(&self, context: &Context) -> Result<Problem> {
        let setting = |name, value, must| Err(Error::setting(name, value, must));
        if !(1..=100_000).contains(&self.hidden) {
            return setting("hidden", self.hidden as f64, "from 1 to 100000");
        }
        if !(1..=self.train).contains(&self.batch) {
            return setting("batch", self.batch as f64, "from 1 to task.train");
        }
        if !(-15.0..=0.0).contains(&self.start) {
            return setting("start", self.start, "from -15 to 0");
        }
        let parts = self.source.parts([self.train, self.clean, self.test], context)?;
        let net = MlpConfig::tanh([self.source.pixels(), self.hidden, self.hidden, CLASSES]).build()?;
        let penalty = |weight: &Variable| {
            Variable::constant(weight.shape(), self.start).at_least(-15.0).at_most(0.0).log_penalty()
        };
        let batch = self.batch;
        let mut problem = Problem::builder(net.map(penalty), net).dtype(context.dtype);
        let of = [Part::Train, Part::Validation, Part::Test];
        let labels = parts.iter().map(|digits| digits.y()).collect::<Result<Vec<_>>>()?;
        problem = problem.parts("y", of.into_iter().zip(labels));
        problem = problem.parts("x", of.into_iter().zip(parts.map(|digits| digits.x)));
        let losses = |s: &Scope, t: &Mlp<Tensor>| cross_entropy_rows(t.forward(s.data("x")), s.data("y"));
        problem
            .inner(move |s, l, t| {
                let drawn = s.epochs(s.data("x").dim(0), batch);
                let fit = cross_entropy(t.forward(s.data("x").take(drawn)), s.data("y").take(drawn));
                let penalties = l.leaves().into_iter().zip(t.leaves());
                penalties.fold(fit, |sum, (l, t)| sum + (l.exp() * t.square()).sum_all() * 0.5)
            })
            .outer_rows(move |s, _, t| losses(s, t))
            .measure("test loss", move |s, _, t| losses(&s.part(Part::Test), t).mean_all())
            .measure("test accuracy", |s, _, t| {
                let s = s.part(Part::Test);
                share_right(t.forward(s.data("x")), s.data("y"))
            })
            .build()
            .map(Problem::erase)
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            inner: InnerLoop::new(0.1, 20).at_temperature(1e-8),
            curvature: 10.0,
            iterations: 200,
            // At a constant rate Adam keeps moving a million penalties long after they fit.
            cosine: true,
            dtype: DType::F32,
            ..Defaults::default()
        }
    }

    fn reads_data(&self) -> bool {
        self.source == DigitSource::Mnist
    }
}
