//! Comparison of two lists of arrays, to the bit or to a tolerance, and the description of differences.

use crate::{Array, DType, Error};
use std::fmt;

/// A case in which an executor is wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The case.
    pub case: String,
    /// The mismatch found there.
    pub mismatch: Mismatch,
}

/// The fault of an executor.
#[derive(Clone, Debug)]
pub enum Mismatch {
    /// It returned an error instead of results.
    Refused(Box<Error>),
    /// It did not refuse as it must.
    Accepted {
        /// How it must refuse.
        wanted: String,
        /// Its error instead, if any.
        found: Option<Box<Error>>,
    },
    /// It gave another number of results.
    Count {
        /// How many there were.
        found: usize,
        /// How many there must be.
        expected: usize,
    },
    /// A result has another type or shape.
    Kind {
        /// Number of the result.
        result: usize,
        /// Its type and shape.
        found: (DType, Vec<usize>),
        /// The expected types and shapes.
        expected: (DType, Vec<usize>),
    },
    /// An element is another number.
    Element {
        /// Number of the result.
        result: usize,
        /// Place in it, row by row.
        element: usize,
        /// The found number.
        found: f64,
        /// The expected number.
        expected: f64,
        /// How far apart they may be; 0 if their bits must be the same.
        allowed: f64,
    },
    /// A repetition of the run gave other results.
    Again(Box<Mismatch>),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.case, self.mismatch)
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Refused(error) => write!(f, "refused with '{error}'"),
            Mismatch::Accepted { wanted, found: None } => write!(f, "not refused; it must be an error: {wanted}"),
            Mismatch::Accepted { wanted, found: Some(error) } => {
                write!(f, "refused with '{error}', which must be: {wanted}")
            }
            Mismatch::Count { found, expected } => write!(f, "{found} results instead of {expected}"),
            Mismatch::Kind { result, found, expected } => {
                let ((a, b), (c, d)) = (found, expected);
                write!(f, "result {result} is {a}{b:?} instead of {c}{d:?}")
            }
            Mismatch::Element { result, element, found, expected, allowed: 0.0 } => write!(
                f,
                "element {element} of result {result} is {found:e} instead of {expected:e}; their bits must be the same"
            ),
            Mismatch::Element { result, element, found, expected, allowed } => write!(
                f,
                "element {element} of result {result} is {found:e} instead of {expected:e}; they may differ by {allowed:e}"
            ),
            Mismatch::Again(mismatch) => write!(f, "the same run again gives something else: {mismatch}"),
        }
    }
}

/// Compares each array. If its tolerance is 0 every element must have the same bits, so that −0 is not 0; otherwise an element
/// may differ by the tolerance times the largest finite number of its array, at least 1.
///
/// A NaN agrees with every NaN: IEEE 754 leaves the sign and the payload of a computed NaN to the machine.
///
/// ```
/// use bilevel_graph::{Array, conformance::agree};
/// let array = |x: f64| [Array::from_f64([2], vec![x, 8.0]).unwrap()];
/// assert!(agree(&array(1.0), &array(1.0), &[0.0]).is_ok());
/// assert!(agree(&array(1.0), &array(1.5), &[0.1]).is_ok());
/// let said = agree(&array(1.0), &array(1.5), &[0.0]).unwrap_err().to_string();
/// assert_eq!(said, "element 0 of result 0 is 1e0 instead of 1.5e0; their bits must be the same");
/// assert!(agree(&array(0.0), &array(-0.0), &[0.0]).is_err());
/// assert!(agree(&array(0.0), &array(-0.0), &[0.1]).is_ok());
/// assert!(agree(&array(f64::NAN), &array(-f64::NAN), &[0.0]).is_ok());
/// ```
pub fn agree(found: &[Array], expected: &[Array], tolerances: &[f64]) -> Result<(), Mismatch> {
    if found.len() != expected.len() || tolerances.len() != expected.len() {
        return Err(Mismatch::Count { found: found.len(), expected: expected.len() });
    }
    for (result, ((a, b), &tolerance)) in found.iter().zip(expected).zip(tolerances).enumerate() {
        if (a.shape(), a.dtype()) != (b.shape(), b.dtype()) {
            let kind = |array: &Array| (array.dtype(), array.shape().to_vec());
            return Err(Mismatch::Kind { result, found: kind(a), expected: kind(b) });
        }
        let (a, b) = (a.to_f64(), b.to_f64());
        let largest = b.iter().filter(|v| v.is_finite()).fold(1.0f64, |m, v| m.max(v.abs()));
        let allowed = tolerance * largest;
        for (element, (&found, &expected)) in a.iter().zip(&b).enumerate() {
            // Every f32 and i32 is an f64, with the same sign of a zero. Infinities are equal, and their difference is NaN.
            let agree = match tolerance {
                _ if found.is_nan() || expected.is_nan() => found.is_nan() && expected.is_nan(),
                0.0 => found.to_bits() == expected.to_bits(),
                _ => found == expected || (found - expected).abs() <= allowed,
            };
            if !agree {
                return Err(Mismatch::Element { result, element, found, expected, allowed });
            }
        }
    }
    Ok(())
}
