//! Sinks of a loop over rows that reduce its columns, in registers from row to row.
//!
//! With B blocks, each of which takes R rows at a time, and x what a sink reads,
//!
//! p\[b, c\] = ⊕ᵢ x\[rᵢ, c\]   over rows r = R·(b + B·turn) + slot,   y\[c\] = ⊕_b p\[b, c\]:
//!
//! a thread holds the same columns of every row it comes by, joins each with what it has of the rows before, and x
//! itself is never written. What blocks leave is [folded](crate::codegen::loops::reduce_finalize). The order is the
//! same in every run.

use crate::codegen::kernel::{Cell, Code, c_type};
use crate::codegen::loops::reduction_shape::ReductionShape;
use crate::codegen::loops::rows::RowThreads;
use crate::codegen::store::put;
use bilevel_graph::{DType, ReduceOp};
use bilevel_plan::Place;

/// Rows of a block at least: what it leaves is as much as a row, and is written and read again.
const MIN_BLOCK_ROWS: usize = 4;
/// Blocks at most: more than any GPU runs at once, and few enough to fold.
const MAX_BLOCKS: usize = 1024;

/// A sink that reduces columns.
pub(crate) struct ColumnReduction {
    /// The member.
    pub sink: usize,
    /// What joins two elements.
    pub op: ReduceOp,
    /// Their type, and that of the result.
    pub dtype: DType,
    /// Where the results of blocks go.
    pub place: Place,
}

/// True if a reduction is that of the columns of `n` elements in rows of this length, so many that it takes two passes
/// in any case.
pub(crate) fn is_by_columns(structure: &ReductionShape, (n, length): (usize, usize)) -> bool {
    n > 0 && *structure == ReductionShape::new(&[n / length, length], &[0]) && structure.parts() > 1
}

/// How many blocks such a loop has.
pub(crate) fn column_blocks((n, length): (usize, usize)) -> usize {
    let together = RowThreads::of((n, length)).together();
    let turns = (n / length).div_ceil(together);
    let each = MIN_BLOCK_ROWS.div_ceil(together).max(turns.div_ceil(MAX_BLOCKS));
    turns.div_ceil(each)
}

/// The registers of a thread that are left for results of columns.
pub(crate) struct Registers {
    lanes: usize,
    left: usize,
}

impl Registers {
    /// In a loop over this many elements in rows of this length. A thread of the largest block has 64 in all, of others
    /// at least twice as many.
    pub fn new(rows: (usize, usize)) -> Self {
        let sharing = RowThreads::of(rows);
        Registers { lanes: sharing.mapping().lanes(), left: if sharing.block > 512 { 16 } else { 40 } }
    }

    /// Takes those of one more reduction, if there are enough.
    pub fn take(&mut self, dtype: DType) -> bool {
        let registers = self.lanes * dtype.size().div_ceil(4);
        let enough = registers <= self.left;
        self.left -= if enough { registers } else { 0 };
        enough
    }
}

/// Joins the row at hand to what a thread has, where `live` holds, if anything; each sink with the text of lane j of
/// what it reads.
pub(crate) fn join(code: &mut Code, sharing: RowThreads, live: Option<&str>, sinks: &[(String, &ColumnReduction)]) {
    // A lane beyond the end of the row joins what stands in there, and is never looked at.
    let when = live.map_or(String::new(), |live| format!("if ({live}) "));
    for (number, (value, ColumnReduction { op, .. })) in sinks.iter().enumerate() {
        let own = format!("column{number}[j]");
        code.lanes(sharing.mapping().lanes(), format!("{when}{own} = {op:?}::join({own}, {value});"));
    }
}

/// Before the first row.
pub(crate) fn begin(code: &mut Code, sharing: RowThreads, sinks: &[(String, &ColumnReduction)]) {
    let lanes = sharing.mapping().lanes();
    for (number, (_, ColumnReduction { op, dtype, .. })) in sinks.iter().enumerate() {
        let c = c_type(*dtype);
        code.line(format!("{c} column{number}[{lanes}];"));
        code.lanes(lanes, format!("column{number}[j] = {op:?}::first<{c}>();"));
    }
}

/// After the last row: a block leaves a row of results for each sink. All threads of the block must come by.
pub(crate) fn end(code: &mut Code, sharing: RowThreads, sinks: &[(String, &ColumnReduction)]) {
    let RowThreads { length, threads, block } = sharing;
    let (mapping, together) = (sharing.mapping(), sharing.together());
    if together > 1 {
        let size = sinks.iter().map(|(_, sink)| sink.dtype.size()).max().unwrap_or(1);
        code.line(format!("__shared__ __align__(16) unsigned char slots[{}];", together * length * size));
    }
    for (number, (_, ColumnReduction { op, dtype, place, .. })) in sinks.iter().enumerate() {
        let (pointer, cell, own) = (code.pointer(*place, *dtype, 0), Cell::Of(*dtype), format!("column{number}[j]"));
        if together == 1 {
            put(code, mapping, (&format!("{pointer} + blockIdx.x * {length}"), cell), &own, &[]);
            continue;
        }
        // Rows that were taken at the same time are joined in their order.
        let c = c_type(*dtype);
        code.line("{");
        code.line(format!("{c}* const slot = ({c}*)slots;"));
        if number > 0 {
            // Nobody reads those of the sink before any more.
            code.line("__syncthreads();");
        }
        put(code, mapping, (&format!("slot + threadIdx.x / {threads} * {length}"), cell), &own, &[]);
        code.line("__syncthreads();");
        code.line(format!("for (U k = threadIdx.x; k < {length}; k += {block}) {{"));
        code.line(format!("{c} s = slot[k];"));
        code.line(format!("for (u32 i = 1; i < {together}; ++i) s = {op:?}::join(s, slot[i * {length} + k]);"));
        code.line(format!("{pointer}[blockIdx.x * {length} + k] = s;"));
        code.line("}");
        code.line("}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_several_rows_each_and_are_no_more_than_can_be_folded() {
        assert_eq!(column_blocks((1576 * 768, 768)), 394);
        assert_eq!(column_blocks((130 * 768, 768)), 33);
        assert_eq!(column_blocks((3000 * 40, 40)), 188, "16 rows at a time");
        assert_eq!(column_blocks((1_000_000 * 768, 768)), 1024);
    }

    #[test]
    fn sums_over_all_rows_alone_are_by_columns() {
        let of = |shape: &[usize], reduced: &[usize], length| {
            is_by_columns(&ReductionShape::new(shape, reduced), (shape.iter().product(), length))
        };
        assert!(of(&[1576, 768], &[0], 768));
        assert!(of(&[8, 197, 768], &[0, 1], 768));
        assert!(!of(&[8, 197, 768], &[0], 768), "some rows stay apart");
        assert!(!of(&[8, 197, 768], &[0, 1, 2], 768), "one number");
        assert!(!of(&[5, 768], &[0], 768), "one pass does for few rows");
    }

    #[test]
    fn results_of_columns_leave_registers_for_everything_else() {
        let of = |length, dtype| {
            let mut registers = Registers::new((1000 * length, length));
            (0..100).filter(|_| registers.take(dtype)).count()
        };
        assert_eq!((of(768, DType::F32), of(768, DType::F64)), (6, 3));
        assert_eq!((of(8192, DType::F32), of(8192, DType::F64)), (2, 1));
        assert_eq!(of(1 << 20, DType::F32), 0, "a row that nobody holds whole");
    }
}
