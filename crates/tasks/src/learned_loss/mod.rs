//! A loss that is learned: the eight coefficients of TaylorGLO's polynomial, so chosen that a network trained with it has a low cross
//! entropy on validation pictures.

mod polynomial;
mod problem;

pub use polynomial::{COEFFICIENTS, FirstLoss, polynomial, value};
pub use problem::MEASURES;

use crate::photographs::digits;
use bilevel::graph::tree::TreeOf;
use bilevel::optimizers::{Adam, InnerOptimizer};
use bilevel::{Array, DType, Error, InnerLoop, Key, Problem, Result, Tensor, Variable};
use bilevel_data::datasets::{cifar10, cifar100};
use bilevel_data::prepare::{Normalisation, shuffled};
use bilevel_data::{LabelledImages, registry};
use bilevel_models::{AlexNet, AlexNetConfig, Mlp, MlpConfig, Statistics, WideResNet, WideResNetConfig};
use bilevel_report::{Column, Plot, Section, Table, number};
use bilevel_run::Kept;
use bilevel_run::{Context, Defaults, Task};
use bilevel_run::{LambdaLeaf, Series, figure};
use problem::{Ingredients, Parts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

/// The pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SmallPictures {
    /// 1797 digits of 8 × 8 grey pixels, embedded; a third is for testing.
    Digits,
    /// 60 000 photographs of ten classes, 32 × 32.
    Cifar10,
    /// 60 000 photographs of a hundred classes, 32 × 32.
    Cifar100,
}

/// The network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SmallNetwork {
    /// A perceptron with one hidden layer.
    Mlp,
    /// AlexNet for 32 × 32 pixels, 2.47 million parameters.
    Alexnet,
    /// Wide-ResNet 28-10, 36 million parameters.
    WideResnet,
}

/// The coefficients of a loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LearnedLoss {
    /// the pictures: digits (embedded), or cifar10 or cifar100 from the data folder
    pub pictures: SmallPictures,
    /// the network: mlp, alexnet or wide-resnet
    pub network: SmallNetwork,
    /// hidden units of the mlp
    pub hidden: usize,
    /// the loss that λ starts from: cross-entropy (expanded to second order) or brier
    pub first: FirstLoss,
    /// the part of the training pictures that λ is learned by
    pub validation: f64,
    /// pictures to train on and learn λ by, at most; 0 for all
    pub train: usize,
    /// pictures to test on, at most; 0 for all
    pub test: usize,
    /// mirror and shift the photographs of every batch at random
    pub augment: bool,
    /// pictures of a batch, in both losses
    pub batch: usize,
    /// learning rate of the inner loop by default
    pub learning_rate: f64,
    /// weight decay of the network
    pub decay: f64,
    /// train with cross entropy instead, for any λ, as a baseline
    pub plain: bool,
}

impl Default for LearnedLoss {
    fn default() -> Self {
        LearnedLoss {
            pictures: SmallPictures::Digits,
            network: SmallNetwork::Mlp,
            hidden: 32,
            first: FirstLoss::CrossEntropy,
            validation: 0.2,
            train: 0,
            test: 0,
            augment: true,
            batch: 32,
            learning_rate: 0.02,
            decay: 0.0,
            plain: false,
        }
    }
}

/// Inner steps of a hypergradient, as in the paper.
const STEPS: usize = 10;

impl LearnedLoss {
    /// AlexNet on CIFAR-10 as in the paper.
    pub fn cifar10() -> Self {
        let (pictures, network) = (SmallPictures::Cifar10, SmallNetwork::Alexnet);
        LearnedLoss { pictures, network, validation: 0.1, learning_rate: 0.01, ..LearnedLoss::default() }
    }

    /// How many classes the pictures have.
    pub fn classes(&self) -> usize {
        if self.pictures == SmallPictures::Cifar100 { 100 } else { 10 }
    }

    fn check(&self) -> Result<()> {
        for (name, count) in [("hidden", self.hidden), ("batch", self.batch)] {
            if count == 0 {
                return Err(Error::setting(name, 0_usize, "at least 1"));
            }
        }
        if !(self.decay >= 0.0 && self.decay.is_finite()) {
            return Err(Error::setting("decay", self.decay, "0 or more"));
        }
        if !(self.validation > 0.0 && self.validation < 1.0) {
            return Err(Error::setting("validation", self.validation, "between 0 and 1"));
        }
        if self.pictures == SmallPictures::Digits && self.network != SmallNetwork::Mlp {
            let reason =
                "digits are 8 × 8 grey pixels, which only the mlp takes; choose other pictures with task.pictures";
            return Err(Error::Conflict { reason: reason.into() });
        }
        Ok(())
    }

    fn parts(&self, context: &Context) -> Result<Parts> {
        let key = Key::from_seed(context.seed);
        let at_most = |count: usize, limit: usize| if limit == 0 { count } else { count.min(limit) };
        let (pool, test) = match self.pictures {
            SmallPictures::Digits => {
                let all = digits()?;
                let order = shuffled(all.count(), key);
                let (test, pool) = order.split_at(all.count() / 3);
                (all.take(pool)?, all.take(&test[..at_most(test.len(), self.test)])?)
            }
            SmallPictures::Cifar10 | SmallPictures::Cifar100 => {
                let data = context.data.as_deref().ok_or_else(|| self.pictures.missing(None))?;
                let found = self.pictures.read(data)?;
                let rows: Vec<usize> = (0..found.1.count()).collect();
                let limit = at_most(rows.len(), self.test);
                // Files may come class by class.
                let chosen = if limit == rows.len() { rows } else { shuffled(rows.len(), key)[..limit].to_vec() };
                (found.0.clone(), found.1.take(&chosen)?)
            }
        };
        let order = shuffled(pool.count(), key.fold_in(1));
        let order = &order[..at_most(order.len(), self.train)];
        let (validation, train) = order.split_at((self.validation * order.len() as f64).round() as usize);
        if validation.is_empty() || train.is_empty() {
            let reason = format!(
                "{} pictures cannot be split into training pictures and {} for λ; increase task.train",
                order.len(),
                self.validation
            );
            return Err(Error::other(reason));
        }
        Ok(Parts { train: pool.take(train)?, validation: pool.take(validation)?, test })
    }
}

impl SmallPictures {
    fn folder(self) -> &'static str {
        match self {
            SmallPictures::Digits => "digits",
            SmallPictures::Cifar10 => "cifar10",
            SmallPictures::Cifar100 => "cifar100",
        }
    }

    /// Whether they can be read.
    pub fn are_there(self, data: Option<&Path>) -> bool {
        self == SmallPictures::Digits || data.is_some_and(|data| data.join(self.folder()).is_dir())
    }

    /// The error for missing pictures, which explains how to get them.
    pub fn missing(self, data: Option<&Path>) -> Error {
        let folder = self.folder();
        let place = match data {
            Some(data) => format!("there is no folder '{folder}' in {}", data.display()),
            None => format!("the pictures of {folder} are read from a data folder, which --data DIR names"),
        };
        Error::MissingData { reason: place, remedy: format!("'bilevel data fetch {folder}' downloads them") }
    }

    /// Training and test pictures, cached: many runs of a study use the same.
    fn read(self, data: &Path) -> Result<Arc<(LabelledImages, LabelledImages)>> {
        static LAST: Kept<(LabelledImages, LabelledImages)> = Kept::new(1);
        if !self.are_there(Some(data)) {
            return Err(self.missing(Some(data)));
        }
        LAST.get(format!("{self:?} {}", data.display()), || {
            let jpeg = data.join("cifar10/cifar10_jpeg60k.tar.xz").is_file();
            let published = registry::find("cifar10")?;
            let archive = registry::check(published, data)?.iter().any(|(_, state)| state.is_fine());
            let found = match self {
                SmallPictures::Cifar100 => cifar100::load(data)?,
                _ if jpeg && !archive => cifar10::load_jpeg(data, std::env::temp_dir().join("bilevel-pictures"))?,
                _ => cifar10::load(data)?,
            };
            Ok(found)
        })
    }
}

impl Task for LearnedLoss {
    const NAME: &'static str = "learned-loss";
    const SUMMARY: &'static str = "the eight coefficients of a loss, by the cross entropy of a model trained with it";

    fn build(&self, context: &Context) -> Result<Problem> {
        self.check()?;
        let parts = self.parts(context)?;
        let (classes, dtype, batch, plain) = (parts.train.classes.len(), context.dtype, self.batch, self.plain);
        let first = Array::from_f64([COEFFICIENTS], self.first.coefficients(classes).to_vec())?;
        let coefficients = Variable::fixed(first);
        let augment = self.augment && self.pictures != SmallPictures::Digits;
        let normalisation = (self.pictures != SmallPictures::Digits)
            .then(|| Normalisation { mean: vec![0.4914, 0.4822, 0.4465], deviation: vec![0.2470, 0.2435, 0.2616] });
        let [_, channels, height, width] = parts.train.images.shape();
        match self.network {
            SmallNetwork::Mlp => {
                let count = channels * height * width;
                let model = decayed(MlpConfig::relu([count, self.hidden, classes]).build()?, self.decay)?;
                let forward = Arc::new(move |_: &bilevel::Scope, net: &Mlp<Tensor>, x: Tensor| {
                    net.forward(x.reshape([x.dim(0), count]))
                });
                Ingredients { model, forward, parts, normalisation, coefficients, batch, augment, plain, dtype }
                    .problem()
            }
            SmallNetwork::Alexnet => {
                let model = decayed(AlexNetConfig::for_32x32(classes).build()?, self.decay)?;
                let forward = Arc::new(|_: &bilevel::Scope, net: &AlexNet<Tensor>, x| net.forward(x));
                Ingredients { model, forward, parts, normalisation, coefficients, batch, augment, plain, dtype }
                    .problem()
            }
            SmallNetwork::WideResnet => {
                let model = decayed(WideResNetConfig::new(28, 10, classes).build()?, self.decay)?;
                let forward =
                    Arc::new(|s: &bilevel::Scope, net: &WideResNet<Tensor>, x| net.forward(x, Statistics::Tracked(s)));
                Ingredients { model, forward, parts, normalisation, coefficients, batch, augment, plain, dtype }
                    .problem()
            }
        }
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            inner: InnerLoop::new(self.learning_rate, STEPS).at_temperature(1e-6),
            curvature: 20.0,
            optimizer: InnerOptimizer::Adam(Adam::default()),
            rate: 0.01,
            iterations: 300,
            dtype: DType::F32,
            ..Defaults::default()
        }
    }

    fn reads_data(&self) -> bool {
        self.pictures != SmallPictures::Digits
    }

    fn show(&self, lambda: &[LambdaLeaf], _: &Context) -> Vec<Section> {
        let Some(found) = lambda.first().and_then(|leaf| <[f64; COEFFICIENTS]>::try_from(&leaf.values[..]).ok()) else {
            return vec![];
        };
        let first = self.first.coefficients(self.classes());
        let losses = [("start of λ".to_string(), first), ("learned".to_string(), found)];
        vec![
            Section::Plot(loss_plot("The learned loss", self.classes(), &losses)),
            Section::Table(loss_table(self.classes(), &losses)),
        ]
    }
}

/// A network whose trained leaves are pulled towards 0.
fn decayed<M: TreeOf<Variable>>(model: M, decay: f64) -> Result<M> {
    model.try_map_named(|_, leaf| Ok(if leaf.is_trained() { leaf.clone().weight_decay(decay) } else { leaf.clone() }))
}

/// The loss if the right class has this probability and all others share the rest.
fn along(coefficients: &[f64; COEFFICIENTS], classes: usize, p: f64) -> f64 {
    let mut probabilities = vec![(1.0 - p) / (classes.max(2) - 1) as f64; classes];
    probabilities[0] = p;
    value(coefficients, &probabilities, 0)
}

/// Losses over the probability of the right class, with that of all others shared among them, with cross entropy for
/// comparison. All are shifted to 0 at the probability 1, because a constant has no effect.
pub fn loss_plot(title: &str, classes: usize, losses: &[(String, [f64; COEFFICIENTS])]) -> Plot {
    let places = || (3..=100).map(|place| f64::from(place) / 100.0);
    let curve = |(name, coefficients): &(String, [f64; COEFFICIENTS])| -> Series {
        let end = along(coefficients, classes, 1.0);
        (name.clone(), places().map(|p| (p, along(coefficients, classes, p) - end)).collect())
    };
    let entropy: Series = ("cross entropy".into(), places().map(|p| (p, -p.ln())).collect());
    let series = std::iter::once(entropy).chain(losses.iter().map(curve)).collect();
    figure(title, "probability of the right class", "loss", series)
}

/// The steepest slope of a loss over the probability of the right class: a steeper loss is a larger step.
pub fn steepest(coefficients: &[f64; COEFFICIENTS], classes: usize) -> f64 {
    slopes(coefficients, classes).iter().fold(0f64, |most, slope| most.max(slope.abs()))
}

/// The slopes of a loss at probabilities of the right class from 0.05 to 0.94.
pub fn slopes(coefficients: &[f64; COEFFICIENTS], classes: usize) -> Vec<f64> {
    let at = |p: f64| along(coefficients, classes, p);
    (5..95).map(|place| f64::from(place) / 100.0).map(|p| (at(p + 0.005) - at(p - 0.005)) / 0.01).collect()
}

/// The coefficients of losses, and how steep they are.
pub fn loss_table(classes: usize, losses: &[(String, [f64; COEFFICIENTS])]) -> Table {
    let columns = (0..COEFFICIENTS).map(|place| Column::numeric(format!("λ{place}")));
    let columns = columns.chain([Column::numeric("steepest slope")]);
    let row = |(name, coefficients): &(String, [f64; COEFFICIENTS])| {
        let steep = number(steepest(coefficients, classes));
        std::iter::once(name.clone()).chain(coefficients.iter().map(|value| number(*value))).chain([steep]).collect()
    };
    Table {
        columns: std::iter::once(Column::text("loss")).chain(columns).collect(),
        rows: losses.iter().map(row).collect(),
        caption: "Coefficients".into(),
    }
}
