//! Loops over rows: a group of threads holds a row in registers and reduces it.

use crate::codegen::body::Members;
use crate::codegen::context::Context;
use crate::codegen::kernel::{Code, Launch};
use crate::codegen::loops::column_reduce::{ColumnReduction, column_blocks};
use crate::codegen::loops::segment_reduce::SegmentReduction;
use crate::codegen::loops::{amax, column_reduce, segment_reduce};
use crate::codegen::prefetch;
use crate::codegen::store::put;
use crate::codegen::thread_mapping::ThreadMapping;
use bilevel_graph::Result;
use bilevel_plan::{Operand, Place, Role};

/// The maximum number of columns per thread, and the number of rows up to which each column has a thread.
const MAX_COLUMNS_PER_THREAD: usize = 8;
const MAX_FEW_ROWS: usize = 32;
/// Threads per block for short rows.
const BLOCK: usize = 128;
/// Threads of a warp, which reduce by shuffles.
pub(crate) const WARP: usize = 32;
/// The maximum number of threads per block.
const MAX_BLOCK_THREADS: usize = 1024;
/// The maximum row length.
pub(crate) const MAX_ROW_LENGTH: usize = MAX_BLOCK_THREADS * MAX_COLUMNS_PER_THREAD;

/// The distribution of rows over threads.
#[derive(Clone, Copy)]
pub(crate) struct RowThreads {
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
pub(crate) struct RowReductions {
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
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty() && self.columns.is_empty() && self.kept.is_empty() && self.amax.is_empty()
    }
}

/// Returns the kernel of a loop over `n / length` rows that stores the members in `stored` and the operands or results
/// of reductions. With column reductions, a block processes many rows in sequence.
pub(crate) fn rows(
    context: Context,
    (n, length): (usize, usize),
    stored: &[usize],
    RowReductions { inner, columns, kept, amax }: &RowReductions,
) -> Result<Launch> {
    let sharing = RowThreads::of((n, length));
    let (threads, block, together) = (sharing.threads, sharing.block, sharing.together());
    let (mapping, count) = (sharing.mapping(), n / length);
    let mut code = Code::default();
    code.reaches(n);
    context.guard(&mut code, stored);
    let rows = code.count(count as u64);
    code.head(format!("const U t = threadIdx.x % {threads};"));
    let (turn, blocks) = if columns.is_empty() {
        ("blockIdx.x", count.div_ceil(together))
    } else {
        ("turn", column_blocks((n, length)))
    };
    let mut start = vec![];
    let live = if together == 1 {
        start.push(format!("const U row = {turn};"));
        None
    } else {
        start.push(format!("const U given = (U){turn} * {together} + threadIdx.x / {threads};"));
        // Threads without a row participate, so that whole warps can reduce.
        start.push(format!("const U row = given < {rows} ? given : {rows} - 1;"));
        Some(format!("given < {rows}"))
    };
    if columns.is_empty() {
        start.iter().for_each(|line| code.head(line));
    }
    let mut members = Members::new(context, mapping, &mut code);
    if !columns.is_empty() {
        // With few blocks, no other work hides the latency of loads: the next row is prefetched while the current one
        // is computed.
        members.prefetch.registers = if block > 512 { 16 } else { 48 };
    }
    let mut stores = vec![];
    for &member in stored {
        let value = members.stored(member)?;
        let full = context.schedule.role(member) != Some(Role::Row);
        for place in context.stores(member)? {
            stores.push((place, context.cell(member), full.then(|| format!("{value}[j]")).ok_or(value.clone())));
        }
    }
    for &(sink, place) in kept {
        let node = &context.schedule.nodes[sink];
        let full = context.schedule.role(sink) == Some(Role::Reduction { full: true });
        let value = members.operand(sink, &node.operands[0], node.dtype)?;
        stores.push((place, node.dtype.into(), if full { Ok(value) } else { Err(value) }));
    }
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
    column_reduce::join(&mut code, sharing, live.as_deref(), &down);
    for (place, cell, value) in stores {
        let pointer = code.pointer(place, cell, 0);
        match value {
            Ok(lane) => {
                let row = format!("{pointer} + row * {length}");
                put(&mut code, mapping, (&row, cell), &lane, live.as_deref().as_slice());
            }
            Err(number) => {
                let when = live.iter().cloned().chain(["t == 0".to_string()]).collect::<Vec<_>>().join(" && ");
                code.line(format!("if ({when}) {pointer}[row] = {number};"));
            }
        }
    }
    segment_reduce::write(&mut code, sharing, live.as_deref(), &reduced);
    if !columns.is_empty() {
        let body = code.take_body();
        column_reduce::begin(&mut code, sharing, &down);
        let first = if together == 1 { "turn".to_string() } else { format!("turn * {together}") };
        prefetch::first(&mut code, &prefetch, &start);
        code.line(format!("for (U turn = blockIdx.x; {first} < {rows}; turn += gridDim.x) {{"));
        start.iter().for_each(|line| code.line(line));
        prefetch::next(
            &mut code,
            &prefetch,
            &start,
            &format!("{} < {rows}", first.replace("turn", "(turn + gridDim.x)")),
        );
        code.line(body.trim());
        if !inner.is_empty() || sums == 1 {
            // The copy of this row, and the partial sums of its warps, are no longer read.
            code.line("__syncthreads();");
        }
        code.line("}");
        column_reduce::end(&mut code, sharing, &down);
    }
    amax::end(&mut code, context, amax, block)?;
    Ok(code.launch([blocks, 1], block as u32))
}

/// Returns the operand of a reduction, if it is already in memory.
pub(crate) fn read_from_memory<'a>(context: &Context<'a>, sink: usize) -> Option<&'a Operand> {
    let operand = &context.schedule.nodes[sink].operands[0];
    let memory = context.schedule.access(sink, operand) == Some(bilevel_plan::Access::Memory);
    memory.then_some(operand)
}
