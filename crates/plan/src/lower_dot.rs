//! Strides of a batched matrix product: every group of axes that one stride can walk is one axis, and an operand where
//! none can is copied into order first.

use crate::lower::Lowering;
use crate::node::Operand;
use crate::planning::known;
use crate::view::{View, merged_stride};
use bilevel_graph::shape::{inverse_permutation, other_axes};
use bilevel_graph::{DType, DotDims, Result};
use std::panic::Location;

/// C[b, i, j] = Σₖ A[b, i, k]·B[b, k, j] with strides in elements.
#[derive(Clone, Debug, PartialEq)]
pub struct DotLayout {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B: the axis summed over.
    pub k: usize,
    /// Row and column strides of A, from the first element of the operand's view.
    pub a: (isize, isize),
    /// The same of B.
    pub b: (isize, isize),
    /// The same of C, from the start of the node's memory.
    pub c: (isize, isize),
    /// Length and strides in A, B and C of every batch axis.
    pub batch: Vec<(usize, [isize; 3])>,
}

/// One operand with its axes sorted by role.
struct Side {
    operand: Operand,
    shape: Vec<usize>,
    batch: Vec<usize>,
    free: Vec<usize>,
    contract: Vec<usize>,
}

impl Side {
    /// `None` for a constant, which must be put into memory first.
    fn view(&self) -> Option<&View> {
        self.operand.at().map(|(_, view)| view)
    }

    fn length(&self, axes: &[usize]) -> usize {
        axes.iter().map(|&a| self.shape[a]).product()
    }

    fn strides(&self) -> Option<(isize, isize)> {
        let view = self.view()?;
        Some((merged_stride(view, &self.free)?, merged_stride(view, &self.contract)?))
    }

    /// Copies the operand into the order batch, free, contracted.
    fn straighten(&mut self, low: &mut Lowering, dtype: DType, line: &'static Location<'static>) {
        let perm = [&self.batch[..], &self.free, &self.contract].concat();
        let shape: Vec<usize> = perm.iter().map(|&a| self.shape[a]).collect();
        if let Operand::At { node, view } = &self.operand {
            let ordered = Operand::At { node: *node, view: view.transpose(&perm) };
            self.operand = low.copy(ordered, &shape, dtype, line);
        }
        let (b, f) = (self.batch.len(), self.free.len());
        (self.batch, self.free, self.contract) =
            ((0..b).collect(), (b..b + f).collect(), (b + f..shape.len()).collect());
        self.shape = shape;
    }
}

/// The strides of the product `dims` written into `out`, and the operands, copied where need be.
pub(crate) fn lower_dot(
    low: &mut Lowering,
    dims: &DotDims,
    (a, a_shape): (Operand, &[usize]),
    (b, b_shape): (Operand, &[usize]),
    out: &View,
    dtype: DType,
    line: &'static Location<'static>,
) -> Result<(DotLayout, Operand, Operand)> {
    // Contracted axes may be walked in any order, as long as both sides agree: take the left operand's.
    let mut pairs: Vec<(usize, usize)> =
        dims.lhs_contract.iter().copied().zip(dims.rhs_contract.iter().copied()).collect();
    pairs.sort_unstable();
    let side = |operand, shape: &[usize], batch: &[usize], contract: Vec<usize>| Side {
        operand,
        shape: shape.to_vec(),
        batch: batch.to_vec(),
        free: other_axes(shape.len(), &[batch, &contract].concat()),
        contract,
    };
    let mut a = side(a, a_shape, &dims.lhs_batch, pairs.iter().map(|p| p.0).collect());
    let mut b = side(b, b_shape, &dims.rhs_batch, pairs.iter().map(|p| p.1).collect());
    for side in [&mut a, &mut b] {
        if side.strides().is_none() {
            side.straighten(low, dtype, line);
        }
    }
    let (batch, free_a, rank) = (a.batch.len(), a.free.len(), out.shape.len());
    let rows: Vec<usize> = (batch..batch + free_a).collect();
    let columns: Vec<usize> = (batch + free_a..rank).collect();
    let in_memory = |view| known(view, "the operand of a product in memory", line);
    let (view_a, view_b) = (in_memory(a.view())?, in_memory(b.view())?);
    let one_stride = |found| known(found, "one stride for each side of a product", line);
    let ((a_row, a_col), (b_col, b_row)) = (one_stride(a.strides())?, one_stride(b.strides())?);
    // `dot_result` chose a view where both merge.
    let c = one_stride(merged_stride(out, &rows).zip(merged_stride(out, &columns)))?;
    let layout = DotLayout {
        m: a.length(&a.free),
        n: b.length(&b.free),
        k: a.length(&a.contract),
        a: (a_row, a_col),
        b: (b_row, b_col),
        c,
        batch: (0..batch)
            .map(|i| {
                let strides = [view_a.strides[a.batch[i]], view_b.strides[b.batch[i]], out.strides[i]];
                (out.shape[i], strides)
            })
            .collect(),
    };
    Ok((layout, a.operand, b.operand))
}

/// The view of a result of this shape whose transpose by `perm` is dense.
pub(crate) fn placed(shape: &[usize], perm: Option<&[usize]>) -> View {
    let Some(perm) = perm else { return View::contiguous(shape) };
    let transposed: Vec<usize> = perm.iter().map(|&p| shape[p]).collect();
    View::contiguous(&transposed).transpose(&inverse_permutation(perm))
}

/// As `placed`, where one stride still walks all rows and one all columns; else dense.
pub(crate) fn dot_result(dims: &DotDims, lhs_rank: usize, shape: &[usize], perm: Option<&[usize]>) -> View {
    let view = placed(shape, perm);
    let columns = lhs_rank - dims.lhs_contract.len();
    let rows: Vec<usize> = (dims.lhs_batch.len()..columns).collect();
    let columns: Vec<usize> = (columns..shape.len()).collect();
    let merges = merged_stride(&view, &rows).is_some() && merged_stride(&view, &columns).is_some();
    if merges { view } else { View::contiguous(shape) }
}
