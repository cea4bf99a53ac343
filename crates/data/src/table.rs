//! Tables of numbers with a target per row.

use crate::error::{Error, Result};
use crate::images::check_rows;
use bilevel::{Array, DType};

/// Rows of numbers, and the target of each.
///
/// ```
/// use bilevel::DType;
/// use bilevel_data::{Input, readers::csv};
/// let text = "width,height,kind\n1,2,cat\n3,4,ant\n";
/// let format = csv::Format { header: csv::Header::Names, ..csv::Format::default() };
/// let table = csv::read(Input::from_bytes("animals", text), &format)?;
/// assert_eq!(table.to_array(DType::F64)?.to_f64(), [1.0, 2.0, 3.0, 4.0]);
/// assert_eq!((table.classes.as_slice(), table.labels()?), (&["ant".to_string(), "cat".into()][..], vec![1, 0]));
/// # Ok::<(), bilevel_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Names of the columns; empty if the file has none.
    pub names: Vec<String>,
    /// Numbers per row.
    pub columns: usize,
    /// The numbers, row by row.
    pub values: Vec<f64>,
    /// The target of each row; empty if the table has none.
    pub targets: Vec<f64>,
    /// The names of the classes, if targets are words: a target is the number of its word in alphabetical order.
    pub classes: Vec<String>,
}

impl Table {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.values.len().checked_div(self.columns).unwrap_or(self.targets.len())
    }

    /// The rows at these places, in this order.
    pub fn take(&self, rows: &[usize]) -> Result<Self> {
        check_rows(rows, self.rows())?;
        let values = rows.iter().flat_map(|row| &self.values[row * self.columns..(row + 1) * self.columns]);
        let targets =
            if self.targets.is_empty() { vec![] } else { rows.iter().map(|row| self.targets[*row]).collect() };
        Ok(Table { values: values.copied().collect(), targets, ..self.without_rows() })
    }

    fn without_rows(&self) -> Self {
        Table {
            names: self.names.clone(),
            columns: self.columns,
            values: vec![],
            targets: vec![],
            classes: self.classes.clone(),
        }
    }

    /// The numbers for a problem: `[rows, columns]`.
    pub fn to_array(&self, dtype: DType) -> Result<Array> {
        Ok(Array::from_values([self.rows(), self.columns], &self.values, dtype)?)
    }

    /// The targets for a problem: `[rows]`.
    pub fn target_array(&self, dtype: DType) -> Result<Array> {
        Ok(Array::from_values([self.targets.len()], &self.targets, dtype)?)
    }

    /// The targets as labels 0, 1, …: the classes are their distinct values in increasing order.
    pub fn labels(&self) -> Result<Vec<i32>> {
        // Adding 0 makes one number of the two zeros.
        let targets: Vec<f64> = self.targets.iter().map(|target| target + 0.0).collect();
        let mut different = targets.clone();
        different.sort_by(f64::total_cmp);
        different.dedup();
        let number = |target: &f64| different.binary_search_by(|other| other.total_cmp(target)).ok();
        let labels = targets.iter().map(|target| number(target).and_then(|label| i32::try_from(label).ok()));
        labels
            .collect::<Option<_>>()
            .ok_or_else(|| Error::request("some targets are not numbers, so there are no labels"))
    }
}
