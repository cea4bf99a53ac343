//! All methods on all problems: rows, and a heat map as plain data.

use super::TruthProblem;
use super::measure::{Effort, Row, Verdict};
use super::promise::judged;
use bilevel::methods::AnyMethod;
use bilevel::{Error, Result};
use bilevel_graph::Executor;
use serde::{Deserialize, Serialize};

/// The rows of some methods on some problems.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Method by method, and for each problem by problem.
    pub rows: Vec<Row>,
}

/// One square of a heat map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// ‖mean − truth‖/‖truth‖, if there is one.
    pub relative_bias: Option<f64>,
    /// Whether the documentation claims that this is right.
    pub claimed: bool,
    /// Whether it is.
    pub right: bool,
}

/// Biases of methods (rows) on problems (columns).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeatMap {
    /// Names of the methods.
    pub methods: Vec<String>,
    /// Names of the problems.
    pub problems: Vec<String>,
    /// By method, then by problem; `None` if the method does not apply or found nothing.
    pub cells: Vec<Vec<Option<Cell>>>,
}

impl Table {
    /// Measures each of these methods, with settings that fit, on each of these problems.
    ///
    /// ```
    /// use bilevel::Cpu;
    /// use bilevel::methods::AnyMethod;
    /// use bilevel_truth::{Effort, Table};
    /// let problems: Vec<_> = bilevel_truth::problems()?.into_iter().filter(|p| p.name.starts_with("quadratic")).collect();
    /// let methods = [AnyMethod::named("rmd")?, AnyMethod::named("rmd-fo")?];
    /// let table = Table::measure(&methods, &problems, Effort::QUICK, &Cpu::with_threads(1))?;
    /// let map = table.heat_map();
    /// assert_eq!((map.methods.len(), map.problems.len()), (2, 2));
    /// assert!(map.cells[0][0].as_ref().unwrap().right);
    /// assert!(table.broken_claims().is_empty());
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn measure(
        methods: &[AnyMethod],
        problems: &[TruthProblem],
        effort: Effort,
        executor: &dyn Executor,
    ) -> Result<Table> {
        let mut rows = vec![];
        for method in methods {
            for problem in problems {
                let problem = &problem.lengthened(effort.length);
                rows.push(match judged(method, problem, effort, executor) {
                    Ok(row) => row,
                    Err(Error::NotApplicable { reason, .. }) => {
                        Row::empty(method, problem, Verdict::NotApplicable(reason))
                    }
                    Err(error) => return Err(error),
                });
            }
        }
        Ok(Table { rows })
    }

    /// The rows in which a method breaks its promise.
    pub fn broken_claims(&self) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.kept == Some(false)).collect()
    }

    /// The same as a map.
    pub fn heat_map(&self) -> HeatMap {
        let names = |of: fn(&Row) -> &String| {
            let mut all: Vec<String> = vec![];
            for row in &self.rows {
                if !all.contains(of(row)) {
                    all.push(of(row).clone());
                }
            }
            all
        };
        let (methods, problems) = (names(|row| &row.method), names(|row| &row.problem));
        let cell = |method: &String, problem: &String| {
            let row = self.rows.iter().find(|row| row.method == *method && row.problem == *problem)?;
            let right = row.verdict == Verdict::Right;
            row.bias.map(|_| Cell { relative_bias: row.relative_bias(), claimed: row.claimed, right })
        };
        let line = |method: &String| problems.iter().map(|problem| cell(method, problem)).collect();
        let cells = methods.iter().map(line).collect();
        HeatMap { methods, problems, cells }
    }
}
