//! Fused attention: a loop over rows between two `Bf16` products, such as the softmax and its derivative.
//!
//! C₁ = A₁·B₁,   G = f(C₁, …) row by row,   C₂ = G·B₂, for each of many small matrices.
//!
//! A block computes up to 64 whole rows of one matrix, 16 per warp. Their part of C₁ stays in accumulator registers,
//! where the loop turns it into G, which already is an operand fragment of the second product. Stored values of C₁ and
//! G are written through shared memory, and one array of the same shape is read through it, so that accesses are
//! coalesced. Warps synchronise only while they load B₁ and B₂, which they share.

use crate::codegen::gemm::batched_mma::{OperandLayout, first_row, is_small, written_at_once};
use bilevel_gpu::codegen::body::Members;
use bilevel_gpu::codegen::context::Context;
use bilevel_gpu::codegen::expr::rounded;
use bilevel_gpu::codegen::kernel::{CStorage, Code, Launch, decode};
use bilevel_gpu::codegen::limits::WARP;
use bilevel_gpu::codegen::load::SmemOperand;
use bilevel_gpu::codegen::naive_gemm::{batch_runs, reaches};
use bilevel_gpu::codegen::parts::Part;
use bilevel_gpu::codegen::thread_mapping::ThreadMapping;
use bilevel_graph::{Precision, Result};
use bilevel_plan::{Access, DotLayout, Group, Kind, Node, Operand, Role, StorageType, expect, internal_error};
use std::collections::BTreeSet;

/// Rows per warp, and per block.
const WARP_ROWS: usize = 16;
const WARPS: usize = 4;
const ROWS: usize = WARP_ROWS * WARPS;
const THREADS: usize = WARPS * WARP;
/// Columns of an MMA instruction, which is also the number of bf16 elements in 16 bytes.
const COLUMNS: usize = 8;
/// The maximum number of columns of the second product: its accumulators are in registers.
const MAX_OUTPUT_COLUMNS: usize = 128;
/// Elements of the first k per shared-memory tile.
const K_TILE: usize = 64;
/// Blocks per multiprocessor, so that one computes while another waits: registers suffice for rows up to this length,
/// and for one block less for longer rows.
const BLOCKS_PER_SM: u32 = 3;
const MAX_FULL_OCCUPANCY_ROW: usize = 208;

/// The maximum shared memory per block in bytes, available on every GPU with these instructions.
const MAX_SMEM_BYTES: usize = 96 << 10;

/// Returns true if these two products and the loop between them become one kernel. Not in `Tf32`, which needs twice the
/// shared memory, nor if the loop reads several arrays of the same shape: three kernels are faster then.
pub(crate) fn is_fused_attention(nodes: &[Node], product: usize, pass: &Group, next: usize) -> bool {
    let members = &pass.members;
    let (Kind::Dot(first, Precision::Bf16), Kind::Dot(second, Precision::Bf16)) =
        (&nodes[product].kind, &nodes[next].kind)
    else {
        return false;
    };
    let read = members.iter().flat_map(|&id| nodes[id].reads()).map(|(read, _)| read);
    let is_other = |&read: &usize| read != product && nodes[read].count() == nodes[product].count();
    let others: BTreeSet<usize> = read.filter(|read| is_other(read) && !members.contains(read)).collect();
    let is_bf16 = |id: usize| nodes[id].storage == StorageType::Bf16;
    let is_short = |id: usize| is_bf16(id) && nodes[id].reads().all(|(read, _)| is_bf16(read));
    let by_16_bytes = |layout: &DotLayout, id: usize, side: usize| {
        let offset = nodes[id].operands[side].at().map(|(_, view)| view.offset);
        offset
            .and_then(|offset| OperandLayout::new(layout, side, offset, StorageType::Bf16))
            .is_some_and(|operand_layout| operand_layout.at_once > 1)
    };
    others.len() <= 1
        && [first, second].into_iter().all(|layout| is_small(&layout.size(Precision::Bf16)))
        && second.n <= MAX_OUTPUT_COLUMNS
        && SmemLayout::new(first, second).bytes() <= MAX_SMEM_BYTES
        && first.n.is_multiple_of(COLUMNS)
        && is_short(product)
        && is_short(next)
        && by_16_bytes(first, product, 0)
        && by_16_bytes(first, product, 1)
        && by_16_bytes(second, next, 1)
}

/// One of the two products.
struct AttentionGemm<'a> {
    layout: &'a DotLayout,
    id: usize,
}

impl<'a> AttentionGemm<'a> {
    fn new(context: &Context<'a>, id: Option<usize>) -> Result<Self> {
        let layout = id.and_then(|id| match &context.schedule.nodes[id].kind {
            Kind::Dot(layout, _) => Some(AttentionGemm { layout, id }),
            _ => None,
        });
        layout.ok_or_else(|| internal_error("a product of a fused attention"))
    }

    /// Returns the number of accumulator fragments per thread.
    fn sums(&self) -> usize {
        columns(self.layout) / COLUMNS
    }

    /// Returns the layout of an operand, the expression of its first row, the number of rows to read, and the
    /// expression of how many exist.
    fn operand(
        &self,
        context: &Context,
        code: &mut Code,
        side: usize,
    ) -> Result<(OperandLayout, String, usize, String)> {
        let (layout, node) = (self.layout, &context.schedule.nodes[self.id]);
        let (read, view) = expect(node.operands[side].at(), "the memory of an operand", node.location)?;
        let operand_layout = expect(
            OperandLayout::new(layout, side, view.offset, StorageType::Bf16),
            "the layout of an operand",
            node.location,
        )?;
        let pointer = code.input(context.place(read)?, StorageType::Bf16, view.offset);
        let at = format!("{pointer} + ({})", decode(&batch_runs(layout, side), "item"));
        Ok(if side == 0 {
            (operand_layout, format!("{at} + (I)i * {}", layout.a.0), ROWS, "there".into())
        } else {
            (operand_layout, at, columns(layout), layout.n.to_string())
        })
    }
}

/// The shared memory of a block, in words.
struct SmemLayout {
    /// The row stride, chosen to avoid bank conflicts.
    row_stride: usize,
    /// Elements of the second k, all of which are in shared memory.
    deep: usize,
    /// The tiles of the operands of a product.
    operands: [usize; 2],
}

impl SmemLayout {
    fn new(first: &DotLayout, second: &DotLayout) -> Self {
        // Warps load two times eight columns at once.
        let tile = |rows: usize, deep: usize| {
            let words = deep / 2;
            ((rows + COLUMNS).next_multiple_of(2 * COLUMNS) * (words + 4)).max((rows + COLUMNS) * words)
        };
        let deep = second.k.next_multiple_of(2 * COLUMNS);
        let smem_b = tile(columns(first), K_TILE).max(tile(columns(second), deep));
        SmemLayout { row_stride: deep / 2 + 4, deep, operands: [tile(ROWS, K_TILE), smem_b] }
    }

    fn bytes(&self) -> usize {
        4 * (ROWS * self.row_stride + self.operands.iter().sum::<usize>())
    }
}

/// Returns the number of columns that a warp computes.
fn columns(layout: &DotLayout) -> usize {
    layout.n.next_multiple_of(COLUMNS)
}

/// The two products of a kernel, with what they need of its rows.
struct Attention<'a> {
    context: Context<'a>,
    first: AttentionGemm<'a>,
    second: AttentionGemm<'a>,
    smem: SmemLayout,
    /// The values to store, the second product's result aside.
    stored: Vec<usize>,
    /// Whether the second product's result is wanted.
    ends: bool,
}

/// Returns the kernel; `None` if none of its results is wanted.
pub(crate) fn fused_attention(context: Context, group: &Group) -> Result<Option<Launch>> {
    let (first, second) = (AttentionGemm::new(&context, group.gemm)?, AttentionGemm::new(&context, group.second_gemm)?);
    let mut stored = vec![];
    for id in group.members.iter().copied().filter(|&id| id != second.id && context.wants(id)) {
        if !context.stores(id)?.is_empty() {
            stored.push(id);
        }
    }
    let ends = context.wants(second.id);
    if !ends && stored.is_empty() || context.measures {
        return Ok(None);
    }
    let smem = SmemLayout::new(first.layout, second.layout);
    let attention = Attention { context, first, second, smem, stored, ends };
    let mut code = Code::new(context.dialect);
    attention.declare(&mut code);
    let smem_operand = smem_operand(&context, group).filter(|_| !attention.stored.contains(&attention.first.id));
    attention.first_product(&mut code, smem_operand)?;
    let before = code.take_body();
    let in_strip = smem_operand.map(|node| SmemOperand {
        node,
        row: format!("(const bf16*)(rows + (h * 8 + lane / 4) * {})", attention.smem.row_stride),
    });
    let next = ends.then_some(&attention.second);
    let left = rows(&context, &mut code, (&attention.first, &attention.stored), next, in_strip)?;
    let body = code.take_body();
    code.append(before);
    // The rows of a thread's fragment, one after the other, because registers do not suffice for both.
    code.line("#pragma unroll\n    for (int h = 0; h < 2; ++h) {");
    code.line("if (own >= there) break;");
    code.line("__syncwarp();");
    code.line("const int r = i + own + h * 8 + lane / 4;");
    code.line("const bool live = r - i < there;");
    let m = attention.first.layout.m;
    code.line(format!("const U row = item * {m} + min(r, {m} - 1);"));
    code.append(body);
    code.line("}");
    if ends {
        attention.second_product(&mut code, left)?;
    }
    Ok(Some(attention.launch(code)))
}

impl Attention<'_> {
    /// Emits the shared memory of a block, and its part of a matrix.
    fn declare(&self, code: &mut Code) {
        let (m, down) = (self.first.layout.m, self.blocks_per_matrix());
        let SmemLayout { row_stride, operands: [smem_a, _], .. } = self.smem;
        code.uses(Part::FusedAttention);
        reaches(code, self.first.layout);
        reaches(code, self.second.layout);
        code.line("extern __shared__ __align__(16) u32 smem[];");
        code.line(format!("u32 *const smem_a = smem + {}, *const smem_b = smem_a + {smem_a};", ROWS * row_stride));
        code.line(format!("const U item = blockIdx.x / {down};"));
        let [own, next] = ["part", "(part + 1)"].map(|part| first_row(part, m, down));
        code.line(format!("const int part = blockIdx.x % {down}, i = {own};"));
        code.line(format!("const int there = min({m}, {next}) - i, own = threadIdx.x / {WARP} * {WARP_ROWS};"));
        code.line(format!("const int lane = threadIdx.x % {WARP}, left = lane % 4 * 2;"));
        code.line(format!("u32* const rows = smem + own * {row_stride};"));
    }

    fn blocks_per_matrix(&self) -> usize {
        self.first.layout.m.div_ceil(ROWS)
    }

    /// Emits the first product, the loads that are in flight while the rows are computed, and the store of its result.
    fn first_product(&self, code: &mut Code, smem_operand: Option<usize>) -> Result<()> {
        let Attention { context, first, second, .. } = self;
        for (side, name) in [(0, "a"), (1, "b")] {
            let (operand_layout, from, rows, there) = first.operand(context, code, side)?;
            // A k that fits one tile is copied asynchronously, without registers.
            let (text, to) = match first.layout.k <= K_TILE {
                true => (async_tile(&operand_layout, rows, K_TILE), format!("smem_{name}, ")),
                false => (operand_layout.text(StorageType::Bf16, [rows, THREADS, K_TILE]), String::new()),
            };
            code.line(format!("{text} {name}({to}{from}, {there}, {});", first.layout.k));
        }
        if let Some(node) = smem_operand {
            self.copy_rows(code, RowCopy::Load, node)?;
        }
        code.line(format!("float sums[{}][4] = {{}};", first.sums()));
        code.line(format!("multiply<{}, {K_TILE}, {WARPS}>(a, smem_a, b, smem_b, sums, there);", first.layout.k));
        if smem_operand.is_some() {
            code.line("cp_async_wait_all();");
        }
        if self.ends {
            let (operand_layout, from, columns, there) = second.operand(context, code, 1)?;
            let text = async_tile(&operand_layout, columns, self.smem.deep);
            code.line(format!("{text} next(smem_b, {from}, {there}, {});", second.layout.k));
        }
        if self.stored.contains(&first.id) { self.store_fragment(code, first.id) } else { Ok(()) }
    }

    /// Emits the second product and the store of its result; `left` is a member whose rows its operand is.
    fn second_product(&self, code: &mut Code, left: Option<usize>) -> Result<()> {
        let Attention { context, second, .. } = self;
        code.line(format!("float found[{}][4] = {{}};", second.sums()));
        code.line("multiply_rows(sums, next, smem_b, found, there);");
        if let Some(node) = left {
            self.store_fragment(code, node)?;
        }
        let (layout, to) = (second.layout, code.output(context.place(second.id)?, context.storage(second.id), 0));
        let start = format!("{to} + ({}) + (I)i * {}", decode(&batch_runs(layout, 2), "item"), layout.c.0);
        let (down, along) = layout.c;
        let at_once = written_at_once(layout, 0);
        code.line(format!("write<{down}, {along}, {WARPS}, {at_once}>(smem_a, {start}, there, {}, found);", layout.n));
        Ok(())
    }

    /// Emits the store of the accumulators, through shared memory, as the array of a node.
    fn store_fragment(&self, code: &mut Code, node: usize) -> Result<()> {
        code.line(format!("store_fragment<{}>(rows, sums);", self.smem.row_stride));
        code.line("__syncwarp();");
        self.copy_rows(code, RowCopy::Store, node)
    }

    /// Emits a move of the rows of a warp between shared memory and an array of the same shape.
    fn copy_rows(&self, code: &mut Code, how: RowCopy, node: usize) -> Result<()> {
        let (m, length) = (self.first.layout.m, self.first.layout.n);
        let place = self.context.place(node)?;
        let (how, pointer) = match how {
            RowCopy::Load => ("load_rows", code.input(place, StorageType::Bf16, 0)),
            RowCopy::Store => ("store_rows", code.output(place, StorageType::Bf16, 0)),
        };
        let at = format!("{pointer} + (I)(item * {m} + i + own) * {length}");
        let row_stride = self.smem.row_stride;
        code.line(format!("{how}<{row_stride}, {length}>(rows, {at}, min({WARP_ROWS}, there - own));"));
        Ok(())
    }

    fn launch(&self, code: Code) -> Launch {
        let layout = self.first.layout;
        let min_blocks = if layout.n <= MAX_FULL_OCCUPANCY_ROW { BLOCKS_PER_SM } else { BLOCKS_PER_SM - 1 };
        let blocks = layout.size(Precision::Bf16).batch * self.blocks_per_matrix();
        code.launch_with([blocks, 1], THREADS as u32, min_blocks, self.smem.bytes())
    }
}

/// A copy of the rows of a warp between shared memory and an array.
enum RowCopy {
    Load,
    Store,
}

/// Returns the C type that copies this many rows of an operand to shared memory asynchronously.
fn async_tile(operand_layout: &OperandLayout, rows: usize, deep: usize) -> String {
    format!("AsyncTile<{rows}, {}, {}, {THREADS}, {deep}>", operand_layout.along, operand_layout.far)
}

/// Returns a bf16 array that the loop reads row by row.
fn smem_operand(context: &Context, group: &Group) -> Option<usize> {
    let schedule = context.schedule;
    let members =
        group.members.iter().filter(|&&id| Some(id) != group.second_gemm && schedule.role(id) == Some(Role::Full));
    let mut operands = members.flat_map(|&id| schedule.nodes[id].operands.iter().map(move |operand| (id, operand)));
    operands.find_map(|(id, operand): (usize, &Operand)| {
        let (read, view) = operand.at().filter(|_| Some(id) != group.gemm)?;
        let in_memory = schedule.access(id, operand) == Some(Access::Memory);
        (in_memory && context.storage(read) == StorageType::Bf16 && schedule.nodes[read].is_whole(view)).then_some(read)
    })
}

/// Emits the loop for one row of a thread's fragment: stores its results, and replaces the row by the operand of the
/// second product. Returns the member left in shared memory, to be stored from there.
fn rows(
    context: &Context,
    code: &mut Code,
    (first, stored): (&AttentionGemm, &[usize]),
    second: Option<&AttentionGemm>,
    smem_operand: Option<SmemOperand>,
) -> Result<Option<usize>> {
    let mapping = ThreadMapping::MmaFragment { lanes: first.sums() * 2 };
    let mut members = Members::new(*context, mapping, code);
    members.smem_operand = smem_operand;
    let sum = "sums[j / 2][h * 2 + j % 2]";
    // Rounded as other readers would read it from memory.
    let rounded = rounded(members.code, Precision::Bf16, sum);
    members.assign(first.id, &rounded);
    let read = second.and_then(|second| context.schedule.nodes[second.id].operands[0].at()).map(|(read, _)| read);
    let mut stores = vec![];
    for &member in stored.iter().filter(|&&member| member != first.id && Some(member) != read) {
        let value = members.stored(member)?;
        for place in context.stores(member)? {
            stores.push((
                place,
                context.storage(member),
                value.clone(),
                context.schedule.role(member) == Some(Role::Row),
            ));
        }
    }
    let kept = read.map(|read| members.stored(read)).transpose()?;
    for (place, storage, value, is_row) in stores {
        let pointer = code.output(place, storage, 0);
        if is_row {
            code.line(format!("if (live && left == 0) {pointer}[row] = {value};"));
        } else {
            let (at, length) = (format!("{pointer} + (I)(row * {} + left)", first.layout.n), mapping.lanes());
            let store = format!("{}({at} + j / 2 * 8, {value} + j);", storage.store(2));
            code.line(format!("#pragma unroll\n    for (int j = 0; j < {length}; j += 2) if (live) {store}"));
        }
    }
    if let Some(value) = kept {
        code.lanes(mapping.lanes(), format!("{sum} = {value}[j];"));
    }
    Ok(read.filter(|read| stored.contains(read)))
}
