//! Strided views of a node's memory. Transposes, broadcasts, slices, reversals and most reshapes are views and cost
//! nothing.

use bilevel_graph::shape::{element_count, row_major_strides};

/// Element (i₀, i₁, …) is at `offset + Σ iₐ·strides[a]`, in elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// Length of each axis.
    pub shape: Vec<usize>,
    /// The distance between neighbours along each axis, of any sign; 0 for a broadcast axis.
    pub strides: Vec<isize>,
    /// The offset of the first element.
    pub offset: isize,
}

impl View {
    /// A dense row-major array.
    pub fn contiguous(shape: &[usize]) -> Self {
        let strides = row_major_strides(shape).into_iter().map(|s| s as isize).collect();
        View { shape: shape.to_vec(), strides, offset: 0 }
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        element_count(&self.shape)
    }

    /// Returns true if row-major order of the view is memory order from offset 0.
    pub fn is_contiguous(&self) -> bool {
        self.offset == 0 && self.is_dense()
    }

    /// Returns true if row-major order of the view is memory order from its offset on.
    pub fn is_dense(&self) -> bool {
        let runs = self.runs();
        runs.len() <= 1 && runs.iter().all(|run| run.stride == 1)
    }

    /// Axis `a` of the result is axis `perm[a]`.
    pub fn transpose(&self, perm: &[usize]) -> Self {
        View {
            shape: perm.iter().map(|&p| self.shape[p]).collect(),
            strides: perm.iter().map(|&p| self.strides[p]).collect(),
            offset: self.offset,
        }
    }

    /// Broadcasts to this shape; axis `axes[a]` of the result is axis `a` of this view.
    pub fn broadcast(&self, axes: &[usize], shape: &[usize]) -> Self {
        let mut strides = vec![0; shape.len()];
        for (i, &axis) in axes.iter().enumerate() {
            strides[axis] = self.strides[i];
        }
        View { shape: shape.to_vec(), strides, offset: self.offset }
    }

    /// Takes every `step`-th element from `start` along each axis, up to `shape`.
    pub fn slice(&self, start: &[usize], step: &[usize], shape: &[usize]) -> Self {
        let offset: isize = start.iter().zip(&self.strides).map(|(&s, &stride)| s as isize * stride).sum();
        let strides = self.strides.iter().zip(step).map(|(&stride, &k)| stride * k as isize).collect();
        View { shape: shape.to_vec(), strides, offset: self.offset + offset }
    }

    /// Reverses these axes.
    pub fn reverse(&self, axes: &[usize]) -> Self {
        let mut view = self.clone();
        for &axis in axes.iter().filter(|&&axis| self.shape[axis] > 0) {
            view.offset += (view.shape[axis] as isize - 1) * view.strides[axis];
            view.strides[axis] = -view.strides[axis];
        }
        view
    }

    /// The same elements in another shape, if strides can express it.
    pub fn reshape(&self, shape: &[usize]) -> Option<Self> {
        if self.count() == 0 {
            return Some(View { offset: self.offset, ..View::contiguous(shape) });
        }
        // Split the maximal runs of the old shape into the axes of the new one, from the last.
        let mut runs = self.runs();
        let mut strides = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            if shape[axis] == 1 {
                continue;
            }
            let run = runs.last_mut()?;
            if run.length % shape[axis] != 0 {
                return None;
            }
            strides[axis] = run.stride;
            run.length /= shape[axis];
            run.stride *= shape[axis] as isize;
            if run.length == 1 {
                runs.pop();
            }
        }
        Some(View { shape: shape.to_vec(), strides, offset: self.offset })
    }

    /// Returns the view with neighbouring axes merged if one stride serves both, without axes of length 1.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = vec![];
        for (&length, &stride) in self.shape.iter().zip(&self.strides) {
            if length == 1 {
                continue;
            }
            match runs.last_mut() {
                Some(last) if last.stride == stride * length as isize => {
                    last.length *= length;
                    last.stride = stride;
                }
                _ => runs.push(Run { length, stride }),
            }
        }
        runs
    }
}

/// `length` elements with this stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of elements.
    pub length: usize,
    /// Distance between neighbours.
    pub stride: isize,
}

/// Returns the single stride that traverses these axes of a view in row-major order, if there is one.
pub(crate) fn merged_stride(view: &View, axes: &[usize]) -> Option<isize> {
    let part = View {
        shape: axes.iter().map(|&a| view.shape[a]).collect(),
        strides: axes.iter().map(|&a| view.strides[a]).collect(),
        offset: 0,
    };
    match part.runs()[..] {
        [] => Some(1),
        [run] => Some(run.stride),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(view: &View) -> Vec<isize> {
        let mut found = vec![];
        bilevel_graph::shape::for_each_index(&view.shape, |index| {
            found.push(view.offset + index.iter().zip(&view.strides).map(|(&i, &s)| i as isize * s).sum::<isize>());
        });
        found
    }

    #[test]
    fn a_reshape_of_a_view_keeps_the_order_of_its_elements_or_says_no() {
        let base = View::contiguous(&[4, 6, 5]);
        let views = [
            base.clone(),
            base.transpose(&[1, 0, 2]),
            base.slice(&[1, 0, 0], &[1, 2, 1], &[2, 3, 5]),
            base.reverse(&[0]),
            View::contiguous(&[6]).broadcast(&[1], &[4, 6, 5]),
        ];
        for view in views {
            for shape in
                [vec![view.count()], vec![view.shape[0], view.count() / view.shape[0]], vec![1, view.count(), 1]]
            {
                if let Some(reshaped) = view.reshape(&shape) {
                    assert_eq!(elements(&reshaped), elements(&view), "{view:?} to {shape:?}");
                }
            }
        }
        assert!(base.transpose(&[1, 0, 2]).reshape(&[24, 5]).is_none());
        assert!(base.transpose(&[1, 0, 2]).reshape(&[6, 2, 2, 5]).is_some());
        assert!(base.reshape(&[120]).unwrap().is_contiguous());
    }
}
