//! Batched products of small matrices by tensor cores, for arbitrary batch strides.
//!
//! C\[b, i, j\] = Σₖ A\[b, i, k\]·B\[b, k, j\], rounded to `Tf32` or `Bf16`: for instance the heads of an attention.
//! Libraries need one batch stride and rows aligned to 16 bytes; this kernel reads and writes matrices in place. The
//! order of summation is deterministic.

use crate::codegen::cuda_cpp::CudaCpp;
use bilevel_gpu::codegen::kernel::{CStorage, Code, Launch, decode};
use bilevel_gpu::codegen::naive_gemm::Start;
use bilevel_gpu::codegen::naive_gemm::{batch_runs, reaches};
use bilevel_gpu::codegen::parts::Part;
use bilevel_graph::Precision;
use bilevel_plan::{DotLayout, DotSize, StorageType};

/// The maximum side of a small matrix, and the maximum k for which an operand strided along k is read by elements:
/// beyond these the library is faster.
const MAX_SIDE: usize = 256;
const MAX_STRIDED_K: usize = 96;
/// The minimum batch: for fewer products the library is used.
const MIN_BATCH: usize = 16;
/// Rows per warp, and the maximum number of warps per block.
const ROWS: usize = 16;
const WARPS: usize = 4;
/// Columns of an MMA instruction, and the maximum number of columns per block: accumulators are in registers.
const COLUMNS: usize = 8;
const MAX_BLOCK_COLUMNS: usize = 104;
/// Elements of k per shared-memory tile; the second for bf16 operands that are both read by 16 bytes.
const K_TILE: usize = 32;
const K_TILE_BF16: usize = 64;

/// Returns true if products of this size use this kernel.
pub(crate) fn is_small(size: &DotSize) -> bool {
    let small = [size.m, size.n, size.k].iter().all(|side| (ROWS..=MAX_SIDE).contains(side));
    small && size.batch >= MIN_BATCH && size.precision != Precision::Full
}

/// Returns the kernel, if it applies and each operand is contiguous along one axis.
pub(crate) fn batched_mma(layout: &DotLayout, precision: Precision, a: Start, b: Start, c: Start) -> Option<Launch> {
    let size = layout.size(precision);
    let storage = if precision == Precision::Bf16 { StorageType::Bf16 } else { StorageType::F32 };
    if !is_small(&size) || a.2 != storage || b.2 != storage {
        return None;
    }
    let (left, right) = (OperandLayout::new(layout, 0, a.1, storage)?, OperandLayout::new(layout, 1, b.1, storage)?);
    let DotLayout { m, n, k, .. } = *layout;
    if k > MAX_STRIDED_K
        && [&left, &right].iter().any(|operand_layout| !operand_layout.along && operand_layout.at_once == 1)
    {
        return None;
    }
    let wide = storage == StorageType::Bf16 && [&left, &right].iter().all(|operand_layout| operand_layout.at_once > 1);
    let deep = if wide && k > K_TILE { K_TILE_BF16 } else { K_TILE };
    let (down, across) = (m.div_ceil(WARPS * ROWS), n.div_ceil(MAX_BLOCK_COLUMNS));
    let (warps, columns) = (m.div_ceil(down).div_ceil(ROWS), n.div_ceil(across).next_multiple_of(COLUMNS));
    let (threads, rows) = (warps * 32, warps * ROWS);
    let runs = |side: usize| batch_runs(layout, side);
    let mut code = Code::new(&CudaCpp);
    code.uses(Part::BatchedMma);
    reaches(&mut code, layout);
    let (x, y, to) = (code.input(a.0, a.2, a.1), code.input(b.0, b.2, b.1), code.output(c.0, c.2, c.1));
    let (t, tiles) = (storage.name(), down * across);
    code.line(format!("__shared__ Shared<{t}, {warps}, {columns}, {deep}> shared;"));
    code.line(format!("const U item = blockIdx.x / {tiles}, tile = blockIdx.x % {tiles};"));
    code.line(format!("const int part = tile / {across}, j = tile % {across} * {columns};"));
    // bf16 rows are distributed evenly; f32 rows are read faster from multiples of 64.
    let [own, next] = ["part", "(part + 1)"].map(|part| match storage {
        StorageType::Bf16 => first_row(part, m, down),
        _ => format!("{part} * {rows}"),
    });
    code.line(format!("const int i = {own}, there = min({m}, {next}) - i;"));
    code.line(format!("float sums[{}][4] = {{}};", columns / COLUMNS));
    let [of_a, of_b] = [(&left, rows), (&right, columns)]
        .map(|(operand_layout, rows)| operand_layout.text(storage, [rows, threads, deep]));
    code.line(format!("{of_a} a({x} + ({}) + (I)i * {}, there, {k});", decode(&runs(0), "item"), layout.a.0));
    code.line(format!("{of_b} b({y} + ({}) + (I)j * {}, {n} - j, {k});", decode(&runs(1), "item"), layout.b.1));
    code.line(format!("multiply<{k}, {deep}, {warps}>(a, shared.a, b, shared.b, sums, there);"));
    let first = format!("{} + (I)i * {} + (I)j * {}", decode(&runs(2), "item"), layout.c.0, layout.c.1);
    code.line(format!("write<{}, {}, {warps}, {}>(", layout.c.0, layout.c.1, written_at_once(layout, c.1)));
    code.line(format!("    &shared, {to} + ({first}), there, {n} - j, sums);"));
    Some(code.launch([size.batch * tiles, 1], threads as u32))
}

/// Returns the expression of the first row of a part, if rows are distributed evenly: the numbers of active warps
/// differ by at most one.
pub(crate) fn first_row(part: &str, rows: usize, parts: usize) -> String {
    format!("{part} * {} / {parts} * {ROWS}", rows.div_ceil(ROWS))
}

/// Returns the vector width of stores: four if all rows and the start are aligned to it, otherwise one.
pub(crate) fn written_at_once(layout: &DotLayout, first: isize) -> usize {
    let whole = |n: isize| n % 4 == 0;
    let apart = layout.batch.iter().all(|(_, strides)| whole(strides[2]));
    let four = layout.c.1 == 1 && [first, layout.c.0, layout.n as isize].into_iter().all(whole) && apart;
    if four { 4 } else { 1 }
}

/// The layout of an operand as rows along k: those of A, or the columns of B.
pub(crate) struct OperandLayout {
    /// Whether rows are contiguous; otherwise columns are.
    pub along: bool,
    /// The stride along the other axis.
    pub far: isize,
    /// The vector width of loads.
    pub at_once: usize,
}

impl OperandLayout {
    /// Returns the layout of an operand; `None` if it is contiguous along neither axis, or a matrix exceeds 32-bit
    /// offsets.
    pub fn new(layout: &DotLayout, side: usize, first: isize, storage: StorageType) -> Option<Self> {
        let (free, (across, along)) =
            if side == 0 { (layout.m, layout.a) } else { (layout.n, (layout.b.1, layout.b.0)) };
        let (is_along, far, length) = match (across, along) {
            (far, 1) => (true, far, layout.k),
            (1, far) => (false, far, free),
            _ => return None,
        };
        if far.unsigned_abs().saturating_mul(MAX_SIDE) > i32::MAX as usize {
            return None;
        }
        // A 16-byte vector, if everything is aligned to it.
        let wide = 16 / storage.size();
        let whole = |n: isize| n % wide as isize == 0;
        let batch = layout.batch.iter().all(|(_, strides)| whole(strides[side]));
        let aligned = whole(first) && whole(far) && batch;
        let at_once = if aligned && length.is_multiple_of(wide) { wide } else { 1 };
        Some(OperandLayout { along: is_along, far, at_once })
    }

    /// Returns the C type that loads a tile of this many rows by this many threads.
    pub fn text(&self, storage: StorageType, [rows, threads, deep]: [usize; 3]) -> String {
        format!(
            "TileLoader<{}, {rows}, {}, {}, {}, {threads}, {deep}>",
            storage.name(),
            self.along,
            self.at_once,
            self.far
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_gpu::codegen::renderer::Renderer;
    use bilevel_plan::{Place, Region};

    fn text(launch: &Launch) -> String {
        CudaCpp.kernel(&launch.kernel, "kernel")
    }

    /// Queries and keys of 8 images, 12 heads of 64, in rows of 2304.
    fn scores(places: usize, first: isize, precision: Precision) -> Option<Launch> {
        let (image, square) = (2304 * places as isize, (places * places) as isize);
        let batch = vec![(8, [image, image, 12 * square]), (12, [64, 64, square])];
        let c = (places as isize, 1);
        let layout = DotLayout { m: places, n: places, k: 64, a: (2304, 1), b: (1, 2304), c, batch };
        let storage = if precision == Precision::Bf16 { StorageType::Bf16 } else { StorageType::F32 };
        let start = |offset, storage| (Place { region: Region::Arena, offset }, first, storage);
        batched_mma(&layout, precision, start(0, storage), start(1024, storage), start(4096, StorageType::F32))
    }

    #[test]
    fn heads_are_read_in_place_by_16_bytes_if_possible() {
        let launch = scores(197, 0, Precision::Tf32).unwrap();
        // Two tiles of 104 columns, four of 64 rows, for each of 96 heads.
        assert_eq!((launch.grid, launch.kernel.block), ([96 * 8, 1], 128));
        for of in
            ["TileLoader<float, 64, true, 4, 2304, 128, 32> a(", "TileLoader<float, 104, true, 4, 2304, 128, 32> b("]
        {
            assert!(text(&launch).contains(of), "{}", text(&launch));
        }
        assert!(
            text(&scores(197, 0, Precision::Bf16).unwrap()).contains("TileLoader<bf16, 64, true, 8, 2304, 128, 64>")
        );
        assert!(
            text(&scores(197, 2, Precision::Tf32).unwrap()).contains("TileLoader<float, 64, true, 1, 2304, 128, 32>")
        );
    }

    #[test]
    fn results_are_written_four_at_once_where_all_rows_begin_at_multiples_of_that() {
        let of = |n: usize, c: (isize, isize), apart: isize, first: isize| {
            let layout = DotLayout { m: 64, n, k: 64, a: (64, 1), b: (64, 1), c, batch: vec![(96, [0, 0, apart])] };
            written_at_once(&layout, first)
        };
        assert_eq!([of(64, (768, 1), 64, 0), of(200, (200, 1), 40000, 8)], [4, 4]);
        assert_eq!([of(197, (200, 1), 40000, 0), of(64, (197, 1), 12608, 0)], [1, 1], "odd lengths, odd rows");
        assert_eq!([of(64, (768, 1), 62, 0), of(64, (768, 1), 64, 2)], [1, 1], "odd matrices, an odd beginning");
        assert_eq!(of(64, (1, 64), 4096, 0), 1, "columns that lie as rows");
    }

    #[test]
    fn long_sums_are_the_librarys_where_an_operand_is_read_across_them_element_by_element() {
        // Weights of 96 heads, as they are or transposed, and values of 64, in rows of 2304.
        let of = |places: usize, transposed: bool| {
            let (image, square) = (2304 * places as isize, (places * places) as isize);
            let batch = vec![(8, [12 * square, image, 768 * places as isize]), (12, [square, 64, 64])];
            let a = if transposed { (1, places as isize) } else { (places as isize, 1) };
            let layout = DotLayout { m: places, n: 64, k: places, a, b: (2304, 1), c: (768, 1), batch };
            let start = (Place { region: Region::Arena, offset: 0 }, 0, StorageType::F32);
            batched_mma(&layout, Precision::Tf32, start, start, start).is_some()
        };
        assert!(of(197, false) && !of(197, true));
        assert!(of(200, true), "16 bytes at once");
        assert!(of(95, true), "a short sum");
    }

    #[test]
    fn large_matrices_few_of_them_and_exact_products_are_the_librarys() {
        assert!(scores(257, 0, Precision::Tf32).is_none());
        assert!(scores(197, 0, Precision::Full).is_none());
        let size = DotSize { batch: 16, m: 100, n: 100, k: 256, precision: Precision::Bf16 };
        assert!(is_small(&size));
        assert!(!is_small(&DotSize { batch: 15, ..size }) && !is_small(&DotSize { k: 257, ..size }));
    }
}
