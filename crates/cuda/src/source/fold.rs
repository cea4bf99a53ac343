//! The second pass of a reduction: the results of its parts become one.

use super::code::{Code, Launch, c_type};
use bilevel_graph::{DType, ReduceOp};
use bilevel_plan::Place;

/// Threads that share one result.
const BLOCK: usize = 128;
/// More results than this are worth a thread each.
const FEW: usize = 256;

/// Reduces `parts` numbers of type `of` for each of `kept` results, which lie side by side within a part.
pub(crate) fn fold(
    op: ReduceOp,
    (from, of): (Place, DType),
    (to, dtype): (Place, DType),
    kept: usize,
    parts: usize,
) -> Launch {
    let mut code = Code::default();
    code.reaches(kept.saturating_mul(parts));
    let (source, target) = (code.pointer(from, of, 0), code.pointer(to, dtype, 0));
    let (kept_count, parts_count) = (code.count(kept as u64), code.count(parts as u64));
    let (sum, c) = (c_type(of), c_type(dtype));
    code.line(format!("{sum} s = {op:?}::first<{sum}>();"));
    if kept > FEW {
        code.line(format!("const U k = (U)blockIdx.x * {BLOCK} + threadIdx.x;"));
        code.line(format!("if (k >= {kept_count}) return;"));
        code.line(format!(
            "for (U p = 0; p < {parts_count}; ++p) s = {op:?}::join(s, {source}[p * {kept_count} + k]);"
        ));
        code.line(format!("{target}[k] = ({c})s;"));
        return code.launch([kept.div_ceil(BLOCK), 1], BLOCK as u32);
    }
    code.line("const U k = blockIdx.x;");
    code.line(format!(
        "for (U p = threadIdx.x; p < {parts_count}; p += {BLOCK}) s = {op:?}::join(s, {source}[p * {kept_count} + k]);"
    ));
    code.line(format!("s = across<{op:?}, {BLOCK}>(s);"));
    code.line(format!("if (threadIdx.x == 0) {target}[k] = ({c})s;"));
    code.launch([kept, 1], BLOCK as u32)
}
