//! Sorting, segment maxima and dense factorisations of tensors.

use crate::DType;
use crate::ir::graph::{make, refuse};
use crate::ir::op::{BlockOp, Op};
use crate::tensor::Tensor;

impl Tensor {
    /// The order of the elements along an axis, from the smallest to the largest, as their places (`i32`); equal ones in the order of
    /// their places, NaN last. Its derivative is structurally zero.
    ///
    /// ```
    /// use bilevel_graph::{Array, DType, Graph, Reference};
    /// let g = Graph::new();
    /// let x = g.input("x", [4], DType::F64);
    /// let at = Array::from_f64([4], vec![2.0, 7.0, 1.0, 2.0])?;
    /// assert_eq!(Reference::evaluate(&g, &[(x, at)], &[x.argsort(0)])?[0].to_f64(), [2.0, 0.0, 3.0, 1.0]);
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    #[track_caller]
    pub fn argsort(self, axis: usize) -> Tensor {
        let Some(perm) = self.with_last(axis) else {
            return refuse("argsort", &[self], format!("there is no axis {axis}"));
        };
        make(self.graph_id(), "argsort", Op::Block(BlockOp::ArgSort), &[self.transpose(&perm)], None).transpose(perm)
    }

    /// The elements along an axis from the smallest to the largest, NaN last. The derivative goes to the place that an element came
    /// from.
    ///
    /// ```
    /// use bilevel_graph::{Array, DType, Graph, Reference, gradient};
    /// let g = Graph::new();
    /// let x = g.input("x", [3], DType::F64);
    /// let median = x.sort(0).index(0, 1);
    /// let dx = gradient(median, &[x])?[0].unwrap();
    /// let at = Array::from_f64([3], vec![2.0, 7.0, 1.0])?;
    /// let found = Reference::evaluate(&g, &[(x, at)], &[median, dx])?;
    /// assert_eq!(found[0].item(), Some(2.0));
    /// assert_eq!(found[1].to_f64(), [1.0, 0.0, 0.0]);
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    #[track_caller]
    pub fn sort(self, axis: usize) -> Tensor {
        let Some(perm) = self.with_last(axis) else {
            return refuse("sort", &[self], format!("there is no axis {axis}"));
        };
        let rows = self.transpose(&perm);
        let places = make(self.graph_id(), "sort", Op::Block(BlockOp::ArgSort), &[rows], None);
        rows.gather(places, self.rank() - 1).transpose(perm)
    }

    /// The permutation that swaps an axis with the last, its own inverse.
    fn with_last(self, axis: usize) -> Option<Vec<usize>> {
        let mut perm: Vec<usize> = (0..self.rank()).collect();
        let last = perm.len().checked_sub(1)?;
        (axis <= last).then(|| {
            perm.swap(axis, last);
            perm
        })
    }

    /// The largest of these updates for each index in `0..size`, as [`scatter_add`](Tensor::scatter_add) adds them: −∞,
    /// or the least integer, if there is none. The derivative goes to the first largest. An index out of range fails
    /// the run.
    ///
    /// ```
    /// use bilevel_graph::{Array, DType, Graph, Reference, gradient};
    /// let g = Graph::new();
    /// let (x, segments) = (g.input("x", [4], DType::F64), g.input("segments", [4], DType::I32));
    /// let largest = x.scatter_max(segments, 0, 3);
    /// let dx = gradient(largest.index(0, 2), &[x])?[0].unwrap();
    /// let at = [
    ///     (x, Array::from_f64([4], vec![1.0, 5.0, 3.0, 3.0])?),
    ///     (segments, Array::from_i32([4], vec![2, 0, 2, 2])?),
    /// ];
    /// let found = Reference::evaluate(&g, &at, &[largest, dx])?;
    /// assert_eq!(found[0].to_f64(), [5.0, f64::NEG_INFINITY, 3.0]);
    /// assert_eq!(found[1].to_f64(), [0.0, 0.0, 1.0, 0.0]);
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter_max(self, indices: Tensor, batch: usize, size: usize) -> Tensor {
        let (shape, outer) = (self.shape(), indices.shape());
        if outer.len() < batch || shape.len() < outer.len() || shape[..outer.len()] != outer[..] {
            return refuse(
                "scatter_max",
                &[self, indices],
                "the updates' first axes must be those of the indices".into(),
            );
        }
        let count: usize = outer[batch..].iter().product();
        let inner = &shape[outer.len()..];
        // The updates of one place next to each other: [batch.., inner.., k].
        let rank = batch + inner.len() + 1;
        let perm: Vec<usize> = (0..batch).chain(batch + 1..rank).chain([batch]).collect();
        let updates = self.reshape([&shape[..batch], &[count], inner].concat()).transpose(&perm);
        let rows = updates.shape();
        let axes: Vec<usize> = (0..batch).chain([rank - 1]).collect();
        let indices = indices.check_index(size).reshape([&shape[..batch], &[count]].concat()).broadcast(axes, &rows);
        let op = Op::Block(BlockOp::ScatterArgMax { size });
        let places = make(self.graph_id(), "scatter_max", op, &[indices, updates], None);
        let least = if self.dtype() == DType::I32 { f64::from(i32::MIN) } else { f64::NEG_INFINITY };
        let none = updates.constant_like(least, [&rows[..rank - 1], &[1]].concat());
        let found = updates.concat(&[none], rank - 1).gather(places, rank - 1);
        found.transpose(crate::shape::inverse_permutation(&perm))
    }

    /// Lower triangular L with L·Lᵀ = A for matrices A `[.., n, n]`, of which only the lower triangle is read. From the first column
    /// on at which A is not positive definite, L is NaN: no run fails, as none does for the root of a negative number.
    ///
    /// ```
    /// use bilevel_graph::{Array, DType, Graph, Reference};
    /// let g = Graph::new();
    /// let a = g.input("a", [2, 2], DType::F64);
    /// let at = Array::from_f64([2, 2], vec![4.0, 2.0, 2.0, 10.0])?;
    /// assert_eq!(Reference::evaluate(&g, &[(a, at)], &[a.cholesky()])?[0].to_f64(), [2.0, 0.0, 1.0, 3.0]);
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    #[track_caller]
    pub fn cholesky(self) -> Tensor {
        make(self.graph_id(), "cholesky", Op::Block(BlockOp::Cholesky), &[self], None)
    }

    /// X with A·X = B, or Aᵀ·X = B if `transposed`, for this A `[.., n, n]`, of which only the lower or the upper triangle is read,
    /// and B `[.., n, m]`. A zero on the diagonal gives infinities or NaN.
    ///
    /// ```
    /// use bilevel_graph::{Array, DType, Graph, Reference};
    /// let g = Graph::new();
    /// let (a, b) = (g.input("a", [2, 2], DType::F64), g.input("b", [2, 1], DType::F64));
    /// // A·X = B for a positive definite A: two substitutions.
    /// let l = a.cholesky();
    /// let x = l.triangular_solve(l.triangular_solve(b, true, false), true, true);
    /// let at = [
    ///     (a, Array::from_f64([2, 2], vec![4.0, 2.0, 2.0, 10.0])?),
    ///     (b, Array::from_f64([2, 1], vec![8.0, 22.0])?),
    /// ];
    /// assert_eq!(Reference::evaluate(&g, &at, &[x])?[0].to_f64(), [1.0, 2.0]);
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    #[track_caller]
    pub fn triangular_solve(self, b: Tensor, lower: bool, transposed: bool) -> Tensor {
        let op = Op::Block(BlockOp::TriangularSolve { lower, transposed });
        make(self.graph_id(), "triangular_solve", op, &[self, b], None)
    }
}
