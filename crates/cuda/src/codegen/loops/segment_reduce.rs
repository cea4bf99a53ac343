//! Sinks of a loop over rows that stay within rows, reduced where a row is at hand.
//!
//! A row of l elements is an array of kept and reduced axes. With `kept(k)` the place of result k's first element in
//! it, and `reduced(r)` how far from there its element r is,
//!
//! y\[row·K + k\] = ⊕ᵣ x\[row·l + kept(k) + reduced(r)\],   k < K, r < R, K·R = l.
//!
//! The threads of a row hold it in registers, each some columns, so they lay it out in shared memory first. There,
//! neighbouring threads of a warp take the elements of one result in turn, as many of them as there are threads to
//! spare, and join what they have by shuffles: an order that is the same in every run.

use crate::codegen::kernel::{Cell, Code, c_type, decode};
use crate::codegen::loops::reduction_shape::ReductionShape;
use crate::codegen::loops::rows::{RowThreads, WARP};
use crate::codegen::store::put;
use bilevel_graph::{DType, ReduceOp};
use bilevel_plan::Place;

/// Bytes of shared memory that the rows of a block may take: a kernel can have 48 KiB, of which sums across warps need
/// up to 2.
const MAX_SMEM_BYTES: usize = 44 << 10;

/// A sink that stays within rows.
pub(crate) struct SegmentReduction {
    /// The member.
    pub sink: usize,
    /// What joins two elements.
    pub op: ReduceOp,
    /// Their type, and that of the result.
    pub dtype: DType,
    /// Where the results go.
    pub place: Place,
    /// Which elements of a row are reduced to one.
    pub row: ReductionShape,
}

/// Which elements of a row are reduced to one, where a reduction of `n` elements stays within rows of this length, and
/// those of a block fit shared memory.
pub(crate) fn within_rows(
    structure: &ReductionShape,
    (n, length): (usize, usize),
    dtype: DType,
) -> Option<ReductionShape> {
    let sharing = RowThreads::of((n, length));
    let bytes = sharing.together().checked_mul(length)?.checked_mul(dtype.size())?;
    (n > 0 && bytes <= MAX_SMEM_BYTES).then(|| structure.without_leading(n / length)).flatten()
}

/// Threads that share a result of a row: a power of two within a warp, so that all of them stay side by side.
fn sharers(row: &ReductionShape, threads: usize) -> usize {
    let to_spare = threads / row.kept().next_power_of_two();
    to_spare.min(row.reduced().next_power_of_two()).clamp(1, WARP)
}

/// Writes the reductions of rows, each with the text of lane j of what it reads. Results are stored where `live` holds,
/// if anything. All threads of the block must come by.
pub(crate) fn write(code: &mut Code, sharing: RowThreads, live: Option<&str>, sinks: &[(String, &SegmentReduction)]) {
    let RowThreads { length, threads, .. } = sharing;
    let mapping = sharing.mapping();
    let Some(size) = sinks.iter().map(|(_, sink)| sink.dtype.size()).max() else { return };
    code.head(format!("__shared__ __align__(16) unsigned char held[{}];", sharing.together() * length * size));
    // Sinks that read the same value read one copy of it.
    let mut copies: Vec<(&str, Vec<&SegmentReduction>)> = vec![];
    for (value, sink) in sinks {
        match copies.iter_mut().find(|(other, _)| other == value) {
            Some((_, readers)) => readers.push(sink),
            None => copies.push((value, vec![sink])),
        }
    }
    for (number, (value, readers)) in copies.iter().enumerate() {
        let Some(cell) = readers.first().map(|sink| Cell::Of(sink.dtype)) else { continue };
        let c = cell.name();
        let own =
            if sharing.together() == 1 { String::new() } else { format!(" + threadIdx.x / {threads} * {length}") };
        let copy = format!("x{number}");
        code.line(format!("{c}* const {copy} = ({c}*)held{own};"));
        if number > 0 {
            // Nobody reads the copy before any more.
            code.line("__syncthreads();");
        }
        put(code, mapping, (&copy, cell), value, &[]);
        code.line("__syncthreads();");
        readers.iter().for_each(|sink| reduced(code, threads, live, sink, &copy));
    }
}

/// One reduction of the row whose copy has this name.
fn reduced(code: &mut Code, threads: usize, live: Option<&str>, sink: &SegmentReduction, copy: &str) {
    let SegmentReduction { op, dtype, place, row, .. } = sink;
    let (kept, reduced, sharers) = (row.kept(), row.reduced(), sharers(row, threads));
    let (c, pointer) = (c_type(*dtype), code.pointer(*place, *dtype, 0));
    let element = format!("{} + {}", decode(&row.runs(true), "k"), decode(&row.runs(false), "r"));
    let mut conditions: Vec<String> = live.map(String::from).into_iter().collect();
    let join = |first: &str| {
        format!("for (u32 r = {first}; r < {reduced}; r += {sharers}) s = {op:?}::join(s, {copy}[{element}]);")
    };
    if sharers == 1 {
        code.line(format!("for (u32 k = t; k < {kept}; k += {threads}) {{"));
        code.line(format!("{c} s = {op:?}::first<{c}>();"));
        code.line(join("0"));
    } else {
        // There are threads for all results at once, and those without one go along, so that all of a warp can add up.
        code.line("{");
        code.line(format!("const u32 k = t / {sharers};"));
        code.line(format!("{c} s = {op:?}::first<{c}>();"));
        code.line(format!("if (k < {kept}) {}", join(&format!("t % {sharers}"))));
        code.line(format!("s = across<{op:?}, {sharers}>(s);"));
        conditions.extend([format!("k < {kept}"), format!("t % {sharers} == 0")]);
    }
    let when = if conditions.is_empty() { String::new() } else { format!("if ({}) ", conditions.join(" && ")) };
    code.line(format!("{when}{pointer}[row * {kept} + k] = s;"));
    code.line("}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_without_a_result_of_their_own_help_with_another() {
        let of = |shape: &[usize], reduced: &[usize], threads| sharers(&ReductionShape::new(shape, reduced), threads);
        assert_eq!(of(&[28, 28], &[0], 128), 4);
        assert_eq!(of(&[4, 5], &[0], 4), 1, "there are more results than threads");
        assert_eq!(of(&[40, 2], &[1], 128), 2, "no more than there are elements");
        assert_eq!(of(&[2, 4000], &[1], 1024), 32, "no more than a warp");
    }

    #[test]
    fn rows_that_do_not_fit_shared_memory_are_reduced_elsewhere() {
        let inner =
            |rows: usize, dtype| within_rows(&ReductionShape::new(&[rows, 80, 100], &[1]), (rows * 8000, 8000), dtype);
        assert_eq!(inner(3, DType::F32), Some(ReductionShape::new(&[80, 100], &[0])));
        assert_eq!(inner(3, DType::F64), None);
        assert_eq!(inner(0, DType::F32), None, "nothing at all");
    }
}
