//! Loops over rows: a group of threads holds a row in registers and reduces it.

use crate::codegen::body::Members;
use crate::codegen::context::Context;
use crate::codegen::kernel::{Code, Launch, Value};
use crate::codegen::limits::{MAX_BLOCK_THREADS, WARP, has_few_registers};
use crate::codegen::loops::column_reduce::{ColumnReduction, column_blocks};
use crate::codegen::loops::segment_reduce::SegmentReduction;
use crate::codegen::loops::{amax, column_reduce, segment_reduce};
use crate::codegen::prefetch;
use crate::codegen::store::put;
use crate::codegen::thread_mapping::ThreadMapping;
use bilevel_graph::Result;
use bilevel_plan::{Operand, Place, Role, StorageType};

/// The maximum number of columns per thread, and the number of rows up to which each column has a thread.
const MAX_COLUMNS_PER_THREAD: usize = 8;
const MAX_FEW_ROWS: usize = 32;
/// The registers of a thread for the row that is prefetched, of a block with many registers per thread and with few.
const PREFETCH_REGISTERS: [usize; 2] = [48, 16];
/// Threads per block for short rows.
const BLOCK: usize = 128;
/// The maximum row length.
pub const MAX_ROW_LENGTH: usize = MAX_BLOCK_THREADS * MAX_COLUMNS_PER_THREAD;

/// The distribution of rows over threads.
#[derive(Clone, Copy)]
pub struct RowThreads {
    /// Elements of a row.
    pub length: usize,
    /// Threads that share a row.
    pub threads: usize,
    /// Threads of a block.
    pub block: usize,
}

impl RowThreads {
    /// Distributes `n` elements in rows of this length.
    pub fn of((n, length): (usize, usize)) -> Self {
        let deep = if n <= MAX_FEW_ROWS * length { 1 } else { MAX_COLUMNS_PER_THREAD };
        // An argmax may have longer rows than a sum.
        let threads = length.div_ceil(deep).next_power_of_two().min(MAX_BLOCK_THREADS);
        // More threads than a warp can only reduce as a whole block.
        RowThreads { length, threads, block: if threads > WARP { threads } else { BLOCK } }
    }

    /// Returns the rows per block.
    pub fn together(self) -> usize {
        self.block / self.threads
    }

    /// Returns the thread mapping.
    pub fn mapping(self) -> ThreadMapping {
        ThreadMapping::row(self.length, self.threads)
    }
}

/// The reductions of a loop over rows.
#[derive(Default)]
pub struct RowReductions {
    /// Reductions within rows.
    pub inner: Vec<SegmentReduction>,
    /// Column reductions in registers.
    pub columns: Vec<ColumnReduction>,
    /// Other reductions, with the address to which their operand is stored for a later kernel.
    pub kept: Vec<(usize, Place)>,
    /// Amax members.
    pub amax: Vec<usize>,
}

impl RowReductions {
    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty() && self.columns.is_empty() && self.kept.is_empty() && self.amax.is_empty()
    }
}

/// A store of a loop over rows.
struct RowStore {
    place: Place,
    storage: StorageType,
    value: Value,
    /// Whether the value has one element per row, rather than one per column.
    per_row: bool,
}

impl RowStore {
    fn emit(self, code: &mut Code, sharing: RowThreads, live: Option<&str>) {
        let pointer = code.output(self.place, self.storage, 0);
        if self.per_row {
            let when = live.into_iter().chain(["t == 0"]).collect::<Vec<_>>().join(" && ");
            code.line(format!("if ({when}) {pointer}[row] = {};", self.value));
        } else {
            let row = format!("{pointer} + row * {}", sharing.length);
            put(code, sharing.mapping(), (&row, self.storage), &self.value, live.as_slice());
        }
    }
}

/// The C text that gives each group of threads its row.
struct RowIndex {
    /// The lines that define `row`.
    lines: Vec<String>,
    /// The condition under which the row exists, if a group of threads may have none.
    live: Option<String>,
    /// The condition, after the number of a turn, under which the turn has rows.
    exists: String,
}

impl RowIndex {
    /// The row of turn `turn`, of `rows` rows in all.
    fn new(code: &Code, sharing: RowThreads, turn: &str, rows: &str) -> Self {
        let together = sharing.together();
        if together == 1 {
            let lines = vec![format!("const U row = {turn};")];
            return RowIndex { lines, live: None, exists: format!(" < {rows}") };
        }
        let lines = vec![
            format!("const U given = (U){turn} * {together} + {} / {};", code.thread(), sharing.threads),
            // Threads without a row participate, so that whole warps can reduce.
            format!("const U row = given < {rows} ? given : {rows} - 1;"),
        ];
        RowIndex { lines, live: Some(format!("given < {rows}")), exists: format!(" * {together} < {rows}") }
    }

    fn live(&self) -> Option<&str> {
        self.live.as_deref()
    }
}

/// Returns the kernel of a loop over `n / length` rows that stores the members in `stored` and the operands or results
/// of reductions. With column reductions, a block processes many rows in sequence.
pub fn rows(
    context: Context,
    (n, length): (usize, usize),
    stored: &[usize],
    reductions: &RowReductions,
) -> Result<Launch> {
    let sharing = RowThreads::of((n, length));
    let (block, count) = (sharing.block, n / length);
    let RowReductions { inner, columns, amax, .. } = reductions;
    let mut code = Code::new(context.dialect);
    code.reaches(n);
    context.guard(&mut code, stored);
    let rows = code.count(count as u64);
    let thread = code.thread();
    code.head(format!("const U t = {thread} % {};", sharing.threads));
    let (turn, blocks) = if columns.is_empty() {
        (code.block(), count.div_ceil(sharing.together()))
    } else {
        ("turn", column_blocks((n, length)))
    };
    let index = RowIndex::new(&code, sharing, turn, &rows);
    if columns.is_empty() {
        index.lines.iter().for_each(|line| code.head(line));
    }
    let mut members = Members::new(context, sharing.mapping(), &mut code);
    if !columns.is_empty() {
        // With few blocks, no other work hides the latency of loads: the next row is prefetched while the current one
        // is computed.
        members.prefetch.registers = PREFETCH_REGISTERS[usize::from(has_few_registers(block))];
    }
    let stores = row_stores(context, &mut members, stored, reductions)?;
    let mut reduced = vec![];
    for sink in inner {
        let operand = &context.schedule.nodes[sink.sink].operands[0];
        reduced.push((members.operand(sink.sink, operand, sink.dtype)?, sink));
    }
    let mut down = vec![];
    for sink in columns {
        let operand = &context.schedule.nodes[sink.sink].operands[0];
        down.push((members.operand(sink.sink, operand, sink.dtype)?, sink));
    }
    amax::join(&mut members, amax)?;
    let (prefetch, sums) = (std::mem::take(&mut members.prefetch.parts), members.sums);
    column_reduce::join(&mut code, sharing, index.live(), &down);
    stores.into_iter().for_each(|store| store.emit(&mut code, sharing, index.live()));
    segment_reduce::write(&mut code, sharing, index.live(), &reduced);
    if !columns.is_empty() {
        let body = code.take_body();
        column_reduce::begin(&mut code, sharing, &down);
        prefetch::first(&mut code, &prefetch, &index.lines);
        code.with_blocks(format!("for (U turn = {}; turn{}; turn += ", code.block(), index.exists), ") {");
        index.lines.iter().for_each(|line| code.line(line));
        prefetch::next(&mut code, &prefetch, &index.lines, &index.exists);
        code.append(body);
        if !inner.is_empty() || sums == 1 {
            // The copy of this row, and the partial sums of its warps, are no longer read.
            code.barrier();
        }
        code.line("}");
        column_reduce::end(&mut code, sharing, &down);
    }
    amax::end(&mut code, context, amax, block)?;
    Ok(code.launch([blocks, 1], block as u32))
}

/// Computes the members in `stored`, and the operands that later kernels reduce, and returns their stores.
fn row_stores(
    context: Context,
    members: &mut Members,
    stored: &[usize],
    RowReductions { kept, .. }: &RowReductions,
) -> Result<Vec<RowStore>> {
    let mut stores = vec![];
    for &member in stored {
        let value = members.stored(member)?;
        let per_row = context.schedule.role(member) == Some(Role::Row);
        let value = if per_row { Value::One(value) } else { Value::Lanes(value) };
        for place in context.stores(member)? {
            stores.push(RowStore { place, storage: context.storage(member), value: value.clone(), per_row });
        }
    }
    for &(sink, place) in kept {
        let node = &context.schedule.nodes[sink];
        let per_row = context.schedule.role(sink) != Some(Role::Reduction { full: true });
        let value = members.operand(sink, &node.operands[0], node.dtype)?;
        stores.push(RowStore { place, storage: node.dtype.into(), value, per_row });
    }
    Ok(stores)
}

/// Returns the operand of a reduction, if it is already in memory.
pub fn read_from_memory<'a>(context: &Context<'a>, sink: usize) -> Option<&'a Operand> {
    let operand = &context.schedule.nodes[sink].operands[0];
    let memory = context.schedule.access(sink, operand) == Some(bilevel_plan::Access::Memory);
    memory.then_some(operand)
}
