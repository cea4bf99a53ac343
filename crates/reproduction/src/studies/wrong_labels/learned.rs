//! Two ways to learn which labels to trust, from few clean rows: how often each class is mistaken for each other, and a weight per row.
//!
//! Confusions, a hundred hyperparameters for 599 doubtful rows: with T = softmax of λ along rows, T_kg is the probability that a digit of
//! the class k is given the label g, and a doubtful row counts by the probability of the label that it is given,
//!
//!   L_T = (Σ −ln Σ_k p_k(x)·T_kg over doubtful rows + Σ −ln p_y(x) over clean training rows)/n + decay·‖θ‖²
//!   f   = mean of −ln p_y(x) over clean validation rows
//!
//! Weights, a hyperparameter for each doubtful row: Σ sigmoid(λᵢ)·(−ln p_g(x)) takes the place of the first sum.
//!
//! Five folds of the clean rows train and judge in turn, so that each of them does both.

use super::labels::Labelled;
use bilevel::graph::nn::{cross_entropy_rows, log_softmax, logsumexp, sigmoid};
use bilevel::methods::AnyMethod;
use bilevel::optimizers::{Adam, Momentum};
use bilevel::splits::Rows;
use bilevel::{Array, DType, Driver, InnerLoop, Leaf, Problem, Result, Scope, Tensor, Tree, Variable};
use bilevel_run::Place;
use bilevel_tasks::digits::{CLASSES, SHAPE};
use serde::Serialize;

/// The share of labels that the start takes for right.
const START: f64 = 0.5;
/// Folds of the clean rows.
const FOLDS: usize = 5;

/// How the hyperparameters are learned.
#[derive(Clone, Debug, Serialize)]
pub struct Learning {
    /// The method.
    pub method: AnyMethod,
    /// Its inner loop.
    pub inner: InnerLoop,
    /// Outer iterations.
    pub iterations: u32,
    /// The rate of Adam, which moves λ.
    pub rate: f64,
    /// Decay of the classifier.
    pub decay: f64,
}

type Cleaning = Problem<Leaf<Variable>, Leaf<Variable>>;

/// The loss of each clean row that the scope sees.
fn clean_losses(s: &Scope, t: &Leaf<Tensor>) -> Tensor {
    cross_entropy_rows(s.data("x").matmul(t.0), s.data("y"))
}

/// The problem, where `doubtful` is the sum of the losses of doubtful rows.
fn problem(
    labelled: &Labelled,
    lambda: Variable,
    decay: f64,
    doubtful: impl Fn(&Scope, Tensor, Tensor) -> Tensor + Send + Sync + 'static,
) -> Result<Cleaning> {
    let (doubts, clean) = (labelled.doubtful.len(), labelled.clean.len());
    let rows = Rows::given(0..clean / 2, clean / 2..clean);
    Problem::builder(Leaf(lambda), Leaf(Variable::constant(SHAPE, 0.0)))
        .dtype(DType::F32)
        .data("doubtful x", labelled.doubtful.x()?)
        .data("doubtful y", labelled.doubtful.y()?)
        .table("x", labelled.clean.x()?, &rows)
        .table("y", labelled.clean.y()?, &rows)
        .inner(move |s, l, t| {
            let trusted = clean_losses(s, t);
            let count = (doubts + trusted.len()) as f64;
            (doubtful(s, l.0, t.0) + trusted.sum_all()) / count + t.0.square().sum_all() * decay
        })
        .outer_rows(|s, _, t| clean_losses(s, t))
        .build()
}

/// −ln Σ_k p_k(x)·T_kg, summed over doubtful rows.
fn mixture(s: &Scope, lambda: Tensor, theta: Tensor) -> Tensor {
    let p = log_softmax(s.data("doubtful x").matmul(theta), 1);
    -logsumexp(p + log_softmax(lambda, 1).t().take(s.data("doubtful y")), 1).sum_all()
}

/// sigmoid(λᵢ)·(−ln p_g(x)), summed over doubtful rows.
fn weighted(s: &Scope, lambda: Tensor, theta: Tensor) -> Tensor {
    (sigmoid(lambda) * cross_entropy_rows(s.data("doubtful x").matmul(theta), s.data("doubtful y"))).sum_all()
}

/// λ of a table of probabilities, none of which is so small that its derivative is lost.
fn logarithms(table: &[f64]) -> Vec<f64> {
    table.iter().map(|p| p.max(1e-3).ln()).collect()
}

/// Confusions T, row by row, and a classifier trained by them.
pub struct Confusions {
    /// The probability that a digit of the class k is given the label g, at k·10 + g.
    pub table: Vec<f64>,
    /// The weights of the classifier.
    pub weights: Array,
}

impl Confusions {
    /// Learned from the clean rows; at the start every wrong label is equally likely.
    pub fn learned(labelled: &Labelled, learning: &Learning, place: &Place) -> Result<Self> {
        let other = (1.0 - START) / (CLASSES - 1) as f64;
        let table = (0..CLASSES * CLASSES).map(|i| if i % (CLASSES + 1) == 0 { START } else { other });
        let table: Vec<f64> = table.collect();
        let lambda = Variable::fixed(Array::from_values([CLASSES, CLASSES], &logarithms(&table), DType::F32)?);
        let problem = problem(labelled, lambda, learning.decay, mixture)?;
        let lambda = learning.run(&problem, place)?;
        Self::with(&problem, lambda, place)
    }

    /// Of this table, with a classifier that is trained by it.
    pub fn given(labelled: &Labelled, table: &[f64], decay: f64, place: &Place) -> Result<Self> {
        let variable = Variable::constant([CLASSES, CLASSES], 0.0);
        Self::with(&problem(labelled, variable, decay, mixture)?, logarithms(table), place)
    }

    fn with(problem: &Cleaning, lambda: Vec<f64>, place: &Place) -> Result<Self> {
        let table = lambda.chunks_exact(CLASSES).flat_map(softmax).collect();
        let lambda = Leaf(Array::from_values([CLASSES, CLASSES], &lambda, DType::F32)?);
        let all = problem.on_all_rows()?;
        let training = all.train(&lambda).inner(last_training()).executor(place.executor.clone());
        let trained = training.stop_signal(place.signal.clone()).run()?;
        Ok(Confusions { table, weights: trained.theta.0 })
    }

    /// The probability that the label of each doubtful row is right: p_g·T_gg / Σ_k p_k·T_kg.
    pub fn trust(&self, labelled: &Labelled) -> Vec<f64> {
        let probabilities = super::classifier::probabilities(&labelled.doubtful, &self.weights);
        let one = |(p, given): (Vec<f64>, &i32)| {
            let given = *given as usize;
            let of = |class: usize| p[class] * self.table[class * CLASSES + given];
            of(given) / (0..CLASSES).map(of).sum::<f64>()
        };
        probabilities.into_iter().zip(&labelled.doubtful.labels).map(one).collect()
    }
}

/// The weight of each doubtful row, learned from the clean ones.
pub fn row_weights(labelled: &Labelled, learning: &Learning, place: &Place) -> Result<Vec<f64>> {
    let lambda = Variable::constant([labelled.doubtful.len()], 0.0).at_least(-16.0).at_most(16.0);
    let lambda = learning.run(&problem(labelled, lambda, learning.decay, weighted)?, place)?;
    Ok(lambda.into_iter().map(|l| 1.0 / (1.0 + (-l).exp())).collect())
}

impl Learning {
    /// λ after all outer iterations.
    fn run(&self, problem: &Cleaning, place: &Place) -> Result<Vec<f64>> {
        let folded = problem.folded(FOLDS, 0.0, 0)?;
        let driver = Driver::new(&folded, self.method.clone()).inner(self.inner).executor(place.executor.clone());
        let driver = driver.optimizer(Adam::default()).rate(self.rate).iterations(self.iterations);
        let outcome = driver.diagnose_every(0).stop_signal(place.signal.clone()).run()?;
        Ok(outcome.lambda.leaves().into_iter().flat_map(Array::to_f64).collect())
    }
}

/// The training of a classifier by known confusions.
fn last_training() -> InnerLoop {
    InnerLoop { optimizer: Momentum::default().into(), ..InnerLoop::new(0.3, 300) }
}

/// e^z over its sum.
pub fn softmax(z: &[f64]) -> Vec<f64> {
    let most = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = z.iter().map(|z| (z - most).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.into_iter().map(|e| e / sum).collect()
}
