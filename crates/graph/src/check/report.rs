//! Results of the gradient checker, as data and as a table.

use crate::check::finite_differences::Difference;
use std::fmt;

/// A difference that is in doubt by more than this share has met a kink.
const KINK: f64 = 1e-4;

/// The kind of comparison.
///
/// ```
/// assert_eq!(bilevel_graph::Quantity::HessianVector.to_string(), "Hessian·v");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantity {
    /// ∂loss/∂x against differences of the loss.
    Gradient,
    /// ∂²loss/∂θ²·v against differences of the gradient along v.
    HessianVector,
    /// vᵀ·∂²loss/∂θ∂λ against differences of ∂loss/∂λ along v.
    MixedVector,
    /// u·Hv against v·Hu: equal for a Hessian.
    Symmetry,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Quantity::Gradient => "gradient",
            Quantity::HessianVector => "Hessian·v",
            Quantity::MixedVector => "mixed·v",
            Quantity::Symmetry => "symmetry",
        })
    }
}

/// One quantity of one variable.
///
/// ```
/// use bilevel_graph::{check_gradients, Array, Quantity};
/// let point = [("x", Array::from_f64([2], vec![0.5, 2.0]).unwrap())];
/// let report = check_gradients(&point, |x| x[0].log().sum_all()).unwrap();
/// let row = report.row(Quantity::Gradient, "x").unwrap();
/// assert_eq!(row.coordinates, 2);
/// assert!(row.max_relative_error < 1e-8 && !row.structurally_zero);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CheckRow {
    /// The compared quantity.
    pub quantity: Quantity,
    /// Name of the variable.
    pub variable: String,
    /// How many elements were compared.
    pub coordinates: usize,
    /// How many more were not, because the loss has a kink there and differences say nothing.
    pub kinks: usize,
    /// The largest derivative that was compared, on either side. If it is 0, zeros were compared with zeros.
    pub largest: f64,
    /// True if the derivative is known to be zero without computing it.
    pub structurally_zero: bool,
    /// Largest |analytic − numeric|.
    pub max_absolute_error: f64,
    /// Largest |analytic − numeric| relative to the larger of the two, or to a thousandth of the row's largest value if
    /// that is more, because nearly zero elements among large ones are not more accurate.
    pub max_relative_error: f64,
    /// Index of the element with the largest relative error.
    pub worst: Vec<usize>,
    /// The derivative there.
    pub analytic: f64,
    /// The differences there.
    pub numeric: f64,
}

impl CheckRow {
    /// Whether nothing was compared: no element, or zeros with zeros.
    ///
    /// ```
    /// use bilevel_graph::{check_gradients, Array, Quantity};
    /// let point = [("x", Array::from_f64([2], vec![0.0, 0.0]).unwrap())];
    /// let report = check_gradients(&point, |x| x[0].square().sum_all()).unwrap();
    /// assert!(report.row(Quantity::Gradient, "x").unwrap().is_empty());
    /// assert!(!report.row(Quantity::HessianVector, "x").unwrap().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.coordinates == 0 || self.largest == 0.0
    }

    /// A row from pairs (index, analytic, numeric). `noise` is the resolution of differences: smaller errors do not
    /// count.
    pub(crate) fn new(
        quantity: Quantity,
        variable: String,
        structurally_zero: bool,
        pairs: &[(Vec<usize>, f64, Difference)],
        noise: f64,
    ) -> Self {
        let size = |analytic: f64, numeric: &Difference| analytic.abs().max(numeric.value.abs());
        let largest = pairs.iter().map(|(_, a, n)| size(*a, n)).fold(0.0, f64::max);
        // Elements that differences cannot distinguish from a kink are not compared.
        let doubtful =
            |(_, a, n): &&(Vec<usize>, f64, Difference)| n.doubt > KINK * size(*a, n).max(1e-3 * largest).max(noise);
        let kinks = pairs.iter().filter(doubtful).count();
        let pairs: Vec<_> = pairs.iter().filter(|pair| !doubtful(pair)).collect();
        let largest = pairs.iter().map(|(_, a, n)| size(*a, n)).fold(0.0, f64::max);
        let mut row = CheckRow {
            quantity,
            variable,
            coordinates: pairs.len(),
            kinks,
            largest,
            structurally_zero,
            max_absolute_error: 0.0,
            max_relative_error: 0.0,
            worst: vec![],
            analytic: 0.0,
            numeric: 0.0,
        };
        for (number, (index, analytic, Difference { value: numeric, .. })) in pairs.into_iter().enumerate() {
            let error = (analytic - numeric).abs();
            let scale = analytic.abs().max(numeric.abs()).max(1e-3 * largest).max(noise);
            let relative = if error == 0.0 { 0.0 } else { error / scale };
            // A NaN is the worst there is, and stays.
            row.max_absolute_error = if error.is_nan() { f64::INFINITY } else { row.max_absolute_error.max(error) };
            let relative = if relative.is_nan() { f64::INFINITY } else { relative };
            if number == 0 || relative > row.max_relative_error {
                row.max_relative_error = relative;
                (row.worst, row.analytic, row.numeric) = (index.clone(), *analytic, *numeric);
            }
        }
        row
    }
}

/// All comparisons of one check. Prints as a table.
///
/// ```
/// use bilevel_graph::{check_gradients, Array};
/// let point = [("x", Array::from_f64([2], vec![0.3, -0.4]).unwrap())];
/// let report = check_gradients(&point, |x| x[0].sin().sum_all()).unwrap();
/// assert!(report.passed(1e-8), "{report}");
/// assert!(report.to_string().starts_with("quantity"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckReport {
    /// The comparisons, in the order they were made.
    pub rows: Vec<CheckRow>,
}

impl CheckReport {
    /// Returns true if no relative error is above the tolerance.
    pub fn passed(&self, tolerance: f64) -> bool {
        self.worst() <= tolerance
    }

    /// The largest relative error of all rows.
    pub fn worst(&self) -> f64 {
        self.rows.iter().map(|row| row.max_relative_error).fold(0.0, f64::max)
    }

    /// Whether the loss has a derivative to compare: some gradient is neither empty nor known to be zero.
    pub fn is_informative(&self) -> bool {
        self.rows.iter().any(|row| row.quantity == Quantity::Gradient && !row.is_empty())
    }

    /// The row of this quantity and variable, if it was checked.
    pub fn row(&self, quantity: Quantity, variable: &str) -> Option<&CheckRow> {
        self.rows.iter().find(|row| row.quantity == quantity && row.variable == variable)
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["quantity", "variable", "elements", "abs. error", "rel. error", "worst at", "analytic", "numeric"];
        let mut table = vec![head.map(String::from)];
        for row in &self.rows {
            table.push([
                row.quantity.to_string(),
                row.variable.clone(),
                row.coordinates.to_string(),
                format!("{:.1e}", row.max_absolute_error),
                format!("{:.1e}", row.max_relative_error),
                format!("{:?}", row.worst),
                if row.structurally_zero { "structurally zero".into() } else { format!("{:.9e}", row.analytic) },
                match (row.coordinates, row.is_empty()) {
                    (0, _) => "only kinks".into(),
                    (_, true) if !row.structurally_zero => "0: nothing compared".into(),
                    _ => format!("{:.9e}", row.numeric),
                },
            ]);
        }
        let widths: Vec<usize> =
            (0..head.len()).map(|c| table.iter().map(|row| row[c].chars().count()).max().unwrap_or(0)).collect();
        for (number, row) in table.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                match column {
                    0 => write!(f, "{cell:<width$}")?,
                    1 => write!(f, "  {cell:<width$}")?,
                    _ => write!(f, "  {cell:>width$}")?,
                }
            }
        }
        Ok(())
    }
}
