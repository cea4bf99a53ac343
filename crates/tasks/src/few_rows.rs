//! A penalty for each weight of a small model that has few rows: more hyperparameters than the rows can support.
//!
//!   L_T = mean loss of the training rows + Σ e^λᵢ·θᵢ²,   f = mean loss of the validation rows
//!
//! The loss is the cross entropy of a linear model or of one hidden layer; biases have no penalty. Labelled rows are divided in half unless
//! the settings say otherwise. The number of labelled rows is the same for every way to choose λ, so that these can be
//! compared.

use crate::digits::Digits;
use bilevel::graph::nn::{cross_entropy_rows, gaussian_prior, softplus};
use bilevel::methods::AnyMethod;
use bilevel::splits::{Part, Rows, Split};
use bilevel::{Array, DType, Error, InnerLoop, Problem, Result, Scope, Tensor, Tree, Variable};
use bilevel_data::datasets::{abalone, adult, ijcnn1};
use bilevel_data::readers::{csv, libsvm};
use bilevel_run::{Context, Defaults, Kept, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The source of the rows. All but digits are read from `--data`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RowSource {
    /// embedded digits, ten classes, 64 features
    #[default]
    Digits,
    /// a9a: two classes, 123 features
    A9a,
    /// ijcnn1: two classes, 22 features
    Ijcnn1,
    /// heart_scale: two classes, 13 features
    Heart,
    /// abalone: more than nine rings or not, 8 features
    Abalone,
    /// breast cancer: two classes, 30 features
    BreastCancer,
    /// wine: three classes, 13 features
    Wine,
    /// MNIST's training file at 7 by 7 pixels: ten classes, 49 features
    Mnist,
}

/// Penalties for the weights of a model with few rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FewRows {
    /// digits (embedded); a9a, ijcnn1, heart, abalone, breast-cancer, wine or mnist (from --data)
    pub source: RowSource,
    /// rows with labels
    pub rows: usize,
    /// the part of them to train on; the others are for validation
    pub train: f64,
    /// every class in every part as often as among all rows
    pub stratified: bool,
    /// test rows, at most the number of the remaining ones
    pub test: usize,
    /// units of a hidden layer; 0 for a linear model
    pub hidden: usize,
    /// logarithm of every penalty at the start
    pub start: f64,
    /// validation rows of a minibatch of the outer loss; 0 for all
    pub outer_batch: usize,
}

impl Default for FewRows {
    fn default() -> Self {
        FewRows {
            source: RowSource::Digits,
            rows: 200,
            train: 0.5,
            stratified: true,
            test: 1000,
            hidden: 0,
            start: -5.0,
            outer_batch: 0,
        }
    }
}

/// λ: the logarithm of the penalty of each weight, layer by layer.
#[derive(Clone, Tree)]
#[tree(crate = "bilevel::graph")]
pub struct WeightPenalties<T> {
    /// In the shapes of the weights.
    pub layers: Vec<T>,
}

/// θ: the layers of the model.
#[derive(Clone, Tree)]
#[tree(crate = "bilevel::graph")]
pub struct SmallModel<T> {
    /// `[in, out]`.
    pub weights: Vec<T>,
    /// `[out]`.
    pub biases: Vec<T>,
}

/// Penalties of a small model.
pub type FewRowsProblem = Problem<WeightPenalties<Variable>, SmallModel<Variable>>;

impl SmallModel<Tensor> {
    fn forward(&self, x: Tensor) -> Tensor {
        let last = self.weights.len() - 1;
        let layer = |x: Tensor, (i, (weight, bias)): (usize, (&Tensor, &Tensor))| {
            let z = x.matmul(*weight) + *bias;
            if i < last { z.tanh() } else { z }
        };
        self.weights.iter().zip(&self.biases).enumerate().fold(x, layer)
    }
}

/// Features and classes, row by row.
struct Labelled {
    width: usize,
    features: Vec<f64>,
    classes: Vec<i32>,
}

impl FewRows {
    /// The problem of a split: labelled rows and test rows are drawn by the seed.
    pub fn typed(&self, context: &Context) -> Result<FewRowsProblem> {
        // A study uses the same rows many times.
        static KEPT: Kept<Labelled> = Kept::new(2);
        let all = KEPT.get(format!("{:?} {:?}", self.source, context.data), || self.labelled(context))?;
        let count = all.classes.len();
        if !(8..count).contains(&self.rows) {
            return Err(Error::setting("rows", self.rows, "at least 8 and below the number of rows there are"));
        }
        if self.test == 0 {
            return Err(Error::setting("test", self.test, "at least 1"));
        }
        let (test, train) = (self.test.min(count - self.rows), (self.train * self.rows as f64).floor());
        if !(1.0..self.rows as f64).contains(&train) {
            return Err(Error::setting("train", self.train, "between 0 and 1, with a row left for either part"));
        }
        let train = train as usize;
        let split = Split {
            train: train.into(),
            validation: (self.rows - train).into(),
            held_out: 0.into(),
            test: test.into(),
            seed: context.seed,
        };
        let rows = if self.stratified { split.stratified(&all.classes)? } else { split.rows(count)? };
        self.of(&all, &rows, context)
    }

    fn of(&self, all: &Labelled, rows: &Rows, context: &Context) -> Result<FewRowsProblem> {
        let Labelled { width, features, classes } = all;
        let outer_batch = self.outer_batch;
        let (width, count) = (*width, classes.len());
        let kinds = classes.iter().max().map_or(0, |most| *most as usize + 1);
        let outputs = if kinds == 2 { 1 } else { kinds };
        let widths: Vec<usize> = match self.hidden {
            0 => vec![width, outputs],
            hidden => vec![width, hidden, outputs],
        };
        let shapes: Vec<[usize; 2]> = widths.windows(2).map(|two| [two[0], two[1]]).collect();
        let penalty =
            |shape: &[usize; 2]| Variable::constant(shape, self.start).at_least(-12.0).at_most(1.0).log_penalty();
        // A linear model is convex and starts at 0.
        let weight = |shape: &[usize; 2]| match self.hidden {
            0 => Variable::constant(shape, 0.0),
            _ => Variable::normal(shape, (1.0 / shape[0] as f64).sqrt()),
        };
        let model = SmallModel {
            weights: shapes.iter().map(weight).collect(),
            biases: shapes.iter().map(|shape| Variable::constant([shape[1]], 0.0)).collect(),
        };
        let losses = move |s: &Scope, t: &SmallModel<Tensor>| {
            let z = t.forward(s.data("x"));
            match outputs {
                1 => softplus(-(z.reshape([z.len()]) * s.data("sign"))),
                _ => cross_entropy_rows(z, s.data("y")),
            }
        };
        let wrong = move |s: &Scope, t: &SmallModel<Tensor>| {
            let z = t.forward(s.data("x"));
            match outputs {
                1 => (-(z.reshape([z.len()]) * s.data("sign"))).greater_equal(0.0).mean_all(),
                _ => 1.0 - crate::digits::share_right(z, s.data("y")),
            }
        };
        let signs = classes.iter().map(|class| f64::from(2 * class - 1)).collect();
        let builder = Problem::builder(WeightPenalties { layers: shapes.iter().map(penalty).collect() }, model)
            .dtype(context.dtype)
            .table("x", Array::from_f64([count, width], standardised(features, width, rows))?, rows)
            .table("y", Array::from_i32([count], classes.clone())?, rows)
            .table("sign", Array::from_f64([count], signs)?, rows)
            .measure("test loss", move |s, _, t| losses(&s.part(Part::Test), t).mean_all())
            .measure("test error", move |s, _, t| wrong(&s.part(Part::Test), t));
        if context.evidence {
            // The number of all rows with labels.
            let labelled = self.rows as f64;
            return builder
                .inner(move |s, l, t| {
                    let pairs = l.layers.iter().zip(&t.weights);
                    let priors = pairs.map(|(l, t)| gaussian_prior(*t, l.exp() * (2.0 * labelled)));
                    priors.fold(losses(s, t).mean_all(), |sum, prior| sum + prior / labelled)
                })
                .outer_rows(move |s, _, t| losses(s, t))
                .evidence()
                .build();
        }
        builder
            .inner(move |s, l, t| {
                let penalties = l.layers.iter().zip(&t.weights).map(|(l, t)| (l.exp() * t.square()).sum_all());
                penalties.fold(losses(s, t).mean_all(), |sum, penalty| sum + penalty)
            })
            .outer(move |s, _, t| {
                let all = losses(s, t);
                match outer_batch.min(all.len()) {
                    0 => all.mean_all(),
                    batch => all.take(s.epochs(all.len(), batch)).mean_all(),
                }
            })
            .outer_rows(move |s, _, t| losses(s, t))
            .build()
    }

    fn labelled(&self, context: &Context) -> Result<Labelled> {
        let folder = || context.data_dir("few-rows");
        let of = |table: bilevel_data::Table, class: fn(f64) -> i32| Labelled {
            width: table.columns,
            features: table.values,
            classes: table.targets.iter().map(|target| class(*target)).collect(),
        };
        let sign = |target: f64| i32::from(target > 0.0);
        let toy = |name: &str| {
            let format = csv::Format { header: csv::Header::Skip(1), ..csv::Format::default() };
            Ok::<_, Error>(csv::read(folder()?.join("sklearn-toy").join(name), &format)?)
        };
        Ok(match self.source {
            RowSource::Digits => {
                let digits = Digits::all();
                let features = digits.pixels.iter().map(|pixel| f64::from(*pixel)).collect();
                Labelled { width: crate::digits::PIXELS, features, classes: digits.labels }
            }
            RowSource::A9a => of(adult::load(folder()?)?.0, sign),
            RowSource::Ijcnn1 => of(ijcnn1::load(folder()?)?.0, sign),
            RowSource::Heart => {
                let path = folder()?.join("libsvm").join("heart_scale");
                of(libsvm::read(path, libsvm::FirstIndex::One)?.to_table(Some(13))?, sign)
            }
            RowSource::Abalone => of(abalone::load(folder()?)?, |rings| i32::from(rings > 9.5)),
            RowSource::BreastCancer => of(toy("breast_cancer.csv")?, |class| class as i32),
            RowSource::Wine => of(toy("wine_data.csv")?, |class| class as i32),
            RowSource::Mnist => {
                let (width, features, classes) = crate::digits::small_mnist(context, "few-rows")?;
                Labelled { width, features, classes }
            }
        })
    }

    /// γ for the curvature of the mean loss on standardised features.
    fn step(&self) -> f64 {
        match self.source {
            RowSource::Digits | RowSource::Mnist => 0.1,
            _ => 0.2,
        }
    }
}

/// Features with the mean 0 and the variance 1 over the labelled rows; one that is the same in all of them is 0.
fn standardised(features: &[f64], width: usize, rows: &Rows) -> Vec<f64> {
    let labelled: Vec<usize> =
        [Part::Train, Part::Validation].iter().flat_map(|part| rows.of(*part).to_vec()).collect();
    let count = labelled.len() as f64;
    let moments = (0..width).map(|j| {
        let values = || labelled.iter().map(|row| features[row * width + j]);
        let mean = values().sum::<f64>() / count;
        (mean, values().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count)
    });
    let moments: Vec<(f64, f64)> = moments.collect();
    let place = |(i, v): (usize, &f64)| {
        let (mean, variance) = moments[i % width];
        // Ten standard deviations are as far as a row may be from the others.
        if variance > 0.0 { ((v - mean) / variance.sqrt()).clamp(-10.0, 10.0) } else { 0.0 }
    };
    features.iter().enumerate().map(place).collect()
}

impl Task for FewRows {
    const NAME: &'static str = "few-rows";
    const SUMMARY: &'static str = "a penalty for each weight of a small model, with few rows";

    fn build(&self, context: &Context) -> Result<Problem> {
        self.typed(context).map(Problem::erase)
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            inner: InnerLoop::new(self.step(), 20).at_temperature(1e-6),
            curvature: 1.0 / self.step(),
            rate: 0.1,
            iterations: 200,
            dtype: DType::F64,
            ..Defaults::default()
        }
    }

    fn tune(&self, method: &mut AnyMethod, inner: &mut InnerLoop) {
        if let AnyMethod::Evidence(_) = method {
            *inner = InnerLoop { burn_in: 0, ..*inner }.at_temperature(1.0 / self.rows as f64);
        }
    }

    fn reads_data(&self) -> bool {
        self.source != RowSource::Digits
    }
}
