//! A weight for each row whose label may be wrong, with few rows whose labels are trusted: more hyperparameters than trusted rows.
//!
//!   L_T = (Σ sigmoid(λᵢ)·ℓᵢ over doubtful rows + Σ ℓ over trusted training rows)/n + decay·‖θ‖²,   f = mean ℓ of trusted validation rows
//!
//! ℓ is the cross entropy of a linear model, n the number of both. Trusted rows are divided in half; doubtful rows are in every training, so
//! that λ fits any division of the trusted ones. By the evidence, a weight enters a likelihood that sums to 1: the
//! logits of row i are multiplied by sigmoid(λᵢ).

mod pretrained;

use crate::digits::share_right;
use bilevel::graph::nn::{cross_entropy_rows, gaussian_prior, sigmoid};
use bilevel::methods::AnyMethod;
use bilevel::splits::{Part, Rows};
use bilevel::{Array, DType, Error, InnerLoop, Key, Leaf, Problem, Result, Scope, Tensor, Tree, Variable};
use bilevel_data::prepare::{shuffled, uniform_labels};
use bilevel_run::{Context, Defaults, Task};
use pretrained::cifar;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Classes of all sources.
const CLASSES: usize = 10;

/// The source of the rows, in `--data`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoisySource {
    /// embedded digits, labels drawn again
    #[default]
    Digits,
    /// MNIST at 7 by 7 pixels, labels drawn again
    Mnist,
    /// CIFAR-10 in a pretrained network's features, labels by people (CIFAR-10N, worst of three answers)
    Cifar10n,
}

/// Weights for rows with doubtful labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NoisyLabels {
    /// digits (embedded); mnist or cifar10n (from --data)
    pub source: NoisySource,
    /// rows whose labels may be wrong
    pub doubtful: usize,
    /// rows whose labels are right, half of them to train on
    pub trusted: usize,
    /// test rows
    pub test: usize,
    /// the part of the doubtful labels that are drawn again, from all classes; people were wrong 40 % of the time
    pub corrupted: f64,
    /// λ at the start; a weight is its sigmoid
    pub start: f64,
    /// weight decay of the model
    pub decay: f64,
}

impl Default for NoisyLabels {
    fn default() -> Self {
        NoisyLabels {
            source: NoisySource::Digits,
            doubtful: 400,
            trusted: 100,
            test: 800,
            corrupted: 0.4,
            start: 0.0,
            decay: 1e-3,
        }
    }
}

/// λ: a number for each doubtful row, whose sigmoid is its weight.
#[derive(Clone, Tree)]
#[tree(crate = "bilevel::graph")]
struct Doubt<T> {
    examples: T,
}

/// Rows of features, with the labels they are given and those they should have.
struct Labelled {
    width: usize,
    features: Vec<f64>,
    given: Vec<i32>,
    right: Vec<i32>,
}

impl NoisyLabels {
    fn check(&self) -> Result<()> {
        for (name, rows, least) in
            [("doubtful", self.doubtful, 1), ("trusted", self.trusted, 4), ("test", self.test, 1)]
        {
            if rows < least {
                return Err(Error::setting(name, rows, "at least 1, and 4 of those that are trusted"));
            }
        }
        for (name, value) in [("corrupted", self.corrupted), ("decay", self.decay)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(Error::setting(name, value, "from 0 to 1"));
            }
        }
        if !(-20.0..=20.0).contains(&self.start) {
            return Err(Error::setting("start", self.start, "from -20 to 20"));
        }
        Ok(())
    }

    /// All rows of the source, in an order that belongs to it.
    fn source(&self, context: &Context) -> Result<Labelled> {
        let drawn_again = |width: usize, features: Vec<f64>, right: Vec<i32>| -> Result<Labelled> {
            let noisy = uniform_labels(&right, CLASSES, self.corrupted, Key::from_seed(context.seed))?;
            Ok(Labelled { width, features, given: noisy.labels, right })
        };
        match self.source {
            NoisySource::Digits => {
                let digits = crate::digits::Digits::all();
                let features = digits.pixels.iter().map(|pixel| f64::from(*pixel)).collect();
                drawn_again(crate::digits::PIXELS, features, digits.labels)
            }
            NoisySource::Mnist => {
                let (width, features, labels) = crate::digits::small_mnist(context, "noisy-labels")?;
                drawn_again(width, features, labels)
            }
            NoisySource::Cifar10n => {
                let found = cifar(context.data_dir("noisy-labels")?)?;
                let (given, right) = (found.labels.worst.clone(), found.labels.clean.clone());
                Ok(Labelled { width: found.width, features: found.features.clone(), given, right })
            }
        }
    }

    fn problem(&self, context: &Context) -> Result<Problem> {
        self.check()?;
        let all = self.source(context)?;
        let (width, count) = (all.width, all.given.len());
        let order = shuffled(count, Key::from_seed(context.seed));
        let asked = self.doubtful + self.trusted + self.test;
        if asked > count {
            return Err(Error::setting("doubtful", self.doubtful, "at most the number of available rows"));
        }
        let (doubtful, rest) = order[..asked].split_at(self.doubtful);
        let features = standardised(&all.features, width, &order[..self.doubtful + self.trusted]);
        let x = |rows: &[usize]| {
            let values = rows.iter().flat_map(|row| features[row * width..(row + 1) * width].iter().copied());
            Array::from_f64([rows.len(), width], values.collect())
        };
        let y = |rows: &[usize], labels: &[i32]| {
            Array::from_i32([rows.len()], rows.iter().map(|row| labels[*row]).collect())
        };
        let half = self.trusted / 2;
        let split = Rows::given(0..half, half..self.trusted).with_test(self.trusted..rest.len());
        let examples = Variable::constant([self.doubtful], self.start).at_least(-16.0).at_most(16.0);
        let weights = Variable::constant([width, CLASSES], 0.0);
        let (decay, doubts) = (self.decay, self.doubtful as f64);
        let problem = Problem::builder(Doubt { examples }, Leaf(weights))
            .dtype(context.dtype)
            .data("doubtful x", x(doubtful)?)
            .data("doubtful y", y(doubtful, &all.given)?)
            .table("x", x(rest)?, &split)
            .table("y", y(rest, &all.right)?, &split)
            .measure("test loss", |s, _, t| losses(&s.part(Part::Test), t).mean_all())
            .measure("test error", |s, _, t| {
                let s = s.part(Part::Test);
                1.0 - share_right(s.data("x").matmul(t.0), s.data("y"))
            });
        if context.evidence {
            let rows = doubts + self.trusted as f64;
            return problem
                .inner(move |s, l, t| {
                    let logits = s.data("doubtful x").matmul(t.0);
                    let weight = sigmoid(l.examples).reshape([logits.dim(0), 1]).broadcast_to(logits.shape());
                    let doubtful = cross_entropy_rows(logits * weight, s.data("doubtful y")).sum_all();
                    let precision = s.graph().scalar(2.0 * decay * rows, s.dtype());
                    (doubtful + losses(s, t).sum_all() + gaussian_prior(t.0, precision)) / rows
                })
                .outer_rows(|s, _, t| losses(s, t))
                .evidence()
                .build()
                .map(Problem::erase);
        }
        problem
            .inner(move |s, l, t| {
                let doubtful = cross_entropy_rows(s.data("doubtful x").matmul(t.0), s.data("doubtful y"));
                let trusted = losses(s, t);
                let sum = (sigmoid(l.examples) * doubtful).sum_all() + trusted.sum_all();
                sum / (doubts + trusted.len() as f64) + t.0.square().sum_all() * decay
            })
            .outer_rows(|s, _, t| losses(s, t))
            .build()
            .map(Problem::erase)
    }
}

/// The loss of each trusted row that the scope sees.
fn losses(s: &Scope, t: &Leaf<Tensor>) -> Tensor {
    cross_entropy_rows(s.data("x").matmul(t.0), s.data("y"))
}

/// Features with the mean 0 and the variance 1 over these rows, divided by the root of their number, so that a row has a length near 1.
fn standardised(features: &[f64], width: usize, rows: &[usize]) -> Vec<f64> {
    let count = rows.len() as f64;
    let moments = (0..width).map(|j| {
        let values = || rows.iter().map(|row| features[row * width + j]);
        let mean = values().sum::<f64>() / count;
        (mean, values().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count)
    });
    let moments: Vec<(f64, f64)> = moments.collect();
    let scale = (width as f64).sqrt();
    let place = |(i, v): (usize, &f64)| {
        let (mean, variance) = moments[i % width];
        // Ten standard deviations are as far as a row may be from the others.
        if variance > 0.0 { ((v - mean) / variance.sqrt()).clamp(-10.0, 10.0) * (3.0 / scale) } else { 0.0 }
    };
    features.iter().enumerate().map(place).collect()
}

impl Task for NoisyLabels {
    const NAME: &'static str = "noisy-labels";
    const SUMMARY: &'static str = "a weight for each row whose label may be wrong, with few trusted rows";

    fn build(&self, context: &Context) -> Result<Problem> {
        self.problem(context)
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            inner: InnerLoop::new(0.5, 20).at_temperature(1e-6),
            curvature: 2.0,
            rate: 0.1,
            iterations: 200,
            dtype: DType::F64,
            ..Defaults::default()
        }
    }

    fn tune(&self, method: &mut AnyMethod, inner: &mut InnerLoop) {
        if let AnyMethod::Evidence(_) = method {
            let rows = (self.doubtful + self.trusted) as f64;
            *inner = InnerLoop { burn_in: 0, ..*inner }.at_temperature(1.0 / rows);
        }
    }

    fn reads_data(&self) -> bool {
        self.source != NoisySource::Digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel::Driver;
    use bilevel::methods::LangevinAdjoint;
    use bilevel::optimizers::Adam;

    #[test]
    fn rows_with_wrong_labels_lose_their_weight() {
        let (task, context) = (NoisyLabels::default(), Context::default());
        let problem = task.problem(&context).unwrap();
        let driver = Driver::new(&problem, LangevinAdjoint::default()).inner(task.defaults().inner);
        let outcome = driver.optimizer(Adam::default()).rate(0.1).iterations(60).run().unwrap();
        let all = task.source(&context).unwrap();
        let order = shuffled(all.given.len(), Key::from_seed(context.seed));
        let lambda = outcome.lambda.leaves()[0].to_f64();
        let mean = |wrong: bool| {
            let those = order.iter().zip(&lambda).filter(|(row, _)| (all.given[**row] != all.right[**row]) == wrong);
            let those: Vec<f64> = those.map(|(_, lambda)| *lambda).collect();
            those.iter().sum::<f64>() / those.len() as f64
        };
        assert!(mean(true) < mean(false) - 1.0, "{} {}", mean(true), mean(false));
    }

    #[test]
    fn a_split_of_the_trusted_rows_leaves_the_weights_as_they_are() {
        let problem = NoisyLabels::default().problem(&Context::default()).unwrap();
        let whole = problem.on_all_rows().unwrap();
        assert_eq!((whole.rows_of(Part::Train), whole.rows_of(Part::Test)), (100, 800));
        assert_eq!(whole.sizes(), problem.sizes());
        let by_evidence = Context { evidence: true, ..Context::default() };
        assert_eq!(NoisyLabels::default().problem(&by_evidence).unwrap().rows_of(Part::Train), 100);
    }

    #[test]
    fn too_few_rows_are_refused() {
        let error = NoisyLabels { doubtful: 1700, ..NoisyLabels::default() }.problem(&Context::default());
        assert!(error.err().unwrap().to_string().contains("doubtful"));
    }
}
