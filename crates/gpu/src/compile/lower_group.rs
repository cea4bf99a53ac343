//! Lowers one group of a schedule to steps.

use crate::codegen::{
    Context, Elements, Launch, add_rows, block_op, check_index, concat, cumsum, gather, list_bytes, pad_sum,
    scatter_add, window_argmax,
};
use crate::compile::backend::Backend;
use crate::compile::fused_loop::loops;
use crate::compile::step::{Access, LibraryCall, Span, Step, Work};
use crate::compile::workspace::Workspace;
use bilevel_graph::block_ops::Blocks;
use bilevel_graph::{Error, ErrorKind, Result};
use bilevel_plan::{
    AffineEpilogue, Domain, Group, IndexDims, Kind, Node, Operand, Padding, Place, StorageType, expect, internal_error,
};

/// Returns the steps of a group, with the bytes of workspace they need.
pub fn steps_of<B: Backend>(
    context: Context,
    backend: &B,
    group: usize,
    workspace: Option<Place>,
) -> Result<(Vec<Step<B::Call>>, usize)> {
    let mut space = Workspace::new(workspace);
    let group = &context.schedule.groups()[group];
    let members = &group.members;
    let works = match group.domain {
        Some(_) if group.second_gemm.is_some() => launched(backend.fused_gemms(context, group)?.into_iter().collect()),
        Some(domain) => match group.gemm {
            Some(product) => with_epilogue(context, backend, (group, domain, product), &mut space)?,
            None => launched(loops(context, members, domain, &mut space)?),
        },
        None if context.wants(members[0]) => single(context, backend, members[0], &mut space)?,
        None => vec![],
    };
    let (reads, writes) = spans(context, members, space.bytes(), workspace)?;
    let location = context.schedule.nodes[members[0]].location;
    // If a step can fail, the others must wait for it although they share no memory.
    let can_fail = works.iter().any(Work::can_fail);
    let own = |work: Work<B::Call>| {
        if can_fail {
            return Step { work, reads: reads.clone(), writes: writes.clone(), location };
        }
        // A reduction of partial results depends only on them, not on the rest of its group.
        let accesses = work.accesses();
        let held = |span: &&Span, by: fn(&Access) -> bool| accesses.iter().any(|one| by(one) && span.holds(&one.at));
        let written = writes.iter().filter(|span| held(span, |one| one.writes)).copied().collect();
        // Values within the group are read from places that the group writes.
        let mut read: Vec<Span> = reads.iter().filter(|span| held(span, |one| one.reads)).copied().collect();
        read.extend(writes.iter().filter(|span| held(span, |one| one.reads) && !reads.contains(span)));
        Step { work, reads: read, writes: written, location }
    };
    Ok((works.into_iter().map(own).collect(), space.bytes()))
}

/// Returns the work of a product and its epilogue: in one, or one after the other.
fn with_epilogue<B: Backend>(
    context: Context,
    backend: &B,
    (group, domain, product): (&Group, Domain, usize),
    space: &mut Workspace,
) -> Result<Vec<Work<B::Call>>> {
    if let Some(form) = group.affine {
        if !context.wants(form.result) {
            return Ok(vec![]);
        }
        if let Some(works) = affine_gemm(context, backend, (product, &form), space)? {
            return Ok(works);
        }
    }
    let node = &context.schedule.nodes[product];
    let at = context.map.nodes[product].unwrap_or_else(|| space.take(node.bytes()));
    let context = Context { product: Some((product, at)), ..context };
    let mut works = if context.wants(product) { backend.gemm(context, product, space)? } else { vec![] };
    works.extend(launched(loops(context, &group.members[1..], domain, space)?));
    Ok(works)
}

/// Returns the work of a product that is stored after an affine map, with copies if it is stored more than once. No
/// library call can be skipped after a failed check, so none may write over a carried input then.
fn affine_gemm<B: Backend>(
    context: Context,
    backend: &B,
    (product, form): (usize, &AffineEpilogue),
    space: &mut Workspace,
) -> Result<Option<Vec<Work<B::Call>>>> {
    let bytes = context.schedule.nodes[form.result].bytes();
    let stores = context.stores(form.result)?;
    let guarded = !context.checks.all.is_empty() && context.overwrites(&[form.result]);
    let Some((&first, others)) = stores.split_first().filter(|_| !guarded) else { return Ok(None) };
    let context = Context { product: Some((product, first)), ..context };
    let works = backend.affine_gemm(context, product, form, space)?;
    Ok(works.map(|mut works| {
        works.extend(others.iter().map(|&to| Work::Copy { from: first, to, bytes }));
        works
    }))
}

/// Returns the spans that a group reads and writes.
fn spans(
    context: Context,
    members: &[usize],
    workspace_used: usize,
    workspace: Option<Place>,
) -> Result<(Vec<Span>, Vec<Span>)> {
    let span =
        |node: usize| context.place(node).map(|place| Span { place, bytes: context.schedule.nodes[node].bytes() });
    let (mut reads, mut writes) = (vec![], vec![]);
    for &member in members {
        for (read, _) in context.schedule.nodes[member].reads() {
            if context.map.nodes[read].is_some() && context.schedule.is_stored(read) {
                reads.push(span(read)?);
            }
        }
        if context.schedule.is_stored(member) && context.map.nodes[member].is_some() {
            writes.push(span(member)?);
        }
        for &input in context.updates.get(&member).into_iter().flatten() {
            writes.push(span(input)?);
        }
    }
    if let Some(place) = workspace {
        writes.push(Span { place, bytes: workspace_used });
    }
    reads.sort_unstable_by_key(|span| (span.place, span.bytes));
    reads.dedup();
    Ok((reads, writes))
}

/// Wraps the launches that are not empty.
pub fn launched<C: LibraryCall>(launches: Vec<Launch>) -> Vec<Work<C>> {
    launches.into_iter().filter(|launch| launch.grid.iter().all(|&blocks| blocks > 0)).map(Work::Kernel).collect()
}

/// Returns an operand of a node in memory, with its element type.
pub fn operand<'a>(context: &Context<'a>, node: usize, number: usize) -> Result<(Elements<'a>, StorageType)> {
    let node = &context.schedule.nodes[node];
    let at = node.operands.get(number).and_then(Operand::at);
    let (read, view) = expect(at, "the memory of an operand", node.location)?;
    Ok((Elements { place: context.place(read)?, view }, context.storage(read)))
}

/// Returns the steps of an operation that is a separate group.
fn single<B: Backend>(context: Context, backend: &B, id: usize, space: &mut Workspace) -> Result<Vec<Work<B::Call>>> {
    let node = &context.schedule.nodes[id];
    match &node.kind {
        Kind::Dot(..) => backend.gemm(context, id, space),
        Kind::Conv(..) => backend.convolution(context, id, space),
        Kind::Gather { .. } | Kind::ScatterAdd { .. } | Kind::AddRows { .. } | Kind::CheckIndex { .. } => {
            indexed(context, id, space)
        }
        Kind::WindowArgMax(..) | Kind::CumSum { .. } | Kind::Block(..) => Ok(launched(vec![by_block(context, id)?])),
        Kind::Concat(..) | Kind::Pad(..) | Kind::PadSum(..) => Ok(launched(moved(context, id)?)),
        Kind::Host(call) => {
            let what = format!("{}, which user code computes, on a GPU; run it on the CPU", call.function().name());
            Err(Error::new(ErrorKind::Unsupported { what }).at(node.location))
        }
        Kind::Collective(collective) => {
            let what = format!("{} between ranks on a GPU; run the ranks on the CPU", collective.name());
            Err(Error::new(ErrorKind::Unsupported { what }).at(node.location))
        }
        Kind::Input
        | Kind::CarriedCast(_)
        | Kind::Table(_)
        | Kind::Elementwise(_)
        | Kind::Reduce(..)
        | Kind::AmaxExponent
        | Kind::ArgMax
        | Kind::InlineGather { .. } => Err(no_kernel(node)),
    }
}

fn no_kernel(node: &Node) -> Error {
    Error::at(internal_error("a kernel for an operation"), node.location)
}

/// Returns the steps of an operation whose places are given by indices.
fn indexed<C: LibraryCall>(context: Context, id: usize, space: &mut Workspace) -> Result<Vec<Work<C>>> {
    let node = &context.schedule.nodes[id];
    let elements = |number: usize| operand(&context, id, number).map(|(elements, _)| elements);
    let number = context.checks.number(id);
    let check = |indices: &Elements, limit: usize| {
        number.map(|number| check_index(context.dialect, indices.place, indices.view.count(), limit, number))
    };
    Ok(match &node.kind {
        Kind::Gather { batch } => {
            let (x, indices) = (elements(0)?, elements(1)?);
            let sizes = IndexDims::new(&x.view.shape, &indices.view.shape, *batch);
            let places = (x.place, indices.place, context.place(id)?);
            launched(vec![gather(context.dialect, sizes, node.dtype, places, number)])
        }
        Kind::ScatterAdd { batch } => {
            let (indices, updates) = (elements(0)?, elements(1)?);
            let sizes = IndexDims::new(&node.shape, &indices.view.shape, *batch);
            let lists = space.take(list_bytes(sizes));
            let places = (indices.place, updates.place, context.place(id)?);
            let sum = scatter_add(context.dialect, sizes, node.dtype, places, lists);
            launched(check(&indices, sizes.n).into_iter().chain(sum).collect())
        }
        Kind::AddRows { batch } => {
            let (x, indices, updates) = (elements(0)?, elements(1)?, elements(2)?);
            let (sizes, to) = (IndexDims::new(&node.shape, &indices.view.shape, *batch), context.place(id)?);
            let lists = space.take(list_bytes(sizes));
            let copy = Work::Copy { from: x.place, to, bytes: node.bytes() };
            let mut works = if x.place == to || node.count() == 0 { vec![] } else { vec![copy] };
            // The check of these indices runs before an update in place; otherwise the sum is not read after a failure.
            let places = (indices.place, updates.place, to);
            works.extend(launched(add_rows(context.dialect, sizes, node.dtype, places, lists)));
            works
        }
        &Kind::CheckIndex { limit, .. } => launched(check(&elements(0)?, limit).into_iter().collect()),
        _ => return Err(no_kernel(node)),
    })
}

/// Returns the kernel of an operation that computes windows, sums or blocks independently.
fn by_block(context: Context, id: usize) -> Result<Launch> {
    let schedule = context.schedule;
    let node = &schedule.nodes[id];
    let elements = |number: usize| operand(&context, id, number).map(|(elements, _)| elements);
    let to = context.place(id)?;
    let read_dtype = |operand: Option<&Operand>| {
        operand.and_then(Operand::at).map_or(node.dtype, |(read, _)| schedule.nodes[read].dtype)
    };
    Ok(match &node.kind {
        Kind::WindowArgMax(dims) => {
            let x = elements(0)?;
            let lead = node.shape.len() - 2;
            let planes = node.shape[..lead].iter().product();
            let sizes = (planes, x.view.shape[lead], x.view.shape[lead + 1], node.shape[lead], node.shape[lead + 1]);
            window_argmax(context.dialect, dims, read_dtype(node.operands.first()), sizes, x.place, to)
        }
        Kind::CumSum { axis, reverse } => {
            let x = elements(0)?;
            let (before, after) = (&x.view.shape[..*axis], &x.view.shape[axis + 1..]);
            let sizes = (before.iter().product(), x.view.shape[*axis], after.iter().product());
            cumsum(context.dialect, sizes, *reverse, node.dtype, x.place, to)
        }
        Kind::Block(op) => {
            let places = [elements(0)?.place, elements(node.operands.len() - 1)?.place, to];
            let operands = (0..node.operands.len()).map(elements).collect::<Result<Vec<_>>>()?;
            let shapes: Vec<&[usize]> = operands.iter().map(|operand| operand.view.shape.as_slice()).collect();
            let blocks = Blocks::of(*op, &shapes, &node.shape);
            block_op(context.dialect, *op, blocks, read_dtype(node.operands.last()), places)
        }
        _ => return Err(no_kernel(node)),
    })
}

/// Returns the kernels of an operation that only moves elements, or adds those that meet.
fn moved(context: Context, id: usize) -> Result<Vec<Launch>> {
    let node = &context.schedule.nodes[id];
    let to = (context.place(id)?, context.storage(id));
    let parts = (0..node.operands.len()).map(|number| operand(&context, id, number)).collect::<Result<Vec<_>>>()?;
    let padded = |frames: &[Padding]| {
        let parts: Vec<_> = parts.iter().copied().zip(frames).collect();
        vec![pad_sum(context.dialect, &parts, &node.shape, node.dtype, to)]
    };
    Ok(match &node.kind {
        Kind::Concat(axis) => {
            // Parts that were computed in place need no copy.
            let mut at = to.0;
            let is_there = |(from, storage): &(Elements, StorageType)| {
                let there = from.place == at;
                at.offset += from.view.count() * storage.size();
                there
            };
            if node.shape[..*axis].iter().all(|&length| length == 1) && parts.iter().all(is_there) {
                return Ok(vec![]);
            }
            vec![concat(context.dialect, &parts, *axis, &node.shape, to)]
        }
        Kind::Pad(frame) => padded(std::slice::from_ref(frame)),
        Kind::PadSum(frames) => padded(frames),
        _ => return Err(no_kernel(node)),
    })
}
