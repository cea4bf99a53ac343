//! What planning says where its own parts disagree. A run trusts its plan with raw memory, so a plan that lacks something is
//! refused: a guess in its place would read or write what belongs to another value.

use bilevel_graph::{Error, ErrorKind, Result};
use std::panic::Location;

/// The error for a part that planning should have found.
pub fn internal_error(what: &str) -> Error {
    Error::new(ErrorKind::Planning { reason: format!("planning did not find {what}") })
}

/// The part, or an error that names it and the line of user code it belongs to.
pub fn expect<T>(part: Option<T>, what: &str, line: &'static Location<'static>) -> Result<T> {
    part.ok_or_else(|| internal_error(what).at(line))
}
