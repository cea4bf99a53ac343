//! The cases of the study: hyperparameters and labelled rows, with the tuning, learning and final training of each.

use bilevel::InnerLoop;
use bilevel::methods::{AnyMethod, LangevinAdjoint, Rmd};
use bilevel::optimizers::{InnerOptimizer, Momentum};
use bilevel_run::{AnyTask, Plan};
use bilevel_tasks::invariance::{Dataset, Transformation};
use bilevel_tasks::{FewRows, Invariance, LayerRates, NoisyLabels, NoisySource, RowSource};
use serde::Serialize;

/// A dataset with few labelled rows, and the hyperparameters learned from them.
pub(super) struct Case {
    pub name: &'static str,
    pub learned: Learned,
    /// Splits of the rows.
    pub splits: u64,
    /// Outer iterations.
    pub iterations: u32,
    /// Whether averages, minibatches and temperatures are measured here.
    pub variations: bool,
}

/// The learned hyperparameters.
#[derive(Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Learned {
    /// The logarithm of a penalty for every weight.
    Penalties(FewRows),
    /// A weight for every row whose label may be wrong.
    Weights(NoisyLabels),
    /// How far images may be shifted, turned, scaled and sheared.
    Ranges(Invariance),
    /// A learning rate and a weight decay for each layer.
    Rates(LayerRates),
}

/// Logarithms of one penalty for all weights, the largest first.
const PENALTIES: [f64; 11] = [0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0, -9.0, -10.0];
/// One λ for all doubtful rows, whose weight is its sigmoid.
const WEIGHTS: [f64; 9] = [6.0, 4.0, 2.0, 1.0, 0.0, -1.0, -2.0, -4.0, -6.0];
/// One range for all generators.
const RANGES: [f64; 8] = [1.6, 1.2, 0.8, 0.4, 0.2, 0.1, 0.05, 0.025];
/// One logarithm of a rate for all layers, and one of a weight decay.
const RATES: [f64; 4] = [1.0, 0.0, -1.0, -2.0];
const DECAYS: [f64; 4] = [-3.0, -5.0, -7.0, -9.0];

/// How a value of λ is made from one number for all and a pattern.
#[derive(Clone, Copy)]
pub(super) enum Pattern {
    /// μ + s·δ, with δ the offsets of the pattern from its mean.
    Around,
    /// s times the pattern.
    Times,
}

impl Learned {
    pub fn task(&self) -> &dyn AnyTask {
        match self {
            Learned::Penalties(task) => task,
            Learned::Weights(task) => task,
            Learned::Ranges(task) => task,
            Learned::Rates(task) => task,
        }
    }

    /// Rows with labels.
    pub fn rows(&self) -> usize {
        match self {
            Learned::Penalties(task) => task.rows,
            Learned::Weights(task) => task.doubtful + task.trusted,
            Learned::Ranges(task) => task.images,
            Learned::Rates(task) => task.train + task.clean,
        }
    }

    /// Values to tune over, for each leaf of λ or, if there is only one, for all.
    pub fn grid(&self) -> Vec<Vec<f64>> {
        let each = |values: &[f64]| values.iter().map(|value| vec![*value]).collect();
        match self {
            Learned::Penalties(_) => each(&PENALTIES),
            Learned::Weights(_) => each(&WEIGHTS),
            Learned::Ranges(_) => each(&RANGES),
            Learned::Rates(_) => RATES.iter().flat_map(|rate| DECAYS.map(|decay| vec![*rate, decay])).collect(),
        }
    }

    /// λ that is as good as none.
    pub fn none(&self) -> Vec<f64> {
        match self {
            Learned::Penalties(_) => vec![-12.0],
            // Every row counts alike.
            Learned::Weights(_) => vec![16.0],
            Learned::Ranges(_) => vec![0.0],
            // The task's own rate, and no decay.
            Learned::Rates(_) => vec![0.0, -15.0],
        }
    }

    /// The start of learning for this tuned value: a weight near 0 or 1 hardly moves, and a range of 0 is a saddle.
    pub fn start(&self, tuned: &[f64]) -> Vec<f64> {
        match self {
            Learned::Weights(_) => tuned.iter().map(|value| value.clamp(-2.0, 2.0)).collect(),
            Learned::Ranges(_) => tuned.iter().map(|value| value.max(0.1)).collect(),
            _ => tuned.to_vec(),
        }
    }

    /// The start of λ if the evidence judges it.
    pub fn start_by_evidence(&self) -> Vec<f64> {
        match self {
            Learned::Penalties(task) => vec![task.start],
            Learned::Weights(_) => vec![1.0],
            Learned::Ranges(_) => vec![0.2],
            Learned::Rates(_) => vec![],
        }
    }

    /// Returns true if there is a likelihood that depends on λ; the learning rates of a training are in none.
    pub fn has_evidence(&self) -> bool {
        !matches!(self, Learned::Rates(_))
    }

    pub fn pattern(&self) -> Pattern {
        match self {
            Learned::Ranges(_) => Pattern::Times,
            _ => Pattern::Around,
        }
    }

    /// Standard deviations of λ around one value, among which held-out rows choose.
    pub fn deviations(&self) -> [f64; 3] {
        match self {
            Learned::Ranges(_) => [0.05, 0.2, 0.8],
            _ => [0.1, 0.4, 1.6],
        }
    }

    /// The rate of λ.
    pub fn rate(&self) -> f64 {
        match self {
            Learned::Ranges(_) => 0.02,
            Learned::Rates(_) => 0.05,
            _ => 0.1,
        }
    }

    /// Returns true if every training starts from scratch.
    pub fn is_cold(&self) -> bool {
        matches!(self, Learned::Rates(_))
    }

    pub fn method(&self) -> AnyMethod {
        match self {
            Learned::Rates(_) => AnyMethod::Rmd(Rmd::default()),
            _ => AnyMethod::LangevinAdjoint(LangevinAdjoint::default()),
        }
    }

    /// The same with an outer loss in minibatches of this many rows.
    pub fn in_minibatches(&self, rows: usize) -> Self {
        match self {
            Learned::Penalties(task) => Learned::Penalties(FewRows { outer_batch: rows, ..task.clone() }),
            other => other.clone(),
        }
    }

    /// A last training.
    pub fn last(&self, steps: usize) -> InnerLoop {
        let inner = self.task().defaults().inner;
        match self {
            // The training whose rates are learned.
            Learned::Rates(_) => inner,
            _ => {
                let optimizer = InnerOptimizer::Momentum(Momentum::default());
                InnerLoop { step: 0.5 * inner.step, steps, optimizer, ..InnerLoop::default() }
            }
        }
    }
}

/// All cases; in quick form those on embedded digits, with fewer rows.
pub(super) fn cases(plan: &Plan) -> Vec<Case> {
    // Splits take longer in larger cases; their number was chosen before seeing any results.
    let case = |name, learned| Case {
        name,
        learned,
        splits: plan.choose(2, 5),
        iterations: plan.choose(30, 60),
        variations: false,
    };
    let small =
        |name, learned| Case { splits: plan.choose(2, 10), iterations: plan.choose(30, 100), ..case(name, learned) };
    let penalties =
        |source, rows, hidden| Learned::Penalties(FewRows { source, rows, hidden, test: 1000, ..FewRows::default() });
    let digits = case("digits, 640 λ", penalties(RowSource::Digits, plan.choose(60, 200), 0));
    let mut all = vec![Case { variations: true, ..digits }];
    if plan.is_quick() {
        return all;
    }
    let weights = |source| {
        Learned::Weights(NoisyLabels { source, doubtful: 300, trusted: 60, test: 1000, ..NoisyLabels::default() })
    };
    let ranges = Learned::Ranges(Invariance {
        dataset: Dataset::Digits,
        transformation: Transformation::Rotated90,
        images: 300,
        held_out: 0.5,
        reward: 0.0,
        batch: 50,
        draws: 4,
        hidden: 16,
        ..Invariance::default()
    });
    let rates = Learned::Rates(LayerRates { train: 150, clean: 150, test: 599, ..LayerRates::default() });
    all.push(case("digits, network, 592 λ", penalties(RowSource::Digits, 200, 8)));
    all.push(case("rotated digits, 6 ranges", ranges));
    all.push(case("digits, rates of 3 layers", rates));
    if plan.data.is_some() {
        all.extend([
            case("a9a, 123 λ", penalties(RowSource::A9a, 400, 0)),
            case("ijcnn1, 22 λ", penalties(RowSource::Ijcnn1, 300, 0)),
            small("heart, 13 λ", penalties(RowSource::Heart, 80, 0)),
            small("abalone, 8 λ", penalties(RowSource::Abalone, 100, 0)),
            small("breast cancer, 30 λ", penalties(RowSource::BreastCancer, 100, 0)),
            small("wine, 39 λ", penalties(RowSource::Wine, 60, 0)),
            case("MNIST, 300 weights", weights(NoisySource::Mnist)),
            case("CIFAR-10N, 300 weights", weights(NoisySource::Cifar10n)),
            case("MNIST, 490 λ", penalties(RowSource::Mnist, 300, 0)),
        ]);
    }
    all
}
