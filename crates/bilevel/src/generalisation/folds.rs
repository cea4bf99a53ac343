//! Folds: K trainings side by side, each without the rows of one fold, and λ judged by the mean over folds.
//!
//!   θ = (θ₁ … θ_K),   L_T = Σₖ L_T(λ, θₖ; rows not in fold k),   f = (1/K)·Σₖ f(λ, θₖ; rows of fold k)
//!
//! The sum over folds is minimised by K separate trainings, so inner step and temperature are unchanged; any method
//! works on it. All rows both train and validate. At the end θ is trained on all of them with the learned λ.

use crate::error::require;
use crate::generalisation::rows::{Part, Rows};
use crate::generalisation::tables::RowTable;
use crate::problem::typed::Problem;
use crate::problem::variable::Variable;
use crate::problem::{AnyProblem, FlatLoss};
use crate::{Error, Result};
use bilevel_graph::{Tensor, Tree};
use std::sync::Arc;

impl<L, T> Problem<L, T>
where
    L: Tree<Leaf = Variable> + Clone,
    T: Tree<Leaf = Variable> + Clone,
{
    /// The same λ judged by K folds of all rows that have labels, trained side by side: θ exists K times, and its
    /// leaves are named after their fold. This share of the validation rows of each fold is held out, for the guard.
    ///
    /// ```
    /// use bilevel::methods::IftCg;
    /// use bilevel::splits::{Part, Rows};
    /// use bilevel::{Array, Driver, InnerLoop, Leaf, Problem, Variable};
    /// let y = (0..40).map(|i| 1.0 + (i as f64 * 1.7).sin()).collect();
    /// let lambda = Variable::constant([], 0.0).at_least(-8.0).at_most(2.0).log_penalty();
    /// let problem = Problem::builder(Leaf(lambda), Leaf(Variable::constant([], 0.0)))
    ///     .table("y", Array::from_f64([40], y)?, &Rows::given(0..20, 20..40))
    ///     .inner(|s, l, t| (s.data("y") - t.0).square().mean_all() + l.0.exp() * t.0.square())
    ///     .outer(|s, _, t| (s.data("y") - t.0).square().mean_all())
    ///     .build()?;
    /// let folded = problem.folded(4, 0.2, 0)?;
    /// assert_eq!((folded.sizes(), folded.rows_of(Part::Train), folded.rows_of(Part::HeldOut)), ((1, 4), 120, 8));
    /// let found = Driver::new(&folded, IftCg::default()).inner(InnerLoop::new(0.1, 100)).rate(1.0).iterations(50).run()?;
    /// // The penalty beside a mean over 40 rows instead of 30.
    /// let lambda = found.lambda.leaves()[0].item().unwrap() - (40f64 / 30.0).ln();
    /// let all = problem.on_all_rows()?;
    /// let trained = all.train(&Leaf(Array::from_f64([], vec![lambda])?)).step(0.1).steps(100).run()?;
    /// assert!(trained.theta.0.item().unwrap() > 0.8);
    /// # use bilevel::Tree;
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn folded(&self, count: usize, held_out: f64, seed: u64) -> Result<Problem> {
        let any: &AnyProblem = self;
        any.in_folds(count, held_out, seed).map(Problem::from)
    }
}

impl AnyProblem {
    fn in_folds(&self, count: usize, held_out: f64, seed: u64) -> Result<AnyProblem> {
        require(count >= 2, "folds", count, "at least 2")?;
        if self.tables.is_empty() || self.judged_by_evidence || self.is_folded() {
            let reason = "folds divide the rows of tables that an outer loss judges by; use .table(…) and .outer(…)";
            return Err(Error::Conflict { reason: reason.into() });
        }
        let folds: Vec<Rows> = self
            .rows()
            .folds(count, seed)?
            .iter()
            .map(|fold| fold.holding_out(held_out, seed))
            .collect::<Result<_>>()?;
        let of_fold = |k: usize, name: &str| format!("fold {}{}{name}", k + 1, if name.is_empty() { "" } else { "." });
        let copies = |k: usize| self.theta.iter().map(move |(name, variable)| (of_fold(k, name), variable.clone()));
        let whole = self.theta.len() + self.frozen.len();
        let places: Arc<[usize]> = self.frozen.iter().map(|(place, _, _)| *place).collect();
        // Frozen leaves are there once, behind all others.
        let split = Arc::new(move |theta: &[Tensor], fold: usize| -> Vec<Tensor> {
            let (trained, frozen) = theta.split_at(theta.len() - places.len());
            let own = trained.len() / count;
            let mut leaves = trained[fold * own..(fold + 1) * own].to_vec();
            places.iter().zip(frozen).for_each(|(&place, &leaf)| leaves.insert(place, leaf));
            debug_assert_eq!(leaves.len(), whole);
            leaves
        });
        let each = |loss: &FlatLoss, join: fn(Vec<Tensor>) -> Tensor| -> FlatLoss {
            let (loss, split) = (loss.clone(), split.clone());
            Arc::new(move |scope, lambda, theta| {
                let one = |fold: usize| loss(&scope.in_fold(fold), lambda, &split(theta, fold));
                let all: Vec<Tensor> = (0..count).map(one).collect::<Result<_>>()?;
                Ok(join(all).check()?)
            })
        };
        // If the outer loss is not defined row by row, each fold is a row.
        let rows = match &self.outer_rows {
            Some(rows) => each(rows, |all| joined(all.into_iter().map(|rows| rows.reshape([rows.len()])).collect())),
            None => each(&self.outer, |all| joined(all.into_iter().map(|loss| loss.reshape([1])).collect())),
        };
        let start = self.start.clone().map(|start| -> crate::problem::FlatStart {
            Arc::new(move |scope, lambda| {
                let all: Vec<Vec<Tensor>> =
                    (0..count).map(|fold| start(&scope.in_fold(fold), lambda)).collect::<Result<_>>()?;
                Ok(all.concat())
            })
        });
        let trained = count * self.theta.len();
        let frozen =
            self.frozen.iter().enumerate().map(|(k, (_, name, array))| (trained + k, name.clone(), array.clone()));
        let problem = AnyProblem {
            theta: (0..count).flat_map(copies).collect(),
            frozen: frozen.collect(),
            inner: each(&self.inner, sum),
            outer: each(&self.outer, mean),
            outer_rows: Some(rows),
            start,
            measures: self.measures.iter().map(|(name, measure)| (name.clone(), each(measure, mean))).collect(),
            ..self.clone()
        };
        let table = |table: &RowTable| {
            let rows = Rows::given([], []).with_test(table.rows.of(Part::Test).iter().copied());
            RowTable { rows, folds: folds.clone(), ..table.clone() }
        };
        problem.with_tables(self.tables.iter().map(table).collect())
    }

    /// Returns true if trainings of several folds are side by side.
    pub(crate) fn is_folded(&self) -> bool {
        self.tables.first().is_some_and(|table| !table.folds.is_empty())
    }
}

fn sum(all: Vec<Tensor>) -> Tensor {
    let (first, rest) = (all[0].reshape([]), &all[1..]);
    rest.iter().fold(first, |sum, loss| sum + loss.reshape([]))
}

fn mean(all: Vec<Tensor>) -> Tensor {
    let share = 1.0 / all.len() as f64;
    sum(all) * share
}

fn joined(all: Vec<Tensor>) -> Tensor {
    all[0].concat(&all[1..], 0)
}
