//! What the tests of the executor share: counting allocations, and comparisons that fail a test.

#![allow(dead_code)]

pub mod counting;

use bilevel_graph::Array;
use bilevel_graph::conformance::agree;

/// Fails where an element differs by more than `tolerance` times the largest of its array (at least 1).
#[track_caller]
pub fn assert_close(what: &str, found: &[Array], expected: &[Array], tolerance: f64) {
    agree(found, expected, &vec![tolerance; expected.len()]).unwrap_or_else(|mismatch| panic!("{what}: {mismatch}"));
}

/// Fails where an element differs at all; NaN is NaN.
#[track_caller]
pub fn assert_same(what: &str, found: &[Array], expected: &[Array]) {
    assert_close(what, found, expected, 0.0);
}
