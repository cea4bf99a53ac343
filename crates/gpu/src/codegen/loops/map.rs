//! Flat loops: each thread has some contiguous elements; reductions over all elements are included.

use crate::codegen::body::Members;
use crate::codegen::context::Context;
use crate::codegen::kernel::{CStorage, Code, Launch, c_type};
use crate::codegen::limits::RESIDENT_BLOCKS;
use crate::codegen::loops::amax;
use crate::codegen::loops::reduction_shape::ReductionShape;
use crate::codegen::thread_mapping::ThreadMapping;
use bilevel_graph::{DType, ReduceOp, Result};
use bilevel_plan::{Access, Elementwise, Kind, Place, StorageType, internal_error};

/// Threads of a block.
const BLOCK: usize = 256;
/// The maximum number of blocks of a loop with reductions: enough for any GPU, and few enough for one block to combine.
pub const MAX_PARTIALS: usize = RESIDENT_BLOCKS;
/// Elements per thread of a loop with reductions, if there are enough.
const ELEMENTS_PER_THREAD: usize = 16;

/// Returns true if a reduction has one result.
pub fn is_scalar_reduction(structure: &ReductionShape) -> bool {
    structure.axes.iter().all(|axis| !axis.kept)
}

/// Returns the type of a sum: many numbers are added in 64 bits.
pub fn sum_type(op: ReduceOp, dtype: DType) -> DType {
    if op == ReduceOp::Sum && dtype == DType::F32 { DType::F64 } else { dtype }
}

/// Returns the number of partial results of a loop over this many elements.
pub fn partials(n: usize) -> usize {
    n.div_ceil(BLOCK * ELEMENTS_PER_THREAD).clamp(1, MAX_PARTIALS)
}

/// Returns the kernel of a loop over `n` elements that stores the members in `stored`, the partial result of each block
/// for every reduction, and the amax of the members in `largest`.
pub fn map(
    context: Context,
    n: usize,
    stored: &[usize],
    sinks: &[(usize, Place)],
    largest: &[usize],
) -> Result<Launch> {
    let mut code = Code::new(context.dialect);
    code.reaches(n);
    let lanes = lanes(&context, n, stored, sinks);
    context.guard(&mut code, stored);
    let count = code.count((n / lanes) as u64);
    let mut members = Members::new(context, ThreadMapping::Flat { lanes }, &mut code);
    let mut stores = vec![];
    for &member in stored {
        let value = members.stored(member)?;
        for place in context.stores(member)? {
            stores.push(store(members.code, (place, context.storage(member)), &value, lanes));
        }
    }
    amax::join(&mut members, largest)?;
    let mut sums = vec![];
    for &(sink, place) in sinks {
        let node = &context.schedule.nodes[sink];
        let Kind::Reduce(op, _) = node.kind else { return Err(internal_error("the operator of a reduction")) };
        let operand = members.operand(sink, &node.operands[0], node.dtype)?;
        let (name, sum) = (format!("s{}", sums.len()), c_type(sum_type(op, node.dtype)));
        let join = members.code.join(op, &name, format!("({sum}){operand}"));
        members.code.lanes(lanes, format!("{name} = {join};"));
        sums.push((name, op, sum_type(op, node.dtype), place));
    }
    stores.iter().for_each(|store| code.line(store));
    let body = code.take_body();
    code.line(format!("U b = (U){} * {BLOCK} + {};", code.block(), code.thread()));
    if sums.is_empty() && largest.is_empty() {
        code.line(format!("if (b >= {count}) return;"));
        code.line(format!("const U e = b * {lanes};"));
        code.append(body);
        return Ok(code.launch([(n / lanes).div_ceil(BLOCK), 1], BLOCK as u32));
    }
    for (name, op, sum, _) in &sums {
        let (c, first) = (c_type(*sum), code.first(*op, c_type(*sum)));
        code.line(format!("{c} {name} = {first};"));
    }
    code.with_blocks(format!("for (; b < {count}; b += (U)"), format!(" * {BLOCK}) {{"));
    code.line(format!("const U e = b * {lanes};"));
    code.append(body);
    code.line("}");
    for (name, op, sum, place) in &sums {
        let partial = code.output(*place, *sum, 0);
        let all = code.across(*op, BLOCK, name);
        code.line(format!("{name} = {all};"));
        code.line(format!("if ({} == 0) {partial}[{}] = {name};", code.thread(), code.block()));
    }
    amax::end(&mut code, context, largest, BLOCK)?;
    Ok(code.launch([partials(n), 1], BLOCK as u32))
}

/// Emits the store of a value's lanes from element e on.
pub fn store(code: &mut Code, (place, storage): (Place, StorageType), value: &str, lanes: usize) -> String {
    let pointer = code.output(place, storage, 0);
    match lanes {
        1 => format!("{pointer}[e] = {value}[0];"),
        _ => format!("{}({pointer} + e, {value});", storage.store(lanes)),
    }
}

/// Returns the vector width of a thread, if it divides the elements: 16 bytes of the widest computed type, or of bf16
/// if everything in memory is bf16.
fn lanes(context: &Context, n: usize, stored: &[usize], sinks: &[(usize, Place)]) -> usize {
    let lanes = match has_wide(context, stored, sinks) {
        true => 2,
        false if n.is_multiple_of(8) && is_narrow(context, n, stored) => 8,
        false => 4,
    };
    if n.is_multiple_of(lanes) { lanes } else { 1 }
}

/// Returns true if a loop with these members computes in 64 bits.
pub fn has_wide(context: &Context, stored: &[usize], sinks: &[(usize, Place)]) -> bool {
    let wide = |member: usize| {
        let node = &context.schedule.nodes[member];
        let reads = node.reads().any(|(read, _)| context.schedule.nodes[read].dtype == DType::F64);
        reads || node.dtype == DType::F64
    };
    let first = stored.iter().copied().chain(sinks.iter().map(|(sink, _)| *sink)).next();
    members_beside(context, first).iter().any(|&member| wide(member))
}

/// Returns true if all arrays of `n` elements that a loop accesses have two bytes per element. Random numbers are drawn
/// four at a time.
fn is_narrow(context: &Context, n: usize, stored: &[usize]) -> bool {
    let schedule = context.schedule;
    let has_two_bytes = |node: usize| context.storage(node).size() == 2;
    let reads_two = |&member: &usize| {
        let node = &schedule.nodes[member];
        let large = node.operands.iter().filter(|operand| context.access(member, operand) == Some(Access::Memory));
        let mut large = large.filter_map(|operand| operand.at()).filter(|(read, _)| schedule.nodes[*read].count() >= n);
        large.all(|(read, _)| has_two_bytes(read)) && !matches!(node.kind, Kind::Elementwise(Elementwise::Random(..)))
    };
    !stored.is_empty()
        && stored.iter().all(|&member| has_two_bytes(member))
        && members_beside(context, stored.first().copied()).iter().all(reads_two)
}

/// Returns all members of the loop of a member.
fn members_beside<'a>(context: &Context<'a>, member: Option<usize>) -> &'a [usize] {
    let group = member.and_then(|member| context.schedule.group_of(member));
    group.map_or(&[], |group| &context.schedule.groups()[group].members)
}
