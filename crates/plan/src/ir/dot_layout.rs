//! The strides of a batched matrix product. Axes that share a stride are merged; other operands are copied first.

use crate::internal_error::expect;
use crate::ir::node::Operand;
use crate::ir::view::{View, merged_stride};
use crate::lower::Lowering;
use crate::target::Target;
use bilevel_graph::shape::{inverse_permutation, other_axes};
use bilevel_graph::{DType, DotDims, Line, Precision, Result};

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

impl DotLayout {
    /// Returns the size and precision, without the strides.
    pub fn size(&self, precision: Precision) -> DotSize {
        let batch = self.batch.iter().map(|(length, _)| length).product();
        DotSize { batch, m: self.m, n: self.n, k: self.k, precision }
    }
}

/// The size of a batched matrix product, and its precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DotSize {
    /// Number of products.
    pub batch: usize,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// The length of the contracted axis.
    pub k: usize,
    /// The precision of the operands.
    pub precision: Precision,
}

impl DotSize {
    /// Returns the number of multiplications of the whole batch.
    pub fn multiplications(&self) -> usize {
        [self.m, self.n, self.k].into_iter().fold(self.batch, usize::saturating_mul)
    }
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

    /// Returns true if a single stride leads through the batch.
    fn walks_batch(&self) -> bool {
        self.view().is_some_and(|view| merged_stride(view, &self.batch).is_some())
    }

    /// Copies the operand into batch-major order, once for all products that need it so. The matrix axis with stride 1
    /// stays last, so that products with the matrix and with its transpose share the copy.
    fn straighten(&mut self, low: &mut Lowering, dtype: DType, line: Line) {
        let beside = |axes: &[usize]| self.view().zip(axes.last()).is_some_and(|(view, &axis)| view.strides[axis] == 1);
        let turned = beside(&self.free) && !beside(&self.contract);
        let (first, second) = if turned { (&self.contract, &self.free) } else { (&self.free, &self.contract) };
        let (b, f) = (self.batch.len(), first.len());
        let perm = [&self.batch[..], first, second].concat();
        let shape: Vec<usize> = perm.iter().map(|&a| self.shape[a]).collect();
        if let Operand::At { node, view } = &self.operand {
            let (node, view) = (*node, view.transpose(&perm));
            let key = (node, view.clone(), None);
            self.operand = match low.copies.parts.get(&key) {
                Some(&part) => low.dense(part),
                None => {
                    let copy = low.copy(Operand::At { node, view }, &shape, dtype, line);
                    copy.at().map(|(part, _)| low.copies.parts.insert(key, part));
                    copy
                }
            };
        }
        let (first, second): (Vec<usize>, Vec<usize>) = ((b..b + f).collect(), (b + f..shape.len()).collect());
        (self.free, self.contract) = if turned { (second, first) } else { (first, second) };
        self.batch = (0..b).collect();
        self.shape = shape;
    }
}

/// Returns the strides of the product `dims` written into `out`, and its operands, copied if necessary.
pub(crate) fn lower_dot(
    low: &mut Lowering,
    target: &Target,
    dims: &DotDims,
    (a, a_shape): (Operand, &[usize]),
    (b, b_shape): (Operand, &[usize]),
    (out, dtype, precision): (&View, DType, Precision),
    line: Line,
) -> Result<(DotLayout, Operand, Operand)> {
    // Contracted axes may be traversed in any order, as long as both sides agree: use the left operand's.
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
    let (batch, m, n, k) = (a.length(&a.batch), a.length(&a.free), b.length(&b.free), a.length(&a.contract));
    let size = DotSize { batch, m, n, k, precision };
    for side in [&mut a, &mut b] {
        if side.strides().is_none()
            || (target.can.one_batch_stride.is_some_and(|wants| wants(&size)) && !side.walks_batch())
        {
            side.straighten(low, dtype, line);
        }
    }
    let (batch, free_a, rank) = (a.batch.len(), a.free.len(), out.shape.len());
    let rows: Vec<usize> = (batch..batch + free_a).collect();
    let columns: Vec<usize> = (batch + free_a..rank).collect();
    let in_memory = |view| expect(view, "the operand of a product in memory", line);
    let (view_a, view_b) = (in_memory(a.view())?, in_memory(b.view())?);
    let one_stride = |found| expect(found, "one stride for each side of a product", line);
    let ((a_row, a_col), (b_col, b_row)) = (one_stride(a.strides())?, one_stride(b.strides())?);
    // `dot_result` chose a view in which both merge.
    let c = one_stride(merged_stride(out, &rows).zip(merged_stride(out, &columns)))?;
    let layout = DotLayout {
        m,
        n,
        k,
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

/// As `placed` if the rows and the columns each have one stride; otherwise dense.
pub(crate) fn dot_result(dims: &DotDims, lhs_rank: usize, shape: &[usize], perm: Option<&[usize]>) -> View {
    let view = placed(shape, perm);
    let columns = lhs_rank - dims.lhs_contract.len();
    let rows: Vec<usize> = (dims.lhs_batch.len()..columns).collect();
    let columns: Vec<usize> = (columns..shape.len()).collect();
    let merges = merged_stride(&view, &rows).is_some() && merged_stride(&view, &columns).is_some();
    if merges { view } else { View::contiguous(shape) }
}

#[cfg(test)]
mod tests {
    use super::DotSize;
    use crate::ir::node::{Elementwise, Kind};
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::{DType, DotDims, Graph, Program};

    /// A target whose products need one batch stride, or accept any.
    fn machine(one_stride: bool) -> Target {
        Target::PLAIN.with(|target| target.can.one_batch_stride = one_stride.then_some(|_: &DotSize| true))
    }

    #[test]
    fn heads_are_copied_once_for_all_products_if_the_target_wants_one_batch_stride() {
        let g = Graph::new();
        // Two images, five places, three heads of four.
        let [q, k] = ["q", "k"].map(|name| g.input(name, [2, 5, 12], DType::F32));
        let heads = |x: bilevel_graph::Tensor| x.reshape([2, 5, 3, 4]).transpose([0, 2, 1, 3]);
        let batched = |lhs_contract: usize, rhs_contract: usize| DotDims {
            lhs_contract: vec![lhs_contract],
            rhs_contract: vec![rhs_contract],
            lhs_batch: vec![0, 1],
            rhs_batch: vec![0, 1],
        };
        // The scores, and their derivative, which reads the same keys.
        let scores = heads(q).dot(heads(k), batched(3, 3));
        let back = scores.dot(heads(k), batched(3, 2));
        let program = Program::builder(&g).output("back", back).build().unwrap();
        for (one_stride, copies) in [(true, 2), (false, 0)] {
            let schedule = Schedule::new(&program, &machine(one_stride)).unwrap();
            let is_copy = |kind: &Kind| matches!(kind, Kind::Elementwise(Elementwise::Copy));
            let found = schedule.nodes.iter().filter(|node| is_copy(&node.kind)).count();
            assert_eq!(found, copies);
            for node in &schedule.nodes {
                if let Kind::Dot(layout, _) = &node.kind {
                    let is_packed = |side: usize| layout.batch[0].1[side] == 3 * layout.batch[1].1[side];
                    assert!(!one_stride || (is_packed(0) && is_packed(1)), "{layout:?}");
                }
            }
        }
    }
}
