//! Initial casts: amax and scaled fp16 copies of carried inputs, before the first step of a run.

use crate::codegen::kernel::{CStorage, Code, Launch};
use crate::codegen::limits::VECTOR;
use crate::codegen::parts::Part;
use crate::codegen::renderer::Dialect;
use bilevel_graph::{DType, ReduceOp};
use bilevel_plan::{Place, StorageType};

/// Threads per block.
const BLOCK: usize = 256;
/// The number of vectors per thread in the amax kernel.
const TIMES: usize = 4;

/// Returns the vector width for this many elements.
fn lanes(count: usize) -> usize {
    if count.is_multiple_of(VECTOR) { VECTOR } else { 1 }
}

/// Scales this many elements to fp16, given their amax exponent.
pub fn scaled_f16_copy(dialect: Dialect, from: Place, power: Place, to: Place, count: usize) -> Launch {
    let (mut code, lanes) = (Code::new(dialect), lanes(count));
    let (power, all) = (code.input(power, DType::F32, 0), code.count(count as u64));
    let (from, to) = (code.input(from, DType::F32, 0), code.output(to, StorageType::F16, 0));
    code.line(format!("const U e = ((U){} * {BLOCK} + {}) * {lanes};", code.block(), code.thread()));
    code.line(format!("if (e >= {all}) return;"));
    code.line(format!("float v[{lanes}];"));
    code.line(format!("load<float, {lanes}>({from} + e, v);"));
    code.lanes(lanes, format!("v[j] = scaled_to_f16(v[j], f16_scale(exponent({power}[0])));"));
    code.line(format!("{}({to} + e, v);", StorageType::F16.store(lanes)));
    code.launch([count.div_ceil(BLOCK * lanes), 1], BLOCK as u32)
}

/// Raises a word, initially 0, to the amax exponent of this many elements.
pub fn amax_of(dialect: Dialect, from: Place, power: Place, count: usize) -> Launch {
    let (mut code, lanes) = (Code::new(dialect), lanes(count));
    let all = code.count(count as u64);
    let (from, power) = (code.input(from, DType::F32, 0), code.in_out(power, DType::I32, 0));
    code.line("int most = 0;");
    code.line(format!("#pragma unroll\n    for (int i = 0; i < {TIMES}; ++i) {{"));
    code.line(format!("const U e = (((U){} * {TIMES} + i) * {BLOCK} + {}) * {lanes};", code.block(), code.thread()));
    code.line(format!("if (e >= {all}) break;"));
    code.line(format!("float v[{lanes}];"));
    code.line(format!("load<float, {lanes}>({from} + e, v);"));
    code.lanes(lanes, "most = max(most, power_bits(v[j]));");
    code.line("}");
    let all = code.across(ReduceOp::Max, BLOCK, "most");
    code.line(format!("most = {all};"));
    code.uses(Part::ScaledF16);
    code.line(format!("if ({} == 0) atomic_amax({power}, most);", code.thread()));
    code.launch([count.div_ceil(BLOCK * lanes * TIMES), 1], BLOCK as u32)
}
