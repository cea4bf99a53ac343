//! A generic tiled matrix product, for small sizes, irregular strides and integers.
//!
//! C[b, i, j] = Σₖ A[b, i, k]·B[b, k, j], in tiles of 16×16 in shared memory.

use crate::codegen::expr::rounded;
use crate::codegen::kernel::{Code, Launch, c_type, decode, reach};
use crate::gemm::lower::Start;
use bilevel_graph::{DType, Precision};
use bilevel_plan::{DotLayout, Run};

const TILE: usize = 16;

/// Returns the batch runs of one side: A, B or C.
pub(crate) fn batch_runs(layout: &DotLayout, side: usize) -> Vec<Run> {
    layout.batch.iter().map(|(length, strides)| Run { length: *length, stride: strides[side] }).collect()
}

/// Notes the largest indices of A, B and C.
pub(crate) fn reaches(code: &mut Code, layout: &DotLayout) {
    let DotLayout { m, n, k, a, b, c, .. } = *layout;
    for (side, (down, along), (rows, columns)) in [(0, a, (m, k)), (1, b, (k, n)), (2, c, (m, n))] {
        let matrix = [Run { length: rows, stride: down }, Run { length: columns, stride: along }];
        code.reaches(reach(&[&batch_runs(layout, side)[..], &matrix].concat()));
    }
}

/// Returns the kernel of a product of these operands.
pub(crate) fn product(
    layout: &DotLayout,
    (dtype, precision): (DType, Precision),
    a: Start,
    b: Start,
    c: Start,
) -> Launch {
    let runs = |side: usize| batch_runs(layout, side);
    let (m, n) = (layout.m, layout.n);
    let batch: usize = layout.batch.iter().map(|(length, _)| length).product();
    let (rows, columns) = (m.div_ceil(TILE), n.div_ceil(TILE));
    let mut code = Code::default();
    reaches(&mut code, layout);
    let t = c_type(dtype);
    let (x, y, to) = (code.pointer(a.0, a.2, a.1), code.pointer(b.0, b.2, b.1), code.pointer(c.0, c.2, c.1));
    let (m, n, k) = (code.count(m as u64), code.count(n as u64), code.count(layout.k as u64));
    let (down, across) = (code.count(rows as u64), code.count(columns as u64));
    let tiles = format!("({down} * {across})");
    code.line(format!("const U item = blockIdx.x / {tiles}, tile = blockIdx.x % {tiles};"));
    code.line(format!("const U ty = threadIdx.x / {TILE}, tx = threadIdx.x % {TILE};"));
    code.line(format!("const U i = tile / {across} * {TILE} + ty, j = tile % {across} * {TILE} + tx;"));
    code.line(format!("const {}* a = {x} + ({});", a.2.name(), decode(&runs(0), "item")));
    code.line(format!("const {}* b = {y} + ({});", b.2.name(), decode(&runs(1), "item")));
    code.line(format!("__shared__ {t} as[{TILE}][{TILE} + 1], bs[{TILE}][{TILE} + 1];"));
    code.line(format!("{t} sum = {t}(0);"));
    code.line(format!("for (U first = 0; first < {k}; first += {TILE}) {{"));
    let zero = format!("{t}(0)");
    let (a_row, a_column) = (layout.a.0, layout.a.1);
    let (b_row, b_column) = (layout.b.0, layout.b.1);
    let left = rounded(precision, &format!("a[(I)i * {a_row} + (I)ka * {a_column}]"));
    let right = rounded(precision, &format!("b[(I)kb * {b_row} + (I)j * {b_column}]"));
    code.line("    const U ka = first + tx, kb = first + ty;");
    code.line(format!("    as[ty][tx] = i < {m} && ka < {k} ? {left} : {zero};"));
    code.line(format!("    bs[ty][tx] = j < {n} && kb < {k} ? {right} : {zero};"));
    code.line("    __syncthreads();");
    code.line(format!(
        "#pragma unroll\n        for (int l = 0; l < {TILE}; ++l) sum = op_fma(as[ty][l], bs[l][tx], sum);"
    ));
    code.line("    __syncthreads();");
    code.line("}");
    let place = format!("{} + (I)i * {} + (I)j * {}", decode(&runs(2), "item"), layout.c.0, layout.c.1);
    code.line(format!("if (i < {m} && j < {n}) {to}[{place}] = sum;"));
    code.launch([batch * rows * columns, 1], (TILE * TILE) as u32)
}
