//! Column reductions in loops over rows, accumulated in registers.
//!
//! With B blocks of R rows at a time, and x the operand,
//!
//! p\[b, c\] = ⊕ᵢ x\[rᵢ, c\]   over rows r = R·(b + B·turn) + slot,   y\[c\] = ⊕_b p\[b, c\]:
//!
//! a thread has the same columns of all its rows and accumulates them, so x is never stored. The [second
//! pass](crate::codegen::loops::reduce_finalize) combines the blocks. The order is deterministic.

use crate::codegen::kernel::{Code, Value, c_type};
use crate::codegen::limits::{RESIDENT_BLOCKS, has_few_registers};
use crate::codegen::loops::reduction_shape::ReductionShape;
use crate::codegen::loops::rows::RowThreads;
use crate::codegen::store::put;
use bilevel_graph::{DType, ReduceOp};
use bilevel_plan::{Place, StorageType};

/// The minimum number of rows per block: its partial result is as large as a row, and is written and read again.
const MIN_BLOCK_ROWS: usize = 4;

/// A column reduction.
pub struct ColumnReduction {
    /// The member.
    pub sink: usize,
    /// The operator.
    pub op: ReduceOp,
    /// The element type of operand and result.
    pub dtype: DType,
    /// The address of the partial results.
    pub place: Place,
}

/// Returns true if a reduction is over the columns of `n` elements in rows of this length, and so large that it takes
/// two passes anyway.
pub fn is_by_columns(structure: &ReductionShape, (n, length): (usize, usize)) -> bool {
    n > 0 && *structure == ReductionShape::new(&[n / length, length], &[0]) && structure.parts() > 1
}

/// Returns the number of blocks of such a loop.
pub fn column_blocks((n, length): (usize, usize)) -> usize {
    let together = RowThreads::of((n, length)).together();
    let turns = (n / length).div_ceil(together);
    let each = MIN_BLOCK_ROWS.div_ceil(together).max(turns.div_ceil(RESIDENT_BLOCKS));
    turns.div_ceil(each)
}

/// The registers of a thread for accumulators, of a block with many registers per thread and with few.
const ACCUMULATOR_REGISTERS: [usize; 2] = [40, 16];

/// The registers of a thread left for accumulators.
pub struct Registers {
    lanes: usize,
    left: usize,
}

impl Registers {
    /// Creates the budget for a loop over this many elements in rows of this length.
    pub fn new(rows: (usize, usize)) -> Self {
        let sharing = RowThreads::of(rows);
        let left = ACCUMULATOR_REGISTERS[usize::from(has_few_registers(sharing.block))];
        Registers { lanes: sharing.mapping().lanes(), left }
    }

    /// Reserves the registers of one more reduction, if there are enough.
    pub fn take(&mut self, dtype: DType) -> bool {
        let registers = self.lanes * dtype.size().div_ceil(4);
        let enough = registers <= self.left;
        self.left -= if enough { registers } else { 0 };
        enough
    }
}

/// Accumulates the current row, if `live` holds; each reduction has the expression of lane j of its operand.
pub fn join(code: &mut Code, sharing: RowThreads, live: Option<&str>, sinks: &[(Value, &ColumnReduction)]) {
    // A lane outside the row accumulates an arbitrary element, which is never read.
    let when = live.map_or(String::new(), |live| format!("if ({live}) "));
    for (number, (value, ColumnReduction { op, .. })) in sinks.iter().enumerate() {
        let own = format!("column{number}[j]");
        let join = code.join(*op, &own, value);
        code.lanes(sharing.mapping().lanes(), format!("{when}{own} = {join};"));
    }
}

/// Emits the accumulators before the first row.
pub fn begin(code: &mut Code, sharing: RowThreads, sinks: &[(Value, &ColumnReduction)]) {
    let lanes = sharing.mapping().lanes();
    for (number, (_, ColumnReduction { op, dtype, .. })) in sinks.iter().enumerate() {
        let c = c_type(*dtype);
        code.line(format!("{c} column{number}[{lanes}];"));
        let first = code.first(*op, c);
        code.lanes(lanes, format!("column{number}[j] = {first};"));
    }
}

/// Emits the stores of a block's partial results after the last row. Must be reached by every thread (contains
/// `__syncthreads`).
pub fn end(code: &mut Code, sharing: RowThreads, sinks: &[(Value, &ColumnReduction)]) {
    let RowThreads { length, threads, block: size } = sharing;
    let (thread, block) = (code.thread(), code.block());
    let (mapping, together) = (sharing.mapping(), sharing.together());
    if together > 1 {
        let size = sinks.iter().map(|(_, sink)| sink.dtype.size()).max().unwrap_or(1);
        code.line(code.shared_bytes("slots", together * length * size));
    }
    for (number, (_, ColumnReduction { op, dtype, place, .. })) in sinks.iter().enumerate() {
        let (pointer, storage, own) =
            (code.output(*place, *dtype, 0), StorageType::from(*dtype), Value::Lanes(format!("column{number}")));
        if together == 1 {
            put(code, mapping, (&format!("{pointer} + {block} * {length}"), storage), &own, &[]);
            continue;
        }
        // Rows processed at the same time are combined in order.
        let c = c_type(*dtype);
        code.line("{");
        code.line(format!("{c}* const slot = ({c}*)slots;"));
        if number > 0 {
            // The slots of the previous reduction are no longer read.
            code.barrier();
        }
        put(code, mapping, (&format!("slot + {thread} / {threads} * {length}"), storage), &own, &[]);
        code.barrier();
        code.line(format!("for (U k = {thread}; k < {length}; k += {size}) {{"));
        code.line(format!("{c} s = slot[k];"));
        let join = code.join(*op, "s", format!("slot[i * {length} + k]"));
        code.line(format!("for (u32 i = 1; i < {together}; ++i) s = {join};"));
        code.line(format!("{pointer}[{block} * {length} + k] = s;"));
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
