//! The dimensions of gathers and scatters.

/// A gather or a scatter of rows: x `[batch, n, inner]`, indices `[batch, k]`, rows `[batch, k, inner]`.
///
/// ```
/// use bilevel_plan::IndexDims;
/// let rows = IndexDims::new(&[2, 10, 3, 4], &[2, 5], 1);
/// assert_eq!((rows.batch, rows.n, rows.k, rows.inner), (2, 10, 5, 12));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexDims {
    /// Pairs of an indexed tensor and its indices.
    pub batch: usize,
    /// Rows of the indexed tensor.
    pub n: usize,
    /// Indices.
    pub k: usize,
    /// Elements of a row.
    pub inner: usize,
}

impl IndexDims {
    /// Splits shapes of the indexed tensor and the indices, which share this many leading axes.
    pub fn new(indexed: &[usize], indices: &[usize], batch: usize) -> Self {
        IndexDims {
            batch: indexed[..batch].iter().product(),
            n: indexed[batch],
            k: indices[batch..].iter().product(),
            inner: indexed[batch + 1..].iter().product(),
        }
    }
}
