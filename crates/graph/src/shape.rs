//! Arithmetic of shapes.

/// Number of elements of a shape; `usize::MAX` if it would be more.
pub fn element_count(shape: &[usize]) -> usize {
    shape.iter().fold(1, |count: usize, &length| count.saturating_mul(length))
}

/// Returns true for shapes small enough that sizes in bytes and strides can be computed without overflow, empty axes
/// aside.
pub(crate) fn is_countable(shape: &[usize]) -> bool {
    shape.iter().fold(1, |count: usize, &length| count.saturating_mul(length.max(1))) <= isize::MAX as usize / 8
}

/// Strides, in elements, of a row-major array of this shape.
///
/// ```
/// assert_eq!(bilevel_graph::shape::row_major_strides(&[2, 3, 4]), [12, 4, 1]);
/// ```
pub fn row_major_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// The common shape of two operands: aligned at the last axis, an axis of 1 stretches to the other's. `None` if they do
/// not fit, or if both would stretch because one lacks an axis: `[n, 1]` and `[n]` rarely mean `[n, n]`.
///
/// ```
/// use bilevel_graph::shape::broadcast_shapes;
/// assert_eq!(broadcast_shapes(&[5, 4, 3], &[4, 1]), Some(vec![5, 4, 3]));
/// assert_eq!(broadcast_shapes(&[4, 1], &[1, 4]), Some(vec![4, 4]));
/// assert_eq!(broadcast_shapes(&[4, 1], &[4]), None);
/// assert_eq!(broadcast_shapes(&[2], &[3]), None);
/// ```
pub fn broadcast_shapes(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    stretched(a, b).filter(|shape| !lacks_an_axis(a, b, shape))
}

/// The reason why two shapes have no [common one](broadcast_shapes), and the remedy.
pub(crate) fn no_common_shape(a: &[usize], b: &[usize]) -> String {
    match stretched(a, b) {
        Some(shape) => {
            let short = if a.len() < b.len() { a } else { b };
            let every = [&vec![1; shape.len() - short.len()][..], short].concat();
            format!(
                "both operands would be repeated, to {shape:?}, because {short:?} has fewer axes; reshape explicitly: \
                 {short:?} to {every:?} if every combination is meant, else one operand to the other's shape"
            )
        }
        None => "the shapes do not broadcast to one: aligned at the last axis, each axis must be equal or 1".into(),
    }
}

/// Returns true if both operands repeat to fill `shape`, one of them along axes it does not have.
fn lacks_an_axis(a: &[usize], b: &[usize], shape: &[usize]) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    long != shape && shape[..long.len() - short.len()].iter().any(|&length| length != 1)
}

fn stretched(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let axis = |s: &[usize], i: usize| if i + s.len() >= rank { s[i + s.len() - rank] } else { 1 };
    (0..rank)
        .map(|i| match (axis(a, i), axis(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// The axes `0..rank` not in `axes`.
pub fn other_axes(rank: usize, axes: &[usize]) -> Vec<usize> {
    (0..rank).filter(|axis| !axes.contains(axis)).collect()
}

/// The permutation that undoes `perm`.
pub fn inverse_permutation(perm: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; perm.len()];
    for (i, &p) in perm.iter().enumerate() {
        inverse[p] = i;
    }
    inverse
}

/// Calls `visit` with every multi-index of a shape, in row-major order.
pub fn for_each_index(shape: &[usize], mut visit: impl FnMut(&[usize])) {
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0; shape.len()];
    loop {
        visit(&index);
        let mut axis = shape.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}
