//! Operations on whole rows or matrices, one block of each operand at a time: sorting, segment maxima, and dense factorisation and
//! substitution. The reference, the interpreter and the CPU share these loops. They allocate nothing, and sums are kept in 64 bits.

use crate::ir::op::BlockOp;
use std::cmp::Ordering;

/// A number that blocks hold: every one is an f64.
pub trait Number: Copy {
    /// As a 64-bit float.
    fn wide(self) -> f64;
    /// The nearest of the type.
    fn of(x: f64) -> Self;
}

macro_rules! number {
    ($($t:ty)*) => {
        $(impl Number for $t {
            fn wide(self) -> f64 {
                self.into()
            }
            fn of(x: f64) -> Self {
                x as $t
            }
        })*
    };
}
number!(f32 f64 i32);

/// The order of sorting: by value, with 0 and −0 equal and NaN last.
fn order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// to\[i\] = the place in x of the i-th smallest element; equal ones in the order of their places.
///
/// ```
/// let mut places = [0i32; 4];
/// bilevel_graph::block_ops::argsort(&[2.0, f64::NAN, 1.0, 2.0], &mut places);
/// assert_eq!(places, [2, 0, 3, 1]);
/// ```
pub fn argsort<T: Number, P: Number>(x: &[T], to: &mut [P]) {
    (0..).zip(to.iter_mut()).for_each(|(i, place)| *place = P::of(f64::from(i)));
    let at = |place: &P| (x[place.wide() as usize].wide(), place.wide());
    // With the place as the second key, the order does not depend on the algorithm.
    to.sort_unstable_by(|i, j| {
        let ((a, i), (b, j)) = (at(i), at(j));
        order(a, b).then(i.total_cmp(&j))
    });
}

/// to\[s\] = the place in updates of the first largest with index s, a NaN counting as the largest; their number if there is none. Indices
/// that are not in `to` are passed over.
///
/// ```
/// let mut places = [0i32; 3];
/// bilevel_graph::block_ops::scatter_argmax(&[2, 0, 2, 2], &[1.0, 5.0, 3.0, 3.0], &mut places);
/// assert_eq!(places, [1, 4, 2]);
/// ```
pub fn scatter_argmax<T: Number, P: Number>(indices: &[P], updates: &[T], to: &mut [P]) {
    to.fill(P::of(updates.len() as f64));
    for (place, (index, update)) in indices.iter().zip(updates).enumerate() {
        let (index, update) = (index.wide(), update.wide());
        if !(0.0..to.len() as f64).contains(&index) {
            continue;
        }
        let best = &mut to[index as usize];
        let largest = updates.get(best.wide() as usize).map(|best| best.wide());
        if largest.is_none_or(|largest| update > largest || (update.is_nan() && !largest.is_nan())) {
            *best = P::of(place as f64);
        }
    }
}

/// Lower triangular L with L·Lᵀ = A, of which the lower triangle is read, and zeros above. From the first column on at which A is not
/// positive definite, L is NaN.
///
/// ```
/// let mut l = [0.0; 4];
/// bilevel_graph::block_ops::cholesky(&[4.0, f64::NAN, 2.0, 10.0], 2, &mut l);
/// assert_eq!(l, [2.0, 0.0, 1.0, 3.0]);
/// ```
pub fn cholesky<T: Number>(a: &[T], n: usize, l: &mut [T]) {
    for i in 0..n {
        for j in 0..n {
            let (row, column) = (i * n, j * n);
            l[row + j] = T::of(match j.cmp(&i) {
                Ordering::Greater => 0.0,
                at => {
                    let terms = (0..j).map(|k| l[row + k].wide() * l[column + k].wide());
                    let rest = a[row + j].wide() - terms.sum::<f64>();
                    match at {
                        Ordering::Less => rest / l[column + j].wide(),
                        _ if rest > 0.0 => rest.sqrt(),
                        _ => f64::NAN,
                    }
                }
            });
        }
    }
}

/// X with A·X = B, or Aᵀ·X = B, for a triangular A of which only the lower or only the upper triangle is read; B and X are
/// `[n, m]`. A zero on the diagonal gives infinities or NaN.
///
/// ```
/// let mut x = [0.0; 2];
/// bilevel_graph::block_ops::triangular_solve(&[2.0, 9.0, 1.0, 4.0], &[2.0, 9.0], 2, [true, false], &mut x);
/// assert_eq!(x, [1.0, 2.0]);
/// ```
pub fn triangular_solve<T: Number>(a: &[T], b: &[T], n: usize, [lower, transposed]: [bool; 2], x: &mut [T]) {
    let m = b.len() / n.max(1);
    let forward = lower != transposed;
    for step in 0..n {
        let i = if forward { step } else { n - 1 - step };
        for column in 0..m {
            let mut rest = b[i * m + column].wide();
            for done in 0..step {
                let k = if forward { done } else { n - 1 - done };
                let factor = if transposed { a[k * n + i] } else { a[i * n + k] };
                rest -= factor.wide() * x[k * m + column].wide();
            }
            x[i * m + column] = T::of(rest / a[i * n + i].wide());
        }
    }
}

/// How an operation divides its operands and its result into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The number of blocks.
    pub count: usize,
    /// Elements of a block of each operand; 0 for the second of an operation of one.
    pub operands: [usize; 2],
    /// Elements of a block of the result.
    pub result: usize,
    /// The length of the first axis of a block of the first operand.
    pub n: usize,
}

impl Blocks {
    /// The blocks of operands and a result of these shapes, the last axis or the last two of each.
    pub fn of(op: BlockOp, operands: &[&[usize]], result: &[usize]) -> Self {
        let rank = op.rank().min(result.len());
        let inner = |shape: &[usize]| shape[shape.len().saturating_sub(rank)..].iter().product::<usize>();
        Blocks {
            count: result[..result.len() - rank].iter().product(),
            operands: [0, 1].map(|i| operands.get(i).map_or(0, |shape| inner(shape))),
            result: inner(result),
            n: operands.first().map_or(0, |shape| shape[shape.len().saturating_sub(rank)]),
        }
    }
}
