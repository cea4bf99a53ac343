//! A list of wrong results and errors.

use crate::conformance::agreement::{Failure, Mismatch};
use crate::{Array, Error, ErrorKind, Result};

/// Collects wrong or missing refusals, and wrong numbers.
pub(crate) struct Watch(pub Vec<Failure>);

impl Watch {
    /// An answer that must be this error.
    pub fn refused<T>(&mut self, case: &str, answer: Result<T>, wanted: ErrorKind) {
        self.refused_as(case, answer, &Error::new(wanted.clone()).to_string(), |kind| *kind == wanted);
    }

    /// An answer that must be an error of a certain kind.
    pub fn refused_as<T>(&mut self, case: &str, answer: Result<T>, wanted: &str, is: impl Fn(&ErrorKind) -> bool) {
        let found = match answer {
            Err(error) if is(&error.kind) => return,
            Err(error) => Some(Box::new(error)),
            Ok(_) => None,
        };
        self.0.push(Failure { case: case.into(), mismatch: Mismatch::Accepted { wanted: wanted.into(), found } });
    }

    /// An answer that must be these numbers.
    pub fn is(&mut self, case: &str, answer: Result<Array>, expected: &[f64]) {
        let mismatch = match answer {
            Err(error) => Mismatch::Refused(Box::new(error)),
            Ok(found) if is_same(&found.to_f64(), expected) => return,
            Ok(found) => {
                let found = found.to_f64();
                let element = found.iter().zip(expected).position(|(a, b)| a.to_bits() != b.to_bits()).unwrap_or(0);
                let at = |values: &[f64]| values.get(element).copied().unwrap_or(f64::NAN);
                Mismatch::Element { result: 0, element, found: at(&found), expected: at(expected), allowed: 0.0 }
            }
        };
        self.0.push(Failure { case: case.into(), mismatch });
    }
}

/// Returns true if both have the same bits.
fn is_same(found: &[f64], expected: &[f64]) -> bool {
    found.iter().map(|x| x.to_bits()).eq(expected.iter().map(|x| x.to_bits()))
}
