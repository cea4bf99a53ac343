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

/// Evenly spaced values of one number, before refinement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub low: f64,
    pub high: f64,
    pub step: f64,
}

/// The values that a baseline is tuned over: the points of a coarse grid, and then finer steps around the best of them.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub axes: Vec<Axis>,
    /// The coarse grid moves along all axes together.
    pub diagonal: bool,
}

impl Grid {
    /// The points of the coarse grid, the largest first.
    pub fn coarse(&self) -> Vec<Vec<f64>> {
        let values = |axis: &Axis| {
            let count = ((axis.high - axis.low) / axis.step).round() as usize;
            (0..=count).map(|i| axis.high - axis.step * i as f64).collect::<Vec<f64>>()
        };
        match self.diagonal {
            true => values(&self.axes[0]).into_iter().map(|value| vec![value; self.axes.len()]).collect(),
            false => self.axes.iter().fold(vec![vec![]], |points: Vec<Vec<f64>>, axis| {
                let longer = |point: &Vec<f64>| {
                    values(axis).into_iter().map(|value| [&point[..], &[value]].concat()).collect::<Vec<_>>()
                };
                points.iter().flat_map(longer).collect()
            }),
        }
    }

    /// Sizes of the finer steps, in coarse ones. From the diagonal the way to the best point may be longer.
    pub fn finer(&self) -> &'static [f64] {
        if self.diagonal { &[2.0, 1.0, 0.5, 0.25] } else { &[0.5, 0.25] }
    }

    /// A point and its neighbours at this step, the largest first, and none beyond the ends.
    pub fn around(&self, point: &[f64], step: f64) -> Vec<Vec<f64>> {
        let one = |(axis, centre): (&Axis, &f64)| {
            let mut values = [1.0, 0.0, -1.0].map(|by| (centre + by * step * axis.step).clamp(axis.low, axis.high));
            values.sort_by(|a, b| b.total_cmp(a));
            let mut values = values.to_vec();
            values.dedup();
            values
        };
        let all: Vec<Vec<f64>> = self.axes.iter().zip(point).map(one).collect();
        all.iter().fold(vec![vec![]], |points: Vec<Vec<f64>>, values| {
            let longer =
                |point: &Vec<f64>| values.iter().map(|value| [&point[..], &[*value]].concat()).collect::<Vec<_>>();
            points.iter().flat_map(longer).collect()
        })
    }

    /// Returns true if a number of this point is the first or the last of its axis.
    pub fn is_at_an_end(&self, point: &[f64]) -> bool {
        self.axes.iter().zip(point).any(|(axis, value)| *value <= axis.low || *value >= axis.high)
    }
}

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

    /// The grid to tune over, with an axis for each leaf of λ or, if there is only one, for all. Its ends are as good
    /// as none, or too much of it.
    pub fn grid(&self) -> Grid {
        let axis = |low, high, step| Axis { low, high, step };
        let (axes, diagonal) = match self {
            // Logarithms of a penalty for each layer.
            Learned::Penalties(task) => {
                (vec![axis(-14.0, 2.0, 1.0); 1 + usize::from(task.hidden > 0)], task.hidden > 0)
            }
            // One λ for all doubtful rows, whose weight is its sigmoid.
            Learned::Weights(_) => (vec![axis(-12.0, 12.0, 1.0)], false),
            // Powers of 2.
            Learned::Ranges(_) => (vec![axis(-7.0, 2.0, 1.0)], false),
            // The logarithm of a rate and that of a weight decay.
            Learned::Rates(_) => (vec![axis(-2.0, 5.0, 1.0), axis(-13.0, 1.0, 2.0)], false),
        };
        Grid { axes, diagonal }
    }

    /// The values of λ at a point of the grid.
    pub fn values_at(&self, point: &[f64]) -> Vec<f64> {
        match self {
            Learned::Ranges(_) => point.iter().map(|power| power.exp2()).collect(),
            _ => point.to_vec(),
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
            // The task's bounds of λ.
            Learned::Penalties(_) => tuned.iter().map(|value| value.clamp(-12.0, 1.0)).collect(),
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

/// Splits of the rows of every case, chosen before any result of this form of the study had been seen.
const SPLITS: u64 = 20;

/// All cases; in quick form those on embedded digits, with fewer rows.
pub(super) fn cases(plan: &Plan) -> Vec<Case> {
    let case = |name, learned| Case {
        name,
        learned,
        splits: plan.choose(2, SPLITS),
        iterations: plan.choose(30, 60),
        variations: false,
    };
    let small = |name, learned| Case { iterations: plan.choose(30, 100), ..case(name, learned) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_refined_around_its_best_point_and_knows_its_ends() {
        let axis = Axis { low: -2.0, high: 2.0, step: 1.0 };
        let one = Grid { axes: vec![axis], diagonal: false };
        assert_eq!(one.coarse(), [[2.0], [1.0], [0.0], [-1.0], [-2.0]]);
        assert_eq!(one.around(&[1.0], 0.5), [[1.5], [1.0], [0.5]]);
        assert_eq!(one.around(&[2.0], 0.5), [[2.0], [1.5]]);
        assert!(one.is_at_an_end(&[-2.0]) && !one.is_at_an_end(&[-1.75]));
        let two = Grid { axes: vec![axis; 2], diagonal: true };
        assert_eq!((two.coarse().len(), two.around(&[0.0, 0.0], 1.0).len()), (5, 9));
        assert_eq!(Grid { diagonal: false, ..two }.coarse().len(), 25);
    }
}
