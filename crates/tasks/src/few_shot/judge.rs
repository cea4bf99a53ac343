//! How well tasks are learned: accuracy with its 95 % interval over the tasks, and how far confidence is from being right,
//!
//!   ECE = Σ over bins of (share of predictions in the bin)·|mean confidence − share that is right|,
//!
//! with 15 bins of equal width, a prediction's confidence being the probability of its class (Guo et al. 2017).

use super::learner::{Adapted, Batch, Learned};
use bilevel::{Scope, Tensor};
use serde::{Deserialize, Serialize};

/// Bins of confidence.
pub const BINS: usize = 15;

/// Predictions of one bin of confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// How many there are.
    pub count: f64,
    /// The sum of their confidences.
    pub confidence: f64,
    /// How many of them are right.
    pub right: f64,
}

/// The results on many test tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Tasks.
    pub tasks: usize,
    /// The sum of their accuracies.
    pub sum: f64,
    /// The sum of the squares of their accuracies.
    pub squares: f64,
    /// Predictions by confidence, the lowest first.
    pub bins: Vec<Bin>,
}

impl Judgement {
    /// The mean accuracy.
    ///
    /// ```
    /// use bilevel_tasks::few_shot::Judgement;
    /// let two = Judgement { tasks: 2, sum: 1.5, squares: 1.25, bins: vec![] };
    /// assert!(two.accuracy() == 0.75 && (two.interval() - 1.96 * 0.25).abs() < 1e-12);
    /// ```
    pub fn accuracy(&self) -> f64 {
        self.sum / self.tasks as f64
    }

    /// The standard deviation of accuracies between tasks.
    pub fn deviation(&self) -> f64 {
        let n = self.tasks as f64;
        ((self.squares - self.sum * self.sum / n) / (n - 1.0)).max(0.0).sqrt()
    }

    /// Half the width of the 95 % interval of the mean.
    pub fn interval(&self) -> f64 {
        1.96 * self.deviation() / (self.tasks as f64).sqrt()
    }

    /// The expected calibration error.
    ///
    /// ```
    /// use bilevel_tasks::few_shot::{Bin, Judgement};
    /// // Ten predictions of confidence 0.9, of which seven are right.
    /// let bins = vec![Bin { count: 10.0, confidence: 9.0, right: 7.0 }];
    /// assert!((Judgement { bins, ..Judgement::default() }.calibration_error() - 0.2).abs() < 1e-12);
    /// ```
    pub fn calibration_error(&self) -> f64 {
        let all: f64 = self.bins.iter().map(|bin| bin.count).sum();
        self.bins.iter().map(|bin| (bin.confidence - bin.right).abs()).sum::<f64>() / all
    }

    /// Mean confidence and the share that is right, of every bin that has predictions: the points of a reliability diagram.
    pub fn reliability(&self) -> Vec<(f64, f64)> {
        let there = self.bins.iter().filter(|bin| bin.count > 0.0);
        there.map(|bin| (bin.confidence / bin.count, bin.right / bin.count)).collect()
    }

    /// With more tasks, from the numbers of the measures below for this many.
    pub(super) fn add(&mut self, tasks: usize, numbers: &[f64]) {
        self.tasks += tasks;
        self.bins.resize(BINS, Bin::default());
        if let [sum, squares, rest @ ..] = numbers {
            self.sum += sum;
            self.squares += squares;
            for (bin, found) in self.bins.iter_mut().zip(rest.chunks(3)) {
                if let [count, confidence, right] = *found {
                    bin.count += count;
                    bin.confidence += confidence;
                    bin.right += right;
                }
            }
        }
    }
}

/// A number over the tasks of a batch.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Accuracies,
    Squares,
    Count(usize),
    Confidence(usize),
    Right(usize),
}

impl Number {
    /// All of them, in the order in which a [`Judgement`] takes them.
    pub fn all() -> impl Iterator<Item = Number> {
        let bin = |bin| [Number::Count(bin), Number::Confidence(bin), Number::Right(bin)];
        [Number::Accuracies, Number::Squares].into_iter().chain((0..BINS).flat_map(bin))
    }

    pub fn name(self) -> String {
        match self {
            Number::Accuracies => "sum of accuracies".into(),
            Number::Squares => "sum of squared accuracies".into(),
            Number::Count(bin) => format!("predictions in bin {bin}"),
            Number::Confidence(bin) => format!("confidence in bin {bin}"),
            Number::Right(bin) => format!("right in bin {bin}"),
        }
    }

    /// As a measure of a problem.
    pub fn measure(self, batch: &Batch, s: &Scope, lambda: &Learned<Tensor>, theta: &Adapted<Tensor>) -> Tensor {
        let (log_p, labels) = batch.log_predictions(s, lambda, theta);
        let right = log_p.argmax(2).equal(labels).convert(s.dtype());
        let confidence = log_p.max([2]).exp();
        let within = |bin: usize| {
            let edge = |bin: usize| bin as f64 / BINS as f64;
            let above = if bin == 0 { confidence.greater_equal(0.0) } else { confidence.greater(edge(bin)) };
            let below = if bin + 1 == BINS { above } else { above * confidence.less_equal(edge(bin + 1)) };
            below.convert(s.dtype())
        };
        match self {
            Number::Accuracies => right.mean([1]).sum_all(),
            Number::Squares => right.mean([1]).square().sum_all(),
            Number::Count(bin) => within(bin).sum_all(),
            Number::Confidence(bin) => (within(bin) * confidence).sum_all(),
            Number::Right(bin) => (within(bin) * right).sum_all(),
        }
    }
}
