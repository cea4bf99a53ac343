//! Finds wrong labels: some of the training labels are redrawn at random. Every training digit gets a weight, learned
//! so that a classifier trained with the weights does well on clean digits.
//!
//!   L_T = mean of sigmoid(λᵢ)·(cross entropy of training digit i) + decay·‖θ‖²
//!   f   = mean cross entropy of the clean digits

use crate::digits::{CLASSES, DigitSource, Part, share_right};
use bilevel::graph::Executor;
use bilevel::graph::nn::{cross_entropy, cross_entropy_rows, relu, sigmoid};
use bilevel::observers::StopSignal;
use bilevel::optimizers::Momentum;
use bilevel::{Array, DType, Error, InnerLoop, Key, Problem, Result, Scope, Tensor, Tree, Variable};
use bilevel_data::prepare::uniform_labels;
use bilevel_models::{Activation, Linear, Mlp, MlpConfig, init::zeros};
use bilevel_run::{Context, Defaults, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
    /// digits (embedded) or mnist (from --data)
    pub source: DigitSource,
    /// digits to train on
    pub train: usize,
    /// digits known to be clean
    pub clean: usize,
    /// test digits
    pub test: usize,
    /// the part of the training labels that are drawn again, from all ten classes
    pub corrupted: f64,
    /// hidden units, with a sigmoid each; 0 for a linear classifier
    pub hidden: usize,
    /// λ at the start; a digit is distrusted if λ is below 0
    pub start: f64,
    /// weight decay; without a little of it the classifier fits wrong labels of any weight
    pub decay: f64,
    /// rows of a minibatch of either loss; 0 for all
    pub batch: usize,
}

impl Default for HyperCleaning {
    fn default() -> Self {
        HyperCleaning {
            source: DigitSource::Digits,
            train: 599,
            clean: 100,
            test: 599,
            corrupted: 0.4,
            hidden: 0,
            start: 0.0,
            decay: 5e-4,
            batch: 0,
        }
    }
}

impl HyperCleaning {
    /// The published experiment: 5000 digits of MNIST to train on, half of them with labels drawn again, 5000 that are clean, and 10 000
    /// to judge by.
    pub fn mnist(hidden: usize) -> Self {
        HyperCleaning {
            source: DigitSource::Mnist,
            train: 5000,
            clean: 5000,
            test: 10_000,
            corrupted: 0.5,
            hidden,
            ..HyperCleaning::default()
        }
    }

    fn model(&self) -> Result<Mlp<Variable>> {
        let (pixels, activation) = (self.source.pixels(), Activation::Sigmoid);
        match self.hidden {
            0 => {
                let only = Linear { weight: zeros([pixels, CLASSES]), bias: None };
                Ok(Mlp { layers: vec![only], activation })
            }
            hidden => Ok(MlpConfig { widths: vec![pixels, hidden, CLASSES], activation }.build()?),
        }
    }

    fn check(&self) -> Result<()> {
        for (name, value) in [("corrupted", self.corrupted), ("decay", self.decay)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(Error::setting(name, value, "from 0 to 1"));
            }
        }
        if !(-20.0..=20.0).contains(&self.start) {
            return Err(Error::setting("start", self.start, "from -20 to 20"));
        }
        if self.batch > self.train.min(self.clean) {
            let must = "at most task.train and task.clean";
            return Err(Error::setting("batch", self.batch, must));
        }
        Ok(())
    }
}

/// Rows with their labels and weights: all of them, or a minibatch.
fn rows<const N: usize>(s: &Scope, batch: usize, more: [Tensor; N]) -> ([Tensor; 2], [Tensor; N]) {
    let both = ["x", "y"].map(|name| s.data(name));
    match batch {
        0 => (both, more),
        size => {
            let drawn = s.epochs(both[0].dim(0), size);
            (both.map(|all| all.take(drawn)), more.map(|all| all.take(drawn)))
        }
    }
}

/// 1 for a digit that is distrusted, 0 for one that is kept.
fn distrusted(lambda: &Trust<Tensor>) -> Tensor {
    (-lambda.examples).greater(0.0)
}

const CEILING: &str = "F1 of digits kept, best threshold";
/// Thresholds on the probability of a label.
const THRESHOLDS: [f64; 9] = [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5];

/// The loss of each digit.
fn losses(s: &Scope, net: &Mlp<Tensor>) -> Tensor {
    cross_entropy_rows(net.forward(s.data("x")), s.data("y"))
}

/// The largest F1 of kept digits if those are distrusted to whose label the classifier gives less than a threshold.
fn ceiling(s: &Scope, net: &Mlp<Tensor>) -> Tensor {
    let loss = losses(&s.part(bilevel::splits::Part::Train), net);
    let truth = (1.0 - s.data("redrawn")) * s.data("judged");
    let each = |p: &f64| f1((-loss).greater(p.ln()) * s.data("judged"), truth);
    let all = THRESHOLDS.iter().map(each);
    // The larger of a and b is a + max(b − a, 0).
    all.reduce(|a, b| a + relu(b - a)).unwrap_or(s.graph().constant(0.0, [], s.dtype()))
}

/// 2·(right finds)/(finds + all there is to find).
fn f1(found: Tensor, truth: Tensor) -> Tensor {
    (found * truth).sum_all() * 2.0 / (found.sum_all() + truth.sum_all())
}

/// The digits with some labels drawn again, and which of them were, and which of those are wrong.
struct Parts {
    train: Part,
    clean: Part,
    test: Part,
    redrawn: Vec<bool>,
    wrong: Vec<bool>,
    /// Which of the training digits are asked about: all, but for clean ones among them.
    judged: Vec<bool>,
}

type Cleaning = Problem<Trust<Variable>, Mlp<Variable>>;

impl HyperCleaning {
    fn parts(&self, context: &Context) -> Result<Parts> {
        let [mut train, clean, test] = self.source.parts([self.train, self.clean, self.test], context)?;
        // The digits are in a random order, so the first ones are as good as any.
        let redrawn = (self.corrupted * self.train as f64).round() as usize;
        let noisy = uniform_labels(&train.labels[..redrawn], CLASSES, 1.0, Key::from_seed(context.seed))?;
        train.labels[..redrawn].copy_from_slice(&noisy.labels);
        // A label drawn again may happen to be the right one; then it is not wrong.
        let mut wrong = noisy.wrong;
        wrong.resize(self.train, false);
        let redrawn = (0..self.train).map(|row| row < redrawn).collect();
        Ok(Parts { train, clean, test, redrawn, wrong, judged: vec![true; self.train] })
    }

    fn problem(&self, Parts { train, clean, test, redrawn, wrong, judged }: Parts, dtype: DType) -> Result<Cleaning> {
        let marks = |marked: Vec<bool>| {
            let marks: Vec<f64> = marked.into_iter().map(|mark| f64::from(u8::from(mark))).collect();
            Array::from_f64([marks.len()], marks)
        };
        let (decay, batch) = (self.decay, self.batch);
        let of = [bilevel::splits::Part::Train, bilevel::splits::Part::Validation, bilevel::splits::Part::Test];
        let examples = Variable::constant([train.labels.len()], self.start);
        let labels = [train.y()?, clean.y()?, test.y()?];
        Problem::builder(Trust { examples }, self.model()?)
            .dtype(dtype)
            .parts("y", of.into_iter().zip(labels))
            .parts("x", of.into_iter().zip([train.x, clean.x, test.x]))
            .data("redrawn", marks(redrawn)?)
            .data("wrong", marks(wrong)?)
            .data("judged", marks(judged)?)
            .inner(move |s, l, t| {
                let ([x, y], [trust]) = rows(s, batch, [l.examples]);
                let squares = t.leaves().into_iter().map(|leaf| leaf.square().sum_all());
                let size = squares.reduce(|a, b| a + b).unwrap_or(s.graph().constant(0.0, [], s.dtype()));
                // Without a little decay the classifier would fit wrong labels of any weight.
                (sigmoid(trust) * cross_entropy_rows(t.forward(x), y)).mean_all() + size * decay
            })
            .outer(move |s, _, t| {
                let ([x, y], []) = rows(s, batch, []);
                cross_entropy(t.forward(x), y)
            })
            .outer_rows(|s, _, t| losses(s, t))
            .measure("clean loss", |s, _, t| losses(s, t).mean_all())
            .measure("test loss", |s, _, t| losses(&s.part(bilevel::splits::Part::Test), t).mean_all())
            .measure("test accuracy", |s, _, t| {
                let s = s.part(bilevel::splits::Part::Test);
                share_right(t.forward(s.data("x")), s.data("y"))
            })
            .measure("F1 of digits kept", |s, l, _| f1(1.0 - distrusted(l), 1.0 - s.data("redrawn")))
            .measure(CEILING, |s, _, t| ceiling(s, t))
            .measure("F1 of redrawn labels", |s, l, _| f1(distrusted(l), s.data("redrawn")))
            .measure("F1 of wrong labels", |s, l, _| f1(distrusted(l), s.data("wrong")))
            .measure("wrong labels found", |s, l, _| {
                (distrusted(l) * s.data("wrong")).sum_all() / s.data("wrong").sum_all()
            })
            .build()
    }

    /// The test accuracy of a classifier trained from its start on the clean digits and the training digits that λ
    /// keeps, all with the same weight: the purpose of cleaning. Also the F1 of digits kept by the best threshold on
    /// the probability that this classifier gives the label, a threshold that requires the truth.
    pub fn retrained(&self, lambda: &[f64], context: &Context, training: Retraining) -> Result<(f64, f64)> {
        let Parts { train, clean, test, mut redrawn, mut judged, .. } = self.parts(context)?;
        let count = train.labels.len() + clean.labels.len();
        let pixels = [train.x.to_f64(), clean.x.to_f64()].concat();
        let together = Part {
            x: Array::from_values([count, self.source.pixels()], &pixels, clean.x.dtype())?,
            labels: [train.labels, clean.labels.clone()].concat(),
        };
        let known = std::iter::repeat_n(1.0, clean.labels.len());
        let trust = lambda.iter().map(|l| if *l < 0.0 { -SURE } else { SURE }).chain(known.map(|one| one * SURE));
        let examples = Array::from_values([count], &trust.collect::<Vec<_>>(), context.dtype)?;
        redrawn.resize(count, false);
        judged.resize(count, false);
        let parts = Parts { train: together, clean, test, redrawn, wrong: vec![true; count], judged };
        let whole = self.problem(parts, context.dtype)?;
        let Retraining { inner, seed, executor, signal } = training;
        let lambda = Trust { examples };
        let training = whole.train(&lambda).inner(inner).optimizer(Momentum::default());
        let measures = training.seed(seed).executor(executor).stop_signal(signal).run()?.measures;
        let number = |name: &str| measures.get(name).copied().unwrap_or(f64::NAN);
        Ok((number("test accuracy"), number(CEILING)))
    }
}

/// How a classifier is trained once more.
pub struct Retraining {
    /// The training, but for its optimizer, which is momentum.
    pub inner: InnerLoop,
    /// The seed of the start.
    pub seed: u64,
    /// The executor of the training.
    pub executor: Arc<dyn Executor>,
    /// Set if it should stop.
    pub signal: StopSignal,
}

/// A trust of 1, but for one in ten million.
const SURE: f64 = 16.0;

impl Task for HyperCleaning {
    const NAME: &'static str = "hyper-cleaning";
    const SUMMARY: &'static str = "a weight for each training digit, small for wrong labels";

    fn build(&self, context: &Context) -> Result<Problem> {
        self.check()?;
        Ok(self.problem(self.parts(context)?, context.dtype)?.erase())
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            inner: InnerLoop::new(0.4, 20).at_temperature(1e-6),
            curvature: 1.0,
            iterations: 200,
            dtype: DType::F32,
            ..Defaults::default()
        }
    }

    fn reads_data(&self) -> bool {
        self.source == DigitSource::Mnist
    }
}
