//! The placement of parts along an axis after a reshape.
//!
//! With a the product of the axes before the sharded one and c of those after it, an element i along the axis begins at i·c within its
//! block of n·c. An axis of the result that also has a before it, and c' after it, has the same parts at i·c/c', if
//! that is whole.

use crate::partition::placement::Sharding;

/// The parts of the result, if every rank's part is one along some axis of it.
pub(crate) fn reshaped(at: &Sharding, from: &[usize], to: &[usize]) -> Option<Sharding> {
    let (before, after) = sides(from, at.axis);
    // An axis of one element has no parts.
    let mut axes = (0..to.len()).filter(|&axis| to[axis] > 1 && sides(to, axis).0 == before);
    let axis = axes.find(|&axis| at.parts.iter().all(|n| (n * after).is_multiple_of(sides(to, axis).1)))?;
    let parts: Vec<usize> = at.parts.iter().map(|n| n * after / sides(to, axis).1).collect();
    Some(Sharding { axis, parts: parts.into() })
}

/// The products of the axes before and after one.
fn sides(shape: &[usize], axis: usize) -> (usize, usize) {
    (shape[..axis].iter().product(), shape[axis + 1..].iter().product())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(axis: usize, parts: &[usize]) -> Sharding {
        Sharding { axis, parts: parts.into() }
    }

    #[test]
    fn the_first_of_merged_or_split_axes_keeps_its_parts() {
        assert_eq!(reshaped(&at(0, &[1, 1]), &[2, 3], &[6]), Some(at(0, &[3, 3])));
        assert_eq!(reshaped(&at(0, &[3, 3]), &[6], &[2, 3]), Some(at(0, &[1, 1])));
        assert_eq!(reshaped(&at(0, &[3, 3]), &[6], &[1, 6, 1]), Some(at(1, &[3, 3])));
        assert_eq!(reshaped(&at(1, &[2, 1]), &[2, 3], &[2, 3, 1]), Some(at(1, &[2, 1])));
        assert_eq!(reshaped(&at(1, &[2, 2]), &[3, 4, 5], &[3, 2, 2, 5]), Some(at(1, &[1, 1])));
    }

    #[test]
    fn parts_that_interleave_or_end_within_an_element_have_no_axis() {
        assert_eq!(reshaped(&at(1, &[2, 1]), &[2, 3], &[6]), None);
        assert_eq!(reshaped(&at(0, &[4, 2]), &[6], &[2, 3]), None);
        assert_eq!(reshaped(&at(0, &[1, 1]), &[2, 3], &[3, 2]), None);
    }
}
