//! Baselines of a learned λ, trained alike and judged on the same rows.
//!
//! | | training rows | all rows with labels |
//! |---|---|---|
//! | no λ | ✓ | |
//! | one tuned value per group | ✓ | ✓ |
//! | the λ that was learned | ✓ | ✓ |
//!
//! A group is a leaf of λ. Its value is the best of a grid by the loss on validation and held-out rows, or by folds of the training rows if
//! λ is judged by the evidence. Losses are compared row by row with
//! those of one tuned value on training rows ([`Paired`]). A training on n' rows instead of n shifts leaves that are
//! logarithms of penalties added to a mean ([`Variable::log_penalty`](crate::Variable::log_penalty)) by −ln(n'/n). So
//! the penalty keeps its share of the sum.

use crate::compiled::key::Key;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::error::require;
use crate::generalisation::row_losses::{Paired, RowLosses};
use crate::generalisation::rows::Part;
use crate::inner::inner_loop::InnerLoop;
use crate::inner::trainer::Trainer;
use crate::outer::stopping::StopSignal;
use crate::problem::AnyProblem;
use crate::problem::typed::Problem;
use crate::problem::variable::{Start, Variable};
use crate::{Error, Result};
use bilevel_cpu::Cpu;
use bilevel_graph::{Array, Executor, Tree};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Values of a grid.
const GRID: usize = 11;
/// How far a grid goes to either side of the start if a leaf has no bounds.
const REACH: f64 = 5.0;
/// Steps of a training of the grid, as a share of those of a last training: each goes on from its neighbour.
const GRID_SHARE: usize = 5;
/// The logarithm of a penalty that is as good as none, if a leaf has no lower bound.
const NO_PENALTY: f64 = -30.0;
/// Folds that choose a tuned value if there are no validation rows.
const FOLDS: usize = 5;
/// A difference of this many standard errors is no chance.
const ERRORS: f64 = 2.0;
/// Names of rows.
const LEARNED: &str = "the learned λ";
const TUNED: &str = "one tuned value";

/// Compares a λ with baselines: configure it by chaining, then [`run`](Self::run).
pub struct Comparison<'p> {
    problem: &'p AnyProblem,
    lambda: Result<Vec<Array>>,
    inner: InnerLoop,
    seed: u64,
    executor: Option<Box<dyn Executor>>,
    signal: StopSignal,
}

/// A row of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BaselineRow {
    /// The λ and the training rows, in words.
    pub name: String,
    /// Rows that were trained on.
    pub rows: usize,
    /// The mean loss on the rows that judge.
    pub loss: f64,
    /// Its difference to that of one tuned value on the training rows.
    pub difference: Paired,
}

/// How a learned λ compares with simpler ones.
///
/// ```
/// use bilevel::splits::{Part, Rows};
/// use bilevel::{Array, InnerLoop, Leaf, Problem, Variable};
/// let y = |from: f64| (0..30).map(|i| 1.0 + (from + i as f64 * 1.7).sin()).collect::<Vec<_>>();
/// let lambda = Variable::constant([], -2.0).at_least(-8.0).at_most(2.0).log_penalty();
/// let problem = Problem::builder(Leaf(lambda), Leaf(Variable::constant([], 0.0)))
///     .table("y", Array::from_f64([30], y(0.0))?, &Rows::given(0..10, 10..20).with_test(20..30))
///     .inner(|s, l, t| (s.data("y") - t.0).square().mean_all() + l.0.exp() * t.0.square())
///     .outer_rows(|s, _, t| (s.data("y") - t.0).square())
///     .build()?;
/// // A penalty that is far too large.
/// let baselines = problem.compare(&Leaf(Array::from_f64([], vec![2.0])?)).inner(InnerLoop::new(0.05, 300)).run()?;
/// assert_eq!(baselines.part, Part::Test);
/// assert!(!baselines.wins(), "{baselines}");
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Baselines {
    /// The part whose rows judge: test rows, or held-out rows if there are none, or validation rows.
    pub part: Part,
    /// The learned λ first; then one tuned value, no λ if the leaves define it, and both on all rows if λ does not
    /// belong to single rows.
    pub rows: Vec<BaselineRow>,
    /// The tuned value of each leaf.
    pub tuned: Vec<(String, f64)>,
    /// If both are also trained on all rows: the difference of the learned λ and one tuned value there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_all_rows: Option<Paired>,
}

impl Baselines {
    /// The learned λ, trained on the training rows.
    pub fn learned(&self) -> &BaselineRow {
        &self.rows[0]
    }

    /// Returns true if the learned λ is better than one tuned value by more than two standard errors on the same
    /// training rows. If both are also trained on all rows with labels, it must win there too.
    pub fn wins(&self) -> bool {
        is_less(&self.learned().difference) && self.on_all_rows.as_ref().is_none_or(is_less)
    }

    /// The result of the comparison, as a sentence.
    pub fn sentence(&self) -> String {
        let part = self.part;
        // The comparison on all rows, only if the learned λ fails there.
        let (against, Paired { mean, standard_error }) = match self.on_all_rows {
            Some(all) if is_less(&self.learned().difference) && !is_less(&all) => (" if both train on all rows", all),
            _ => ("", self.learned().difference),
        };
        let least = self.rows.iter().min_by(|a, b| a.loss.total_cmp(&b.loss));
        let best =
            least.map_or(String::new(), |best| format!("; the least loss is that of {}, {:.4}", best.name, best.loss));
        match () {
            _ if self.wins() => format!(
                "the learned λ has a {part} loss {:.4} ± {standard_error:.4} below that of one tuned value{best}",
                -mean
            ),
            _ if mean > ERRORS * standard_error => format!(
                "the learned λ does not win{against}: its {part} loss is {mean:.4} ± {standard_error:.4} above that of one \
                 tuned value{best}"
            ),
            _ => format!(
                "the learned λ does not win{against}: its {part} loss differs from that of one tuned value by {mean:+.4} ± \
                 {standard_error:.4}{best}"
            ),
        }
    }
}

/// Returns true if this is no chance.
fn is_less(difference: &Paired) -> bool {
    difference.mean < -ERRORS * difference.standard_error
}

impl fmt::Display for Baselines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        writeln!(
            f,
            "{:width$}  {:>9}  {:>10}  {:>22}",
            "",
            "rows",
            format!("{} loss", self.part),
            "against one tuned"
        )?;
        for BaselineRow { name, rows, loss, difference: Paired { mean, standard_error } } in &self.rows {
            let against = if *mean == 0.0 { "–".into() } else { format!("{mean:+.4} ± {standard_error:.4}") };
            writeln!(f, "{name:width$}  {rows:>9}  {loss:>10.4}  {against:>22}")?;
        }
        Ok(())
    }
}

impl<L, T> Problem<L, T>
where
    L: Tree<Leaf = Variable> + Clone,
    T: Tree<Leaf = Variable> + Clone,
{
    /// Compares this λ with one tuned value per leaf, and with none, on the rows of the problem's tables. Training uses
    /// the given inner loop, from the start of θ.
    ///
    /// See [`Baselines`] for an example.
    pub fn compare<'p>(&'p self, lambda: &L::With<Array>) -> Comparison<'p> {
        Comparison {
            problem: self,
            lambda: self.given_lambda(lambda),
            inner: InnerLoop::new(0.01, 1000),
            seed: 0,
            executor: None,
            signal: StopSignal::new(),
        }
    }
}

impl Comparison<'_> {
    /// Trains by this loop, with as many steps as it has.
    pub fn inner(mut self, inner: InnerLoop) -> Self {
        self.inner = inner;
        self
    }

    /// The seed of everything random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Trains on this device instead of on all cores.
    pub fn boxed_executor(mut self, executor: Box<dyn Executor>) -> Self {
        self.executor = Some(executor);
        self
    }

    /// Ends when this is set, with an error of the kind [`Stopped`](bilevel_graph::ErrorKind::Stopped).
    pub fn stop_signal(mut self, signal: StopSignal) -> Self {
        self.signal = signal;
        self
    }

    /// Trains and compares.
    pub fn run(self) -> Result<Baselines> {
        let Comparison { problem, lambda, inner, seed, executor, signal } = self;
        let lambda = lambda?;
        require(inner.steps > 0, "steps", inner.steps, "at least 1")?;
        if problem.tables.is_empty() || (problem.judged_by_evidence && problem.outer_rows.is_none()) {
            let reason = "there is nothing to compare on: the problem has no table with rows to judge by; use .table(…), and \
                          .outer_rows(…) with .evidence()";
            return Err(Error::Conflict { reason: reason.into() });
        }
        let executor = executor.unwrap_or_else(|| Box::new(Cpu::new()));
        let has = |part: &Part| problem.rows_of(*part) > 0;
        let part = [Part::Test, Part::HeldOut].into_iter().find(has).unwrap_or(Part::Validation);
        let mut trainings = Trainings::new(problem, (&*executor, signal.clone()), inner, (seed, part))?;
        let tuned = match problem.judged_by_evidence {
            false => tune(std::slice::from_mut(&mut trainings))?,
            true => {
                // All rows with labels are for training, so folds of them choose.
                let folds = problem.rows().folds(FOLDS, seed)?;
                let folds: Vec<AnyProblem> =
                    folds.iter().map(|fold| problem.with_rows(|_| Ok(fold.clone()))).collect::<Result<_>>()?;
                let one = |fold| Trainings::new(fold, (&*executor, signal.clone()), inner, (seed, Part::Validation));
                tune(&mut folds.iter().map(one).collect::<Result<Vec<_>>>()?)?
            }
        };
        let alike = |values: &[f64]| one_value(problem, values);
        let mut found = vec![(LEARNED, trainings.judge(&lambda)?), (TUNED, trainings.judge(&alike(&tuned)?)?)];
        let off: Option<Vec<f64>> = problem.lambda.iter().map(|(_, variable)| none(variable)).collect();
        if let Some(off) = off {
            found.push(("no λ", trainings.judge(&alike(&off)?)?));
        }
        let trained = problem.rows_of(Part::Train);
        let mut rows: Vec<(String, usize, Vec<f64>)> =
            found.into_iter().map(|(name, losses)| (format!("{name}, training rows"), trained, losses)).collect();
        // A λ that belongs to single rows does not fit other rows.
        if part == Part::Test
            && let Ok(whole) = problem.with_rows(|rows| Ok(rows.all_for_training()))
        {
            let all = whole.rows_of(Part::Train);
            let shift = -(all as f64 / trained as f64).ln();
            let mut trainings = Trainings::new(&whole, (&*executor, signal), inner, (seed, part))?;
            for (name, lambda) in [(LEARNED, lambda), (TUNED, alike(&tuned)?)] {
                let losses = trainings.judge(&problem.shifted(lambda, shift)?)?;
                rows.push((format!("{name}, all rows"), all, losses));
            }
        }
        let against = rows[1].2.clone();
        let all = |name: &str| rows.iter().find(|(row, _, _)| *row == format!("{name}, all rows")).map(|row| &row.2);
        let on_all_rows = all(LEARNED).zip(all(TUNED)).map(|(learned, tuned)| Paired::of(learned, tuned));
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        let compared = |(name, rows, losses): (String, usize, Vec<f64>)| BaselineRow {
            name,
            rows,
            loss: mean(&losses),
            difference: Paired::of(&losses, &against),
        };
        let names = problem.lambda.iter().map(|(name, _)| name.clone());
        Ok(Baselines {
            part,
            rows: rows.into_iter().map(compared).collect(),
            tuned: names.zip(tuned).collect(),
            on_all_rows,
        })
    }
}

/// The value at which a leaf does nothing, if that is known.
fn none(variable: &Variable) -> Option<f64> {
    let (low, _) = variable.bounds();
    variable.penalty.then_some(if low.is_finite() { low } else { NO_PENALTY })
}

/// One value everywhere in each leaf.
fn one_value(problem: &AnyProblem, values: &[f64]) -> Result<Vec<Array>> {
    let one = |((_, variable), value): (&(String, Variable), &f64)| {
        Ok(Array::try_full(&variable.shape, *value, problem.dtype)?)
    };
    problem.lambda.iter().zip(values).map(one).collect()
}

/// The values of a leaf's grid, the largest first: a training with a large penalty converges fastest.
fn grid(variable: &Variable) -> Vec<f64> {
    let (low, high) = variable.bounds();
    let start = match &variable.start {
        Start::Constant(value) => *value,
        Start::Fixed(array) => array.to_f64().iter().sum::<f64>() / array.len().max(1) as f64,
        _ => 0.0,
    };
    let low = if low.is_finite() { low } else { start - REACH };
    let high = if high.is_finite() { high } else { start + REACH };
    (0..GRID).map(|i| high - (high - low) * i as f64 / (GRID - 1) as f64).collect()
}

/// One problem on which λ are trained and judged.
struct Trainings<'p> {
    problem: &'p AnyProblem,
    state: State,
    start: State,
    key: Key,
    short: Trainer,
    long: Trainer,
    chosen_by: Vec<RowLosses>,
    judge: RowLosses,
}

impl<'p> Trainings<'p> {
    fn new(
        problem: &'p AnyProblem,
        (executor, signal): (&dyn Executor, StopSignal),
        inner: InnerLoop,
        (seed, part): (u64, Part),
    ) -> Result<Self> {
        let session = Session::new(problem, executor)?.stopped_by(signal);
        let key = Key::from_seed(seed);
        let state = session.state(key)?;
        let start = state.duplicate(session.executor())?;
        let short = InnerLoop { steps: (inner.steps / GRID_SHARE).max(1), burn_in: 0, ..inner };
        let has = |part: &Part| problem.rows_of(*part) > 0;
        let chosen_by = [Part::Validation, Part::HeldOut].into_iter().filter(has);
        let chosen_by = chosen_by.map(|part| RowLosses::new(&session, part)).collect::<Result<_>>()?;
        let (short, long) =
            (Trainer::new(&session, short)?, Trainer::new(&session, InnerLoop { burn_in: 0, ..inner })?);
        let judge = RowLosses::new(&session, part)?;
        Ok(Trainings { problem, state, start, key: key.fold_in(1), short, long, chosen_by, judge })
    }

    /// The loss on validation and held-out rows after a short training that goes on from the last one.
    fn chosen_loss(&mut self, grids: &[Vec<f64>], places: &[usize]) -> Result<f64> {
        let values: Vec<f64> = grids.iter().zip(places).map(|(grid, place)| grid[*place]).collect();
        self.state.lambda.write(&one_value(self.problem, &values)?)?;
        self.short.train(&self.state, self.key)?;
        let mut all = vec![];
        for losses in &mut self.chosen_by {
            all.extend(losses.at(&self.state, self.key)?);
        }
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        if !mean.is_finite() {
            // The next training must not go on from there.
            self.state.theta.copy_from(&self.start.theta)?;
        }
        Ok(mean)
    }

    /// The losses of the rows that judge, after a whole training with this λ.
    fn judge(&mut self, lambda: &[Array]) -> Result<Vec<f64>> {
        self.state.lambda.write(lambda)?;
        self.state.theta.copy_from(&self.start.theta)?;
        self.long.train(&self.state, self.key)?;
        self.judge.at(&self.state, self.key)
    }
}

/// The best value of each leaf by the mean over these divisions of the rows: all leaves go through their grids together first, and then
/// each through its own.
fn tune(all: &mut [Trainings]) -> Result<Vec<f64>> {
    let Some(problem) = all.first().map(|one| one.problem) else { return Ok(vec![]) };
    let grids: Vec<Vec<f64>> = problem.lambda.iter().map(|(_, variable)| grid(variable)).collect();
    all.iter().try_for_each(|one| one.state.theta.copy_from(&one.start.theta))?;
    let mut loss_at = |places: &[usize]| all.iter_mut().map(|one| one.chosen_loss(&grids, places)).sum::<Result<f64>>();
    let mut best = (f64::INFINITY, vec![0; grids.len()]);
    for place in 0..GRID {
        let places = vec![place; grids.len()];
        let loss = loss_at(&places)?;
        if loss < best.0 {
            best = (loss, places);
        }
    }
    if grids.len() > 1 {
        for leaf in 0..grids.len() {
            let before = best.1[leaf];
            for place in [before.wrapping_sub(1), before + 1].into_iter().filter(|place| *place < GRID) {
                let places: Vec<usize> =
                    best.1.iter().enumerate().map(|(i, p)| if i == leaf { place } else { *p }).collect();
                let loss = loss_at(&places)?;
                if loss < best.0 {
                    best = (loss, places);
                }
            }
        }
    }
    Ok(grids.iter().zip(best.1).map(|(grid, place)| grid[place]).collect())
}
