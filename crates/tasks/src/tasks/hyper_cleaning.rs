//! Finds wrong labels: some of the training labels are drawn again, every training digit gets a weight, and the weights
//! are learned so that a classifier trained with them does well on a few digits known to be clean.
//!
//!   L_T = mean of sigmoid(λᵢ)·(cross entropy of training digit i) + decay·‖w‖²
//!   f   = mean cross entropy of the clean digits

use crate::digits::accuracy;
use crate::digits::{CLASSES, Classifier, SHAPE, Split};
use crate::task::{Context, Defaults, InnerLoop, Task};
use bilevel::graph::nn::{cross_entropy, cross_entropy_rows, sigmoid};
use bilevel::graph::random::fill_uniform_f64;
use bilevel::{Array, DType, Error, Key, Problem, Result, Tree, Variable};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// λ: a number for each training digit, whose sigmoid is the digit's weight.
#[derive(Clone, Tree)]
#[tree(crate = "bilevel::graph")]
struct Trust<T> {
    examples: T,
}

/// Weights for training digits of which some have wrong labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HyperCleaning {
    /// the part of the training labels that are drawn again
    pub corrupted: f64,
    /// digits known to be clean
    pub clean: usize,
    /// weight decay; without a little of it the classifier fits wrong labels of any weight
    pub decay: f64,
}

impl Default for HyperCleaning {
    fn default() -> Self {
        HyperCleaning { corrupted: 0.4, clean: 100, decay: 5e-4 }
    }
}

impl Task for HyperCleaning {
    const NAME: &'static str = "hyper-cleaning";
    const SUMMARY: &'static str = "a weight for each of 599 training digits, so that wrong labels lose their weight";

    fn build(&self, context: &Context) -> Result<Problem> {
        for (name, value) in [("corrupted", self.corrupted), ("decay", self.decay)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(Error::Setting { name, value, must: "from 0 to 1" });
            }
        }
        if !(1..=599).contains(&self.clean) {
            return Err(Error::Setting { name: "clean", value: self.clean as f64, must: "from 1 to 599" });
        }
        let decay = self.decay;
        let split = Split::new(context.seed);
        let (honest, clean, test) = (split.train, split.validation.first(self.clean), split.test);
        let draws = |stream: u32| {
            let mut numbers = vec![0.0; honest.len()];
            fill_uniform_f64(Key::from_seed(context.seed).words(), 0, stream, 0, &mut numbers);
            numbers
        };
        // A label drawn again may happen to be the right one; then it is not wrong.
        let mut train = honest.clone();
        for ((label, chance), draw) in train.labels.iter_mut().zip(draws(1)).zip(draws(2)) {
            if chance < self.corrupted {
                *label = (draw * CLASSES as f64) as i32;
            }
        }
        let wrong =
            train.labels.iter().zip(&honest.labels).map(|(given, right)| (given != right) as i32 as f64).collect();
        let examples = Variable::constant([train.len()], 0.0);
        Problem::new(Trust { examples }, Classifier { weights: Variable::constant(SHAPE, 0.0) })
            .dtype(context.dtype)
            .data("train x", train.x()?)
            .data("train y", train.y()?)
            .data("clean x", clean.x()?)
            .data("clean y", clean.y()?)
            .data("test x", test.x()?)
            .data("test y", test.y()?)
            .data("wrong", Array::from_f64([train.len()], wrong)?)
            .inner(move |s, l, t| {
                let rows = cross_entropy_rows(s.data("train x").matmul(t.weights), s.data("train y"));
                // Without a little decay the classifier would fit wrong labels of any weight.
                (sigmoid(l.examples) * rows).mean_all() + t.weights.square().sum_all() * decay
            })
            .outer(|s, _, t| cross_entropy(s.data("clean x").matmul(t.weights), s.data("clean y")))
            .measure("test loss", |s, _, t| cross_entropy(s.data("test x").matmul(t.weights), s.data("test y")))
            .measure("test accuracy", |s, _, t| accuracy(s, "test", t.weights))
            .measure("wrong labels found", |s, l, _| {
                let distrusted = (-l.examples).greater(0.0);
                (distrusted * s.data("wrong")).sum_all() / s.data("wrong").sum_all()
            })
            .build()
            .map(Problem::erase)
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            inner: InnerLoop { step: 0.4, steps: 20, temperature: 1e-6, curvature: 1.0 },
            iterations: 200,
            dtype: DType::F32,
            ..Defaults::default()
        }
    }
}
