//! The shape of a reduction, and how threads share its work.

use crate::codegen::limits::{RESIDENT_BLOCKS, VECTOR, WARP};
use bilevel_plan::Run;

/// The axes of a reduction in row-major order, with adjacent axes of one kind merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReductionShape {
    /// The merged axes.
    pub axes: Vec<Axis>,
}

/// Adjacent axes that are all kept or all reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Elements along them.
    pub length: usize,
    /// Whether they are kept.
    pub kept: bool,
}

/// Threads of a block if they are mapped to results, and the possible numbers of results side by side.
pub const BLOCK: usize = 256;
const SIDES: [usize; 3] = [32, 16, 8];
/// Threads of a block if they share results.
pub const SHARED_BLOCK: usize = 128;
/// The maximum number of parts of a split reduction: another kernel combines them.
const MAX_PARTS: usize = 256;
/// The minimum number of elements of a part.
const MIN_PART_ELEMENTS: usize = 32;

impl ReductionShape {
    /// Returns the shape of a reduction over these axes.
    pub fn new(shape: &[usize], reduced: &[usize]) -> Self {
        let mut axes: Vec<Axis> = vec![];
        for (axis, &length) in shape.iter().enumerate().filter(|(_, length)| **length != 1) {
            let kept = !reduced.contains(&axis);
            match axes.last_mut() {
                Some(last) if last.kept == kept => last.length *= length,
                _ => axes.push(Axis { length, kept }),
            }
        }
        ReductionShape { axes }
    }

    fn count(&self, kept: bool) -> usize {
        self.axes.iter().filter(|axis| axis.kept == kept).map(|axis| axis.length).product()
    }

    /// Returns the number of results.
    pub fn kept(&self) -> usize {
        self.count(true)
    }

    /// Returns the number of elements per result.
    pub fn reduced(&self) -> usize {
        self.count(false)
    }

    /// Returns true if consecutive elements belong to different results.
    pub fn beside(&self) -> bool {
        self.axes.last().is_some_and(|axis| axis.kept)
    }

    /// Returns the row length of a pure column reduction.
    pub fn columns(&self) -> Option<usize> {
        match self.axes[..] {
            [rows, columns] if !rows.kept && columns.kept => Some(columns.length),
            _ => None,
        }
    }

    /// Returns the shape without this many leading elements, all kept; `None` if some are reduced, or an axis crosses
    /// the boundary.
    pub fn without_leading(&self, count: usize) -> Option<ReductionShape> {
        let (mut axes, mut missing) = (self.axes.iter().copied(), count);
        let mut rest = vec![];
        while missing > 1 {
            let axis = axes.next().filter(|axis| axis.kept && axis.length > 0)?;
            if missing.is_multiple_of(axis.length) {
                missing /= axis.length;
            } else if axis.length.is_multiple_of(missing) {
                rest.push(Axis { length: axis.length / missing, kept: true });
                missing = 1;
            } else {
                return None;
            }
        }
        rest.extend(axes);
        Some(ReductionShape { axes: rest })
    }

    /// Returns the runs of the kept or of the reduced axes.
    pub fn runs(&self, kept: bool) -> Vec<Run> {
        let mut stride = 1;
        let mut runs = vec![];
        for axis in self.axes.iter().rev() {
            if axis.kept == kept {
                runs.insert(0, Run { length: axis.length, stride });
            }
            stride *= axis.length as isize;
        }
        runs
    }

    /// Returns the number of threads that share a result.
    pub fn sharing(&self) -> usize {
        match self.reduced().next_power_of_two() {
            few @ 0..=WARP => few.max(1),
            _ => SHARED_BLOCK,
        }
    }

    /// Returns the vector width of a thread: within one result, or across as many results. Vectors never cross the end
    /// of an axis.
    pub fn lanes(&self) -> usize {
        let whole = self.axes.last().is_some_and(|axis| axis.length.is_multiple_of(VECTOR));
        let few = SIDES[SIDES.len() - 1] * VECTOR;
        let enough = if self.beside() { self.kept() >= few } else { self.reduced() >= 2 * SHARED_BLOCK * VECTOR };
        if whole && enough { VECTOR } else { 1 }
    }

    /// Returns the number of threads side by side, chosen to leave the fewest idle.
    pub fn side(&self) -> usize {
        let (kept, lanes) = (self.kept(), self.lanes());
        let places = |side: &usize| kept.next_multiple_of(side * lanes);
        SIDES.into_iter().min_by_key(places).unwrap_or(SIDES[0])
    }

    /// Returns the number of parts of a split reduction.
    pub fn parts(&self) -> usize {
        let blocks = if self.beside() {
            self.kept().div_ceil(self.side() * self.lanes())
        } else {
            self.kept() * self.sharing() / SHARED_BLOCK
        };
        let each = if self.beside() { MIN_PART_ELEMENTS } else { MIN_PART_ELEMENTS * SHARED_BLOCK };
        let most = self.reduced() / each;
        (RESIDENT_BLOCKS / blocks.max(1)).clamp(1, MAX_PARTS).min(most.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_axes_of_a_kind_are_one_and_lengths_of_one_are_none() {
        let structure = ReductionShape::new(&[4, 1, 3, 5, 7], &[0, 3, 4]);
        let axis = |length, kept| Axis { length, kept };
        assert_eq!(structure.axes, [axis(4, false), axis(3, true), axis(35, false)]);
        assert_eq!((structure.kept(), structure.reduced(), structure.beside()), (3, 140, false));
        assert_eq!(structure.runs(false), [Run { length: 4, stride: 105 }, Run { length: 35, stride: 1 }]);
    }

    #[test]
    fn a_reduction_within_rows_has_the_shape_of_one_row() {
        let inner =
            |shape: &[usize], reduced: &[usize], rows| ReductionShape::new(shape, reduced).without_leading(rows);
        let of = |shape: &[usize], reduced: &[usize]| Some(ReductionShape::new(shape, reduced));
        assert_eq!(inner(&[6, 4, 5], &[1], 6), of(&[4, 5], &[0]));
        assert_eq!(inner(&[6, 4, 5], &[2], 6), of(&[4, 5], &[1]), "rows and a kept axis of a row are one axis");
        assert_eq!(inner(&[2, 3, 4, 5, 6], &[3], 6), of(&[4, 5, 6], &[1]));
        assert_eq!(inner(&[6, 20], &[1], 6), of(&[20], &[0]));
        assert_eq!(inner(&[4, 5], &[0], 1), of(&[4, 5], &[0]), "a single row");
        assert_eq!(inner(&[6, 4, 5], &[0], 6), None);
        assert_eq!(inner(&[6, 4, 5], &[0, 2], 6), None);
        assert_eq!(inner(&[6, 4, 5], &[2], 10), None, "a row begins in the middle of an axis");
    }

    #[test]
    fn threads_take_several_neighbours_where_there_are_many_and_none_of_them_is_across_an_end() {
        let lanes = |shape: &[usize], reduced: &[usize]| ReductionShape::new(shape, reduced).lanes();
        assert_eq!(lanes(&[100, 160], &[0]), VECTOR);
        assert_eq!(lanes(&[100, 162], &[0]), 1, "some would be of two rows");
        assert_eq!(lanes(&[100, 16], &[0]), 1, "most threads would have nothing to do");
        assert_eq!(lanes(&[64, 5000], &[1]), VECTOR);
        assert_eq!(lanes(&[8, 64, 784], &[0, 2]), VECTOR);
        assert_eq!(lanes(&[8, 64, 49], &[0, 2]), 1);
    }

    #[test]
    fn as_many_threads_stand_side_by_side_as_leave_the_fewest_without_a_result() {
        let side = |kept: usize| ReductionShape::new(&[5000, kept], &[0]).side();
        assert_eq!([768, 160, 192, 40, 10].map(side), [32, 8, 16, 16, 16]);
    }
}
