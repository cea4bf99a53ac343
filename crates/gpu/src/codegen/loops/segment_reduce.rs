//! Segment reductions: reductions within the rows of a loop.
//!
//! A row of l elements is an array of kept and reduced axes. With `kept(k)` the offset of result k's first element, and
//! `reduced(r)` the offset of its element r from there,
//!
//! y\[row·K + k\] = ⊕ᵣ x\[row·l + kept(k) + reduced(r)\],   k < K, r < R, K·R = l.
//!
//! The threads of a row hold it in registers, so they copy it to shared memory first. There, adjacent threads of a warp
//! share the elements of one result and combine them by shuffles, in a deterministic order.

use crate::codegen::kernel::{CStorage, Code, Value, c_type, decode};
use crate::codegen::limits::{SMEM_BYTES, WARP};
use crate::codegen::loops::reduction_shape::ReductionShape;
use crate::codegen::loops::rows::RowThreads;
use crate::codegen::store::put;
use bilevel_graph::{DType, ReduceOp};
use bilevel_plan::{Place, StorageType};

/// The maximum shared memory of a block's rows in bytes: reductions across warps need up to 2 KiB in addition.
const MAX_SMEM_BYTES: usize = SMEM_BYTES - (4 << 10);

/// A segment reduction.
pub struct SegmentReduction {
    /// The member.
    pub sink: usize,
    /// The operator.
    pub op: ReduceOp,
    /// The element type of operand and result.
    pub dtype: DType,
    /// The address of the results.
    pub place: Place,
    /// The shape of the reduction within a row.
    pub row: ReductionShape,
}

/// Returns the shape within a row, if a reduction of `n` elements stays within rows of this length and those of a block
/// fit shared memory.
pub fn within_rows(structure: &ReductionShape, (n, length): (usize, usize), dtype: DType) -> Option<ReductionShape> {
    let sharing = RowThreads::of((n, length));
    let bytes = sharing.together().checked_mul(length)?.checked_mul(dtype.size())?;
    (n > 0 && bytes <= MAX_SMEM_BYTES).then(|| structure.without_leading(n / length)).flatten()
}

/// Returns the number of threads that share a result: a power of two within a warp.
fn sharers(row: &ReductionShape, threads: usize) -> usize {
    let to_spare = threads / row.kept().next_power_of_two();
    to_spare.min(row.reduced().next_power_of_two()).clamp(1, WARP)
}

/// Emits the reductions of rows, each with the expression of lane j of its operand. Results are stored if `live` holds.
/// Must be reached by every thread (contains `__syncthreads`).
pub fn write(code: &mut Code, sharing: RowThreads, live: Option<&str>, sinks: &[(Value, &SegmentReduction)]) {
    let RowThreads { length, threads, .. } = sharing;
    let mapping = sharing.mapping();
    let Some(size) = sinks.iter().map(|(_, sink)| sink.dtype.size()).max() else { return };
    code.head(code.shared_bytes("held", sharing.together() * length * size));
    // Reductions of the same value share one copy.
    let mut copies: Vec<(&Value, Vec<&SegmentReduction>)> = vec![];
    for (value, sink) in sinks {
        match copies.iter_mut().find(|(other, _)| *other == value) {
            Some((_, readers)) => readers.push(sink),
            None => copies.push((value, vec![sink])),
        }
    }
    for (number, (value, readers)) in copies.iter().enumerate() {
        let Some(storage) = readers.first().map(|sink| StorageType::from(sink.dtype)) else { continue };
        let c = storage.name();
        let own = if sharing.together() == 1 {
            String::new()
        } else {
            format!(" + {} / {threads} * {length}", code.thread())
        };
        let copy = format!("x{number}");
        code.line(format!("{c}* const {copy} = ({c}*)held{own};"));
        if number > 0 {
            // The previous copy is no longer read.
            code.barrier();
        }
        put(code, mapping, (&copy, storage), value, &[]);
        code.barrier();
        readers.iter().for_each(|sink| reduced(code, threads, live, sink, &copy));
    }
}

/// Emits one reduction of the row whose copy has this name.
fn reduced(code: &mut Code, threads: usize, live: Option<&str>, sink: &SegmentReduction, copy: &str) {
    let SegmentReduction { op, dtype, place, row, .. } = sink;
    let (kept, reduced, sharers) = (row.kept(), row.reduced(), sharers(row, threads));
    let (c, pointer) = (c_type(*dtype), code.output(*place, *dtype, 0));
    let element = format!("{} + {}", decode(&row.runs(true), "k"), decode(&row.runs(false), "r"));
    let mut conditions: Vec<String> = live.map(String::from).into_iter().collect();
    let joined = code.join(*op, "s", format!("{copy}[{element}]"));
    let join = |first: &str| format!("for (u32 r = {first}; r < {reduced}; r += {sharers}) s = {joined};");
    let first = code.first(*op, c);
    if sharers == 1 {
        code.line(format!("for (u32 k = t; k < {kept}; k += {threads}) {{"));
        code.line(format!("{c} s = {first};"));
        code.line(join("0"));
    } else {
        // There are enough threads for all results, and idle ones participate, so that whole warps can reduce.
        code.line("{");
        code.line(format!("const u32 k = t / {sharers};"));
        code.line(format!("{c} s = {first};"));
        code.line(format!("if (k < {kept}) {}", join(&format!("t % {sharers}"))));
        let all = code.across(*op, sharers, "s");
        code.line(format!("s = {all};"));
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
