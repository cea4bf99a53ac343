//! Which elements of an array a reduction makes one, and how threads share that work.

use bilevel_plan::Run;

/// Which elements are reduced to one: axes of the elements in row-major order, neighbours of a kind merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReductionShape {
    pub axes: Vec<Axis>,
}

/// Neighbouring axes that are all kept or all reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub length: usize,
    pub kept: bool,
}

/// Threads of a block in which results stand side by side, and how many may stand so.
pub(crate) const BLOCK: usize = 256;
const SIDES: [usize; 3] = [32, 16, 8];
/// Threads of a block in which they share results.
pub(crate) const SHARED_BLOCK: usize = 128;
/// Blocks worth having: as many as a large GPU runs at once.
const MIN_BLOCKS: usize = 1024;
/// A part of a reduction has at least this many elements.
const MIN_PART_ELEMENTS: usize = 32;
/// Neighbours that a thread takes at a time.
pub(crate) const LANES: usize = 4;

impl ReductionShape {
    /// Of a reduction over these axes of a shape.
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

    /// Number of results.
    pub fn kept(&self) -> usize {
        self.count(true)
    }

    /// Number of elements that become one.
    pub fn reduced(&self) -> usize {
        self.count(false)
    }

    /// True if neighbours go to different results.
    pub fn beside(&self) -> bool {
        self.axes.last().is_some_and(|axis| axis.kept)
    }

    /// The length of rows whose columns are reduced, where that is all there is.
    pub fn columns(&self) -> Option<usize> {
        match self.axes[..] {
            [rows, columns] if !rows.kept && columns.kept => Some(columns.length),
            _ => None,
        }
    }

    /// What is left of one of this many leading elements, all kept; `None` if something of them is reduced, or an axis
    /// lies across the border.
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

    /// The kept or the reduced axes, as runs over the elements.
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

    /// Threads that share a result, where they do.
    pub fn sharing(&self) -> usize {
        match self.reduced().next_power_of_two() {
            few @ 0..=32 => few.max(1),
            _ => SHARED_BLOCK,
        }
    }

    /// Neighbours that a thread takes at a time: all of one result, or of as many results. They never lie across the
    /// end of an axis.
    pub fn lanes(&self) -> usize {
        let whole = self.axes.last().is_some_and(|axis| axis.length.is_multiple_of(LANES));
        let few = SIDES[SIDES.len() - 1] * LANES;
        let enough = if self.beside() { self.kept() >= few } else { self.reduced() >= 2 * SHARED_BLOCK * LANES };
        if whole && enough { LANES } else { 1 }
    }

    /// Threads of a block that stand side by side, each with its neighbours: as many as leave the fewest without a
    /// result.
    pub fn side(&self) -> usize {
        let (kept, lanes) = (self.kept(), self.lanes());
        let places = |side: &usize| kept.next_multiple_of(side * lanes);
        SIDES.into_iter().min_by_key(places).unwrap_or(SIDES[0])
    }

    /// Into how many parts a reduction is cut.
    pub fn parts(&self) -> usize {
        let blocks = if self.beside() {
            self.kept().div_ceil(self.side() * self.lanes())
        } else {
            self.kept() * self.sharing() / SHARED_BLOCK
        };
        let each = if self.beside() { MIN_PART_ELEMENTS } else { MIN_PART_ELEMENTS * SHARED_BLOCK };
        let most = self.reduced() / each;
        (MIN_BLOCKS / blocks.max(1)).clamp(1, 256).min(most.max(1))
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
    fn what_is_reduced_within_rows_is_left_of_one_row() {
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
        assert_eq!(lanes(&[100, 160], &[0]), LANES);
        assert_eq!(lanes(&[100, 162], &[0]), 1, "some would be of two rows");
        assert_eq!(lanes(&[100, 16], &[0]), 1, "most threads would have nothing to do");
        assert_eq!(lanes(&[64, 5000], &[1]), LANES);
        assert_eq!(lanes(&[8, 64, 784], &[0, 2]), LANES);
        assert_eq!(lanes(&[8, 64, 49], &[0, 2]), 1);
    }

    #[test]
    fn as_many_threads_stand_side_by_side_as_leave_the_fewest_without_a_result() {
        let side = |kept: usize| ReductionShape::new(&[5000, kept], &[0]).side();
        assert_eq!([768, 160, 192, 40, 10].map(side), [32, 8, 16, 16, 16]);
    }
}
