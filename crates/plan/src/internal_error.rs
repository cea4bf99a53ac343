//! Errors for inconsistencies of planning itself. A run trusts its plan with raw memory, so an incomplete plan is
//! refused.

use bilevel_graph::{Error, ErrorKind, Line, Result};

/// Returns the error for a part that planning should have found.
pub fn internal_error(what: &str) -> Error {
    Error::new(ErrorKind::Planning { reason: format!("planning did not find {what}") })
}

/// Returns the part, or an error that names it and the line of user code it belongs to.
pub fn expect<T>(part: Option<T>, what: &str, line: Line) -> Result<T> {
    part.ok_or_else(|| internal_error(what).at(line))
}
