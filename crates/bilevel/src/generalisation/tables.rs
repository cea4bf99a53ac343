//! Tables: data whose rows are divided into parts. Each loss gets the rows of its own part under the same name.

use crate::generalisation::rows::{Part, Rows};
use crate::problem::AnyProblem;
use crate::problem::feeding::stream::in_dtype;
use crate::problem::typed::Problem;
use crate::problem::variable::Variable;
use crate::{Error, Result};
use bilevel_graph::{Array, DType, Data, Tree};
use std::sync::Arc;

/// Data whose rows are divided.
#[derive(Clone, Debug)]
pub(crate) struct RowTable {
    pub name: String,
    pub array: Array,
    pub rows: Rows,
    /// The rows of each fold, if folds are trained side by side; empty otherwise.
    pub folds: Vec<Rows>,
}

impl RowTable {
    /// The name of a part, of one fold or of all rows, among the data of a problem.
    pub fn part_name(table: &str, part: Part, fold: Option<usize>) -> String {
        match fold.filter(|_| part != Part::Test) {
            Some(fold) => format!("{table} [{part}, fold {}]", fold + 1),
            None => format!("{table} [{part}]"),
        }
    }

    /// All parts that can have rows.
    fn all_parts(&self) -> impl Iterator<Item = (Part, Option<usize>, &Rows)> {
        let of_folds = self.folds.iter().enumerate();
        let of_folds =
            of_folds.flat_map(|(fold, rows)| Part::ALL[..3].iter().map(move |part| (*part, Some(fold), rows)));
        Part::ALL.into_iter().map(|part| (part, None, &self.rows)).chain(of_folds)
    }

    /// Returns true if a data set of this name is a part.
    pub fn has_part(&self, name: &str) -> bool {
        self.all_parts().any(|(part, fold, _)| Self::part_name(&self.name, part, fold) == name)
    }

    /// The parts that have rows, by the names of data sets.
    pub fn parts(&self, dtype: DType) -> Result<Vec<(String, Array)>> {
        let has_rows = |(part, _, rows): &(Part, Option<usize>, &Rows)| !rows.of(*part).is_empty();
        let one = |(part, fold, rows): (Part, Option<usize>, &Rows)| {
            let name = Self::part_name(&self.name, part, fold);
            let array = in_dtype(&name, taken(&self.array, rows.of(part))?, dtype)?;
            Ok((name, array))
        };
        self.all_parts().filter(has_rows).map(one).collect()
    }

    /// Refuses rows that the array does not have.
    pub fn check(&self) -> Result<()> {
        let check = |count: usize| match &self.folds[..] {
            [] => self.rows.check(count),
            folds => folds.iter().try_for_each(|fold| fold.check(count)),
        };
        match self.array.shape().first() {
            Some(&count) => check(count).and_then(|()| self.check_numbers(count)).map_err(|error| match error {
                Error::Data { what, reason } => {
                    Error::Data { what: format!("the table '{}': {what}", self.name), reason }
                }
                other => other,
            }),
            None => Err(Error::Data {
                what: format!("the table '{}'", self.name),
                reason: "has no rows of one shape and type".into(),
            }),
        }
    }

    /// Refuses a NaN in a row of any part; rows of no part may have some.
    fn check_numbers(&self, count: usize) -> Result<()> {
        fn first<T>(all: &[T], is_nan: impl Fn(&T) -> bool, width: usize, rows: &[usize]) -> Option<usize> {
            rows.iter().copied().find(|row| all[row * width..(row + 1) * width].iter().any(&is_nan))
        }
        let width = self.array.len() / count.max(1);
        let damaged = |rows: &[usize]| match self.array.data() {
            Data::F32(all) => first(all, |v| v.is_nan(), width, rows),
            Data::F64(all) => first(all, |v| v.is_nan(), width, rows),
            Data::I32(_) => None,
        };
        match self.all_parts().find_map(|(part, _, rows)| Some((part, damaged(rows.of(part))?))) {
            None => Ok(()),
            Some((part, row)) => Err(Error::Data {
                what: format!("row {row}, a {part} row,"),
                reason: "has a NaN; replace it, or leave the row out of every part".into(),
            }),
        }
    }
}

/// One array of several, one after the other, and which of its rows belong to which part. Arrays whose rows do not fit make an array that
/// [`RowTable::check`] refuses.
pub(crate) fn joined(arrays: impl IntoIterator<Item = (Part, Array)>) -> (Array, Rows) {
    let arrays: Vec<(Part, Array)> = arrays.into_iter().collect();
    let mut from = 0;
    let mut of: [Vec<usize>; 4] = Default::default();
    for (part, array) in &arrays {
        let count = array.shape().first().copied().unwrap_or(0);
        of[*part as usize].extend(from..from + count);
        from += count;
    }
    let [train, validation, held_out, test] = of;
    let rows = Rows::given(train, validation).with_held_out(held_out).with_test(test);
    let Some((_, first)) = arrays.first() else { return (Array::zeros([], DType::F64), rows) };
    let width = first.shape().get(1..).unwrap_or_default();
    let alike = |(_, array): &(Part, Array)| array.dtype() == first.dtype() && array.shape().get(1..) == Some(width);
    let shape = [&[from], width].concat();
    let all = || arrays.iter().map(|(_, array)| array.data());
    let joined = match first.dtype() {
        _ if !arrays.iter().all(alike) => None,
        DType::F32 => Array::from_f32(
            shape,
            all().flat_map(|d| if let Data::F32(v) = d { &v[..] } else { &[] }).copied().collect(),
        )
        .ok(),
        DType::F64 => Array::from_f64(
            shape,
            all().flat_map(|d| if let Data::F64(v) = d { &v[..] } else { &[] }).copied().collect(),
        )
        .ok(),
        DType::I32 => Array::from_i32(
            shape,
            all().flat_map(|d| if let Data::I32(v) = d { &v[..] } else { &[] }).copied().collect(),
        )
        .ok(),
    };
    (joined.unwrap_or_else(|| Array::zeros([], DType::F64)), rows)
}

/// Rows of an array.
fn taken(array: &Array, rows: &[usize]) -> Result<Array> {
    let width: usize = array.shape()[1..].iter().product();
    let shape = [&[rows.len()], &array.shape()[1..]].concat();
    fn each<T: Copy>(all: &[T], rows: &[usize], width: usize) -> Vec<T> {
        rows.iter().flat_map(|row| all[row * width..(row + 1) * width].iter().copied()).collect()
    }
    Ok(match array.data() {
        Data::F32(all) => Array::from_f32(shape, each(all, rows, width))?,
        Data::F64(all) => Array::from_f64(shape, each(all, rows, width))?,
        Data::I32(all) => Array::from_i32(shape, each(all, rows, width))?,
    })
}

impl AnyProblem {
    /// The number of rows in a part of the tables, of all folds together; 0 if there are no tables.
    pub fn rows_of(&self, part: Part) -> usize {
        let Some(table) = self.tables.first() else { return 0 };
        match part {
            Part::Test => table.rows.of(part).len(),
            _ => table.folds.iter().chain([&table.rows]).map(|rows| rows.of(part).len()).sum(),
        }
    }

    /// The number of rows that the tables have, whether they belong to a part or not; 0 if there are no tables.
    pub fn table_rows(&self) -> usize {
        self.tables.first().and_then(|table| table.array.shape().first()).copied().unwrap_or(0)
    }

    /// The label of each row of the tables: those of the only table that has one whole number for each row.
    ///
    /// ```
    /// use bilevel::splits::Rows;
    /// use bilevel::{Array, Leaf, Problem, Variable};
    /// let rows = Rows::given(0..2, 2..4);
    /// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    ///     .table("x", Array::from_f64([4], vec![1.0, 2.0, 3.0, 4.0])?, &rows)
    ///     .table("class", Array::from_i32([4], vec![0, 1, 0, 1])?, &rows)
    ///     .inner(|s, l, t| (s.data("x") - t.0).square().mean_all() + l.0.exp() * t.0.square())
    ///     .outer(|s, _, t| (s.data("x") - t.0).square().mean_all())
    ///     .build()?;
    /// assert_eq!((problem.table_rows(), problem.labels()), (4, Some(vec![0, 1, 0, 1])));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn labels(&self) -> Option<Vec<i32>> {
        let whole = |table: &RowTable| match table.array.data() {
            Data::I32(labels) if table.array.shape().len() == 1 => Some(labels.to_vec()),
            _ => None,
        };
        let mut found = self.tables.iter().filter_map(whole);
        found.next().filter(|_| found.next().is_none())
    }

    /// The same problem with its tables divided otherwise.
    pub fn with_rows(&self, divide: impl Fn(&Rows) -> Result<Rows>) -> Result<AnyProblem> {
        let one = |table: &RowTable| Ok(RowTable { rows: divide(&table.rows)?, ..table.clone() });
        self.with_tables(self.tables.iter().map(one).collect::<Result<_>>()?)
    }

    /// The same problem with other tables.
    pub(crate) fn with_tables(&self, tables: Vec<RowTable>) -> Result<AnyProblem> {
        let is_part = |name: &str| self.tables.iter().any(|table| table.has_part(name));
        let mut data: Vec<(String, Array)> = self.data.iter().filter(|(name, _)| !is_part(name)).cloned().collect();
        for table in &tables {
            table.check()?;
            data.extend(table.parts(self.dtype)?);
        }
        data.sort_by(|(a, _), (b, _)| a.cmp(b));
        let problem = AnyProblem { data: data.into(), tables: tables.into(), paths: Arc::default(), ..self.clone() };
        let graph = bilevel_graph::Graph::new();
        crate::compiled::trace::Trace::new(&graph, &problem)?.check()?;
        Ok(problem)
    }

    /// The same problem with this share of the validation rows held out, as a seed decides, unless some are already: see
    /// [`Rows::holding_out`]. A problem without tables is unchanged.
    ///
    /// ```
    /// use bilevel::splits::{Part, Rows};
    /// use bilevel::{Array, Leaf, Problem, Variable};
    /// let rows = Rows::given(0..4, 4..9);
    /// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    ///     .table("y", Array::from_f64([9], (0..9).map(f64::from).collect())?, &rows)
    ///     .inner(|s, l, t| (s.data("y") - t.0).square().mean_all() + l.0.exp() * t.0.square())
    ///     .outer(|s, _, t| (s.data("y") - t.0).square().mean_all())
    ///     .build()?;
    /// let guarded = problem.holding_out(0.2, 0)?;
    /// assert_eq!((guarded.rows_of(Part::Validation), guarded.rows_of(Part::HeldOut)), (4, 1));
    /// assert_eq!(problem.on_all_rows()?.rows_of(Part::Train), 9);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn holding_out(&self, share: f64, seed: u64) -> Result<AnyProblem> {
        let nothing = self.tables.is_empty() || share == 0.0 || self.judged_by_evidence || self.is_folded();
        if nothing { Ok(self.clone()) } else { self.with_rows(|rows| rows.holding_out(share, seed)) }
    }
}

impl<L, T> Problem<L, T>
where
    L: Tree<Leaf = Variable> + Clone,
    T: Tree<Leaf = Variable> + Clone,
{
    /// The same problem with this share of the validation rows held out: see [`AnyProblem::holding_out`].
    pub fn holding_out(&self, share: f64, seed: u64) -> Result<Self> {
        Ok(self.with(AnyProblem::holding_out(self, share, seed)?))
    }

    /// The same problem with all rows that have labels for training: for the last training, with the λ that was found. It has no
    /// validation rows left, so its outer loss is that of the training rows.
    pub fn on_all_rows(&self) -> Result<Self> {
        Ok(self.with(self.with_rows(|rows| Ok(rows.all_for_training()))?))
    }

    /// One problem for each of K folds of all rows that have labels: see [`Rows::folds`].
    pub fn folds(&self, count: usize, seed: u64) -> Result<Vec<Self>> {
        let folds = self.rows().folds(count, seed)?;
        folds.iter().map(|fold| Ok(self.with(self.with_rows(|_| Ok(fold.clone()))?))).collect()
    }
}

impl AnyProblem {
    /// The division of the first table; none if there are no tables.
    pub fn rows(&self) -> Rows {
        self.tables.first().map(|table| table.rows.clone()).unwrap_or_default()
    }
}
