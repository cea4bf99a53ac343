//! Reductions over some axes, fused with elementwise work.
//!
//! If consecutive elements belong to different results, threads are mapped to results and loop over the reduced axes;
//! if they belong to one result, threads share it. Each thread loads several contiguous elements at a time if there are
//! enough, because with one too few loads are in flight. Long reductions are split, and a second pass combines the
//! parts.

use crate::codegen::body::Members;
use crate::codegen::context::Context;
use crate::codegen::data::copy::beside;
use crate::codegen::kernel::{CStorage, Code, Launch, Value, c_type, decode, reach};
use crate::codegen::limits::VECTOR;
use crate::codegen::loops::amax;
use crate::codegen::loops::map::{has_wide, store};
use crate::codegen::loops::reduction_shape::{BLOCK, ReductionShape, SHARED_BLOCK};
use crate::codegen::loops::rows::read_from_memory;
use crate::codegen::prefetch;
use crate::codegen::prefetch::{Prefetch, PrefetchedValue};
use crate::codegen::renderer::Dialect;
use crate::codegen::thread_mapping::ThreadMapping;
use bilevel_graph::{DType, ReduceOp, Result};
use bilevel_plan::{Kind, Place, StorageType, View, internal_error};

/// The maximum number of reductions of one kernel: their shared memory, up to 4 KiB each, stays well below the 48 KiB
/// of a block.
pub const MAX_TERMS: usize = 8;

/// The maximum number of registers for operands that are invariant along the reduction, such as a bias.
const MAX_INVARIANT_REGISTERS: usize = 8;
/// Loads in flight before the first is combined, if there is no other work to hide their latency.
const LOADS_IN_FLIGHT: usize = 4;

/// Returns the kernel of these reductions with this shape. The partial results, or the results if there is one part, go
/// to the given addresses. It also stores the members in `stored`, and the amax of those in `largest`.
pub fn reduce(
    context: Context,
    structure: &ReductionShape,
    stored: &[usize],
    sinks: &[(usize, Place)],
    largest: &[usize],
) -> Result<Launch> {
    let mut code = Code::new(context.dialect);
    context.guard(&mut code, stored);
    let lanes = if has_wide(&context, stored, sinks) { structure.lanes().min(VECTOR / 2) } else { structure.lanes() };
    let mapping = structure
        .columns()
        .map_or(ThreadMapping::Flat { lanes }, |length| ThreadMapping::ColumnMajor { lanes, length });
    let mut members = Members::new(context, mapping, &mut code);
    members.prefetch = Prefetch { registers: MAX_INVARIANT_REGISTERS, only_same: true, parts: vec![] };
    let mut stores = vec![];
    for &member in stored {
        let value = members.stored(member)?;
        for place in context.stores(member)? {
            stores.push(store(members.code, (place, context.storage(member)), &value, lanes));
        }
    }
    let mut terms = vec![];
    for &(sink, place) in sinks {
        let node = &context.schedule.nodes[sink];
        let Kind::Reduce(op, _) = node.kind else { return Err(internal_error("the operator of a reduction")) };
        let operand = members.operand(sink, &node.operands[0], node.dtype)?;
        terms.push(ReductionTerm { operand, op, dtype: node.dtype, place });
    }
    amax::join(&mut members, largest)?;
    let same = std::mem::take(&mut members.prefetch.parts);
    stores.iter().for_each(|store| code.line(store));
    let only_reads = stored.is_empty()
        && largest.is_empty()
        && sinks.iter().all(|(sink, _)| read_from_memory(&context, *sink).is_some());
    let at_once = if only_reads { LOADS_IN_FLIGHT } else { 1 };
    let (mut code, grid, block) = finish(code, structure, Loop { terms: &terms, same: &same, at_once }, lanes);
    amax::end(&mut code, context, largest, block)?;
    Ok(code.launch(grid, block as u32))
}

/// A reduction of values in memory.
#[derive(Clone, Debug)]
pub struct MemoryReduction {
    /// The operator.
    pub op: ReduceOp,
    /// Their type.
    pub dtype: DType,
    /// Their address and element type.
    pub from: (Place, StorageType),
    /// Their view.
    pub view: View,
    /// The address of the partial results, or of the result if there is one part.
    pub to: Place,
}

impl MemoryReduction {
    /// Returns the vector width of loads.
    fn lanes(&self, structure: &ReductionShape) -> usize {
        let lanes = structure.lanes();
        if beside(&self.view.runs(), self.view.offset, self.dtype.into()) == lanes { lanes } else { 1 }
    }
}

/// As [`reduce`], for values in memory: one kernel for all with the same vector width, up to the limit.
pub fn reduce_memory(dialect: Dialect, structure: &ReductionShape, all: &[MemoryReduction]) -> Vec<Launch> {
    let (wide, single): (Vec<_>, Vec<_>) = all.iter().partition(|reduced| reduced.lanes(structure) > 1);
    let chunks = wide.chunks(MAX_TERMS).chain(single.chunks(MAX_TERMS));
    chunks.map(|reduced| reduce_together(dialect, structure, reduced)).collect()
}

fn reduce_together(dialect: Dialect, structure: &ReductionShape, all: &[&MemoryReduction]) -> Launch {
    let mut code = Code::new(dialect);
    let lanes = all.first().map_or(1, |reduced| reduced.lanes(structure));
    let mut terms: Vec<ReductionTerm> = vec![];
    for (number, reduced) in all.iter().enumerate() {
        let &MemoryReduction { op, dtype, from, ref view, to } = *reduced;
        // A value loaded before is reused.
        let same = all[..number].iter().position(|other| (other.from, &other.view, other.dtype) == (from, view, dtype));
        let operand = match same.map(|other| terms[other].operand.clone()) {
            Some(operand) => operand,
            None => {
                let runs = view.runs();
                code.reaches(reach(&runs));
                let pointer = code.input(from.0, from.1, view.offset);
                let (place, c) = (decode(&runs, "e"), c_type(dtype));
                if lanes > 1 {
                    let load = from.1.load(lanes);
                    code.line(format!("{c} m{number}[{lanes}];"));
                    code.line(format!("{load}({pointer} + ({place}), m{number});"));
                } else {
                    code.line(format!("const {c} m{number} = {pointer}[{place}];"));
                }
                let name = format!("m{number}");
                if lanes > 1 { Value::Lanes(name) } else { Value::One(name) }
            }
        };
        terms.push(ReductionTerm { operand, op, dtype, place: to });
    }
    let (code, grid, block) =
        finish(code, structure, Loop { terms: &terms, same: &[], at_once: LOADS_IN_FLIGHT }, lanes);
    code.launch(grid, block as u32)
}

/// A reduction and the address of its result.
struct ReductionTerm {
    operand: Value,
    op: ReduceOp,
    dtype: DType,
    place: Place,
}

/// The work for all elements of one result.
struct Loop<'a> {
    /// The reductions.
    terms: &'a [ReductionTerm],
    /// The invariant loads before the loop.
    same: &'a [PrefetchedValue],
    /// The number of loads in flight.
    at_once: usize,
}

/// Wraps the work for a thread's elements in its loops, and returns the grid and block size.
fn finish(
    mut code: Code,
    structure: &ReductionShape,
    Loop { terms, same, at_once }: Loop,
    lanes: usize,
) -> (Code, [usize; 2], usize) {
    let (kept, reduced, parts) = (structure.kept(), structure.reduced(), structure.parts());
    code.reaches(kept.saturating_mul(reduced));
    let beside = structure.beside();
    // Lanes belong to separate results, or to one.
    let sums = if beside { lanes } else { 1 };
    for (number, ReductionTerm { operand, op, .. }) in terms.iter().enumerate() {
        let sum = format!("s{number}[{}]", if beside { "j" } else { "0" });
        let join = code.join(*op, &sum, operand);
        code.lanes(lanes, format!("{sum} = {join};"));
    }
    let body = code.take_body();
    let part = reduced.div_ceil(parts).next_multiple_of(if beside { 1 } else { lanes });
    let (results, all, part) = (code.count(kept as u64), code.count(reduced as u64), code.count(part as u64));
    let element = format!("{} + {}", decode(&structure.runs(true), "k"), decode(&structure.runs(false), "r"));
    let (threads, side) = (structure.sharing(), structure.side());
    let deep = BLOCK / side;
    let (thread, block, row) = (code.thread(), code.block(), code.block_row());
    if beside {
        code.line(format!("const U k = ((U){block} * {side} + {thread} % {side}) * {lanes};"));
        code.line(format!("const U t = {thread} / {side};"));
    } else {
        let together = SHARED_BLOCK / threads;
        code.line(format!("const U k = (U){block} * {together} + {thread} / {threads};"));
        code.line(format!("const U t = {thread} % {threads} * {lanes};"));
    }
    let step = if beside { deep } else { threads * lanes };
    code.line(format!("const U first = {row} * {part}, end = first + {part} < {all} ? first + {part} : {all};"));
    for (number, ReductionTerm { op, dtype, .. }) in terms.iter().enumerate() {
        let c = c_type(*dtype);
        code.line(format!("{c} s{number}[{sums}];"));
        let first = code.first(*op, c);
        code.lanes(sums, format!("s{number}[j] = {first};"));
    }
    code.line(format!("if (k < {results}) {{"));
    prefetch::same(&mut code, same);
    if at_once > 1 {
        code.line(format!("#pragma unroll {at_once}"));
    }
    code.line(format!("for (U r = first + t; r < end; r += {step}) {{"));
    code.line(format!("const U e = {element};"));
    code.append(body);
    code.line("}");
    code.line("}");
    if beside {
        for (number, ReductionTerm { dtype, .. }) in terms.iter().enumerate() {
            let own = format!("shared{number}[t][{thread} % {side} * {lanes} + j]");
            code.shared(format!("{} shared{number}[{deep}][{}]", c_type(*dtype), side * lanes));
            code.lanes(sums, format!("{own} = s{number}[j];"));
        }
        code.barrier();
    }
    for (number, ReductionTerm { op, dtype, place, .. }) in terms.iter().enumerate() {
        let pointer = code.output(*place, *dtype, 0);
        let result = format!("{pointer}[(U){row} * {results} + k + j]");
        if beside {
            let others = format!("shared{number}[i][{thread} * {lanes} + j]");
            code.line(format!("for (int i = 1; t == 0 && i < {deep}; ++i) {{"));
            let join = code.join(*op, format!("s{number}[j]"), others);
            code.lanes(sums, format!("s{number}[j] = {join};"));
            code.line("}");
        } else {
            let all = code.across(*op, threads, format!("s{number}[0]"));
            code.line(format!("s{number}[0] = {all};"));
        }
        code.line(format!("if (t == 0 && k < {results}) {{"));
        code.lanes(sums, format!("{result} = s{number}[j];"));
        code.line("}");
    }
    let per_block = if beside { side * lanes } else { SHARED_BLOCK / threads };
    (code, [kept.div_ceil(per_block), parts], if beside { BLOCK } else { SHARED_BLOCK })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::renderer::Renderer;
    use crate::host::HostCpp;
    use bilevel_plan::Region;

    #[test]
    fn reductions_of_one_structure_are_one_kernel_that_reads_nothing_twice() {
        let structure = ReductionShape::new(&[1576, 768], &[0]);
        let place = |offset| Place { region: Region::Arena, offset };
        let dense = View::contiguous(&[1576, 768]);
        let of = |op, from, to, view: &View| MemoryReduction {
            op,
            dtype: DType::F32,
            from: (place(from), DType::F32.into()),
            view: view.clone(),
            to: place(to),
        };
        let far = 1 << 24;
        let two = [of(ReduceOp::Sum, 0, far, &dense), of(ReduceOp::Max, 0, 2 * far, &dense)];
        let mut three = two.to_vec();
        three.push(of(ReduceOp::Sum, 4 * far, 3 * far, &dense));
        let loads = |all: &[MemoryReduction]| {
            let launches = reduce_memory(&HostCpp, &structure, all);
            launches
                .iter()
                .map(|launch| HostCpp.kernel(&launch.kernel, "kernel").matches("load<").count())
                .collect::<Vec<_>>()
        };
        assert_eq!((loads(&two), loads(&three)), (vec![1], vec![2]));
        let many: Vec<MemoryReduction> = (0..10).map(|number| of(ReduceOp::Sum, number * far, far, &dense)).collect();
        assert_eq!(loads(&many), [8, 2], "what threads share has to fit a block");
        // Non-contiguous elements are loaded one at a time, by a separate kernel.
        three.push(of(ReduceOp::Sum, 0, 5 * far, &View::contiguous(&[768, 1576]).transpose(&[1, 0])));
        assert_eq!(loads(&three), [2, 0]);
    }
}
