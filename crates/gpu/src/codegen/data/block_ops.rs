//! Operations on whole rows or matrices. The kernels are plain: sorting counts for each element those before it, a factorisation has one
//! block of threads for each matrix, and a substitution one thread for each right side.

use crate::codegen::kernel::{Code, Launch, c_type};
use crate::codegen::parts::Part;
use crate::codegen::renderer::Dialect;
use bilevel_graph::block_ops::Blocks;
use bilevel_graph::{BlockOp, DType};
use bilevel_plan::Place;

/// Threads that share a matrix.
const MATRIX_BLOCK: u32 = 128;

/// Returns the kernel of an operation on these blocks, from its first and its last operand; the type is that of the last.
pub fn block_op(dialect: Dialect, op: BlockOp, blocks: Blocks, dtype: DType, [a, b, to]: [Place; 3]) -> Launch {
    let mut code = Code::new(dialect);
    code.uses(Part::BlockOps);
    let all = blocks.count * blocks.result.max(blocks.operands[0]).max(blocks.operands[1]);
    code.reaches(all);
    let c = c_type(dtype);
    match op {
        BlockOp::ArgSort => {
            code.each(all);
            let (x, to, n) = (code.input(a, dtype, 0), code.output(to, DType::I32, 0), code.count(blocks.n as u64));
            code.line(format!("const U row = e / {n} * {n};"));
            code.line(format!("{to}[row + sorted_place({x} + row, (int)(e - row), (int){n})] = (int)(e - row);"));
            code.launch_each(all)
        }
        BlockOp::ScatterArgMax { size } => {
            code.each(blocks.count * size);
            let (indices, updates) = (code.input(a, DType::I32, 0), code.input(b, dtype, 0));
            let (to, n, size) = (code.output(to, DType::I32, 0), code.count(blocks.n as u64), code.count(size as u64));
            code.line(format!("const U row = e / {size} * {n};"));
            code.line(format!(
                "{to}[e] = first_largest_of({indices} + row, {updates} + row, (int)(e % {size}), (int){n});"
            ));
            code.launch_each(blocks.count * blocks.result)
        }
        BlockOp::Cholesky => {
            let (from, to, n) = (code.input(a, dtype, 0), code.in_out(to, dtype, 0), code.count(blocks.n as u64));
            code.waits_in_library();
            code.line(format!("const U first = (U){} * {n} * {n};", code.block()));
            code.line(format!("cholesky<{c}, {MATRIX_BLOCK}>({from} + first, (int){n}, {to} + first);"));
            code.launch([if blocks.result == 0 { 0 } else { blocks.count }, 1], MATRIX_BLOCK)
        }
        BlockOp::TriangularSolve { lower, transposed } => {
            let columns = blocks.result / blocks.n.max(1);
            code.each(blocks.count * columns);
            let (of_a, of_b, to) = (code.input(a, dtype, 0), code.input(b, dtype, 0), code.in_out(to, dtype, 0));
            let (n, m) = (code.count(blocks.n as u64), code.count(columns as u64));
            code.line(format!("const U matrix = e / {m}, column = matrix * {n} * {m} + e % {m};"));
            code.line(format!(
                "triangular_solve<{c}, {lower}, {transposed}>({of_a} + matrix * {n} * {n}, {of_b} + column, (int){n}, {m}, {to} + column);"
            ));
            code.launch_each(blocks.count * columns)
        }
    }
}
