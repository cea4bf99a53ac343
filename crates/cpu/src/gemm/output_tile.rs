//! Complete parts of a result, for further operations while they are still in cache.

use crate::gemm::plan::Problem;

/// A part of C that is complete: `count` stretches of `length` neighbouring elements, the first elements `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which of the product's pieces it is.
    pub number: usize,
    /// The first element, counted from the start of C.
    pub first: usize,
    /// Number of stretches.
    pub count: usize,
    /// Distance between stretches.
    pub step: usize,
    /// Elements of a stretch.
    pub length: usize,
}

/// The pieces of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// How many.
    pub count: usize,
    /// Each is one product of the batch.
    pub whole: bool,
    /// Elements of a stretch, but for those at the edges.
    pub stretch: usize,
}

/// The operation on every piece, with the number of the worker. The pieces of a product cover C and do not overlap; the
/// division of C depends on the shape alone.
pub type Then<'a> = &'a (dyn Fn(&Piece, usize) + Sync);

/// Returns true if rows or columns of C are contiguous.
pub(crate) fn has_stretches(p: &Problem) -> bool {
    (p.c.0 == 1 && p.c.1 >= 0) || (p.c.1 == 1 && p.c.0 >= 0)
}

impl Piece {
    /// The rows and columns of C from `start` to `end`, where C begins at element `base`.
    pub(crate) fn new(p: &Problem, number: usize, base: isize, start: (usize, usize), end: (usize, usize)) -> Piece {
        let (rows, cols) = (end.0 - start.0, end.1 - start.1);
        let first = base as usize + start.0 * p.c.0 as usize + start.1 * p.c.1 as usize;
        let (count, step, length) =
            if p.c.0 == 1 { (cols, p.c.1 as usize, rows) } else { (rows, p.c.0 as usize, cols) };
        // Stretches that follow each other are one.
        if step == length {
            Piece { number, first, count: 1, step: 0, length: length * count }
        } else {
            Piece { number, first, count, step, length }
        }
    }
}
