//! A generic tiled matrix product, for small sizes, irregular strides and integers.
//!
//! C[b, i, j] = Σₖ A[b, i, k]·B[b, k, j], in tiles of 16×16 in shared memory.

use crate::codegen::context::Context;
use crate::codegen::expr::rounded;
use crate::codegen::kernel::{CStorage, Code, Launch, c_type, decode, reach};
use crate::codegen::renderer::Dialect;
use bilevel_graph::{DType, Precision, Result};
use bilevel_plan::{AffineEpilogue, DotLayout, Place, Run, StorageType};

/// The side of a tile, which has a thread for each result.
const TILE: usize = 16;

/// The start of an operand: its place, the elements before the first, and the element type.
pub type Start = (Place, isize, StorageType);

/// The affine map of a product's result, with its addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AffineStore {
    /// The factor of the product.
    pub alpha: f64,
    /// The array that is added, with the layout of the result, and its factor.
    pub addend: Option<(Place, f64)>,
    /// The row that is added to every row, and the elements before its first.
    pub bias: Option<(Place, isize)>,
}

impl AffineStore {
    /// The result as it is.
    pub const NONE: AffineStore = AffineStore { alpha: 1.0, addend: None, bias: None };

    /// Finds the addresses of an epilogue.
    pub fn new(context: &Context, form: &AffineEpilogue) -> Result<Self> {
        let addend = form.addend.map(|(node, beta)| Ok((context.place(node)?, beta))).transpose()?;
        let bias = form.bias.map(|(node, first)| Ok((context.place(node)?, first))).transpose()?;
        Ok(AffineStore { alpha: form.alpha, addend, bias })
    }

    /// Returns the expression of an element of the result: at `place` in memory, in column j.
    fn text(&self, code: &mut Code, storage: StorageType, dtype: DType, place: &str) -> String {
        let mut text = "sum".to_string();
        if self.alpha != 1.0 {
            text = format!("{} * {text}", code.number(self.alpha, dtype));
        }
        if let Some((at, beta)) = self.addend {
            let (from, beta) = (code.input(at, storage, 0), code.number(beta, dtype));
            text += &format!(" + {beta} * {from}[{place}]");
        }
        if let Some((at, first)) = self.bias {
            text += &format!(" + {}[j]", code.input(at, storage, first));
        }
        text
    }
}

/// Returns the batch runs of one side: A, B or C.
pub fn batch_runs(layout: &DotLayout, side: usize) -> Vec<Run> {
    layout.batch.iter().map(|(length, strides)| Run { length: *length, stride: strides[side] }).collect()
}

/// Notes the largest indices of A, B and C.
pub fn reaches(code: &mut Code, layout: &DotLayout) {
    let DotLayout { m, n, k, a, b, c, .. } = *layout;
    for (side, (down, along), (rows, columns)) in [(0, a, (m, k)), (1, b, (k, n)), (2, c, (m, n))] {
        let matrix = [Run { length: rows, stride: down }, Run { length: columns, stride: along }];
        code.reaches(reach(&[&batch_runs(layout, side)[..], &matrix].concat()));
    }
}

/// Returns the kernel of a product of these operands, stored after an affine map if given.
pub fn product(
    dialect: Dialect,
    layout: &DotLayout,
    (dtype, precision): (DType, Precision),
    a: Start,
    b: Start,
    c: Start,
    affine: Option<&AffineStore>,
) -> Launch {
    let runs = |side: usize| batch_runs(layout, side);
    let (m, n) = (layout.m, layout.n);
    let batch: usize = layout.batch.iter().map(|(length, _)| length).product();
    let (rows, columns) = (m.div_ceil(TILE), n.div_ceil(TILE));
    let mut code = Code::new(dialect);
    reaches(&mut code, layout);
    let t = c_type(dtype);
    let (x, y, to) = (code.input(a.0, a.2, a.1), code.input(b.0, b.2, b.1), code.output(c.0, c.2, c.1));
    let (m, n, k) = (code.count(m as u64), code.count(n as u64), code.count(layout.k as u64));
    let (down, across) = (code.count(rows as u64), code.count(columns as u64));
    let (thread, block) = (code.thread(), code.block());
    let tiles = format!("({down} * {across})");
    code.line(format!("const U item = {block} / {tiles}, tile = {block} % {tiles};"));
    code.line(format!("const U ty = {thread} / {TILE}, tx = {thread} % {TILE};"));
    code.line(format!("const U i = tile / {across} * {TILE} + ty, j = tile % {across} * {TILE} + tx;"));
    code.line(format!("const {}* a = {x} + ({});", a.2.name(), decode(&runs(0), "item")));
    code.line(format!("const {}* b = {y} + ({});", b.2.name(), decode(&runs(1), "item")));
    code.shared(format!("{t} as[{TILE}][{TILE} + 1], bs[{TILE}][{TILE} + 1]"));
    code.line(format!("{t} sum = {t}(0);"));
    code.line(format!("for (U first = 0; first < {k}; first += {TILE}) {{"));
    let zero = format!("{t}(0)");
    let (a_row, a_column) = (layout.a.0, layout.a.1);
    let (b_row, b_column) = (layout.b.0, layout.b.1);
    let left = rounded(&mut code, precision, &format!("a[(I)i * {a_row} + (I)ka * {a_column}]"));
    let right = rounded(&mut code, precision, &format!("b[(I)kb * {b_row} + (I)j * {b_column}]"));
    code.line("    const U ka = first + tx, kb = first + ty;");
    code.line(format!("    as[ty][tx] = i < {m} && ka < {k} ? {left} : {zero};"));
    code.line(format!("    bs[ty][tx] = j < {n} && kb < {k} ? {right} : {zero};"));
    code.barrier();
    code.line(format!(
        "#pragma unroll\n        for (int l = 0; l < {TILE}; ++l) sum = op_fma(as[ty][l], bs[l][tx], sum);"
    ));
    code.barrier();
    code.line("}");
    let place = format!("{} + (I)i * {} + (I)j * {}", decode(&runs(2), "item"), layout.c.0, layout.c.1);
    let value = affine.map_or("sum".into(), |affine| affine.text(&mut code, c.2, dtype, &place));
    code.line(format!("if (i < {m} && j < {n}) {to}[{place}] = {value};"));
    code.launch([batch * rows * columns, 1], (TILE * TILE) as u32)
}
