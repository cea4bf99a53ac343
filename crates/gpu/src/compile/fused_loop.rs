//! The kernels of a fused loop: the main kernel, reductions, and the final reduction of partial results.

use crate::codegen::loops::map::map;
use crate::codegen::loops::reduce::reduce;
use crate::codegen::loops::rows::rows;
use crate::codegen::{
    ColumnReduction, Context, Elements, Launch, MAX_TERMS, MemoryReduction, Partial, ReductionShape, Registers,
    RoundedStorage, RowReductions, SegmentReduction, column_blocks, folds, gathered, is_by_columns,
    is_scalar_reduction, is_smem_transpose, partials, read_from_memory, reduce_memory, sum_type, within_rows,
};
use crate::compile::workspace::Workspace;
use bilevel_graph::{DType, Precision, ReduceOp, Result};
use bilevel_plan::{
    Access, Domain, Elementwise, Kind, Operand, Place, Role, StorageType, View, expect, internal_error,
};

/// Returns the kernels of these members. Pure reductions run before the main kernel if it overwrites their operands.
pub fn loops(context: Context, members: &[usize], domain: Domain, space: &mut Workspace) -> Result<Vec<Launch>> {
    let schedule = context.schedule;
    let is_sink = |&id: &usize| matches!(schedule.role(id), Some(Role::Reduction { .. }));
    let mut stored = vec![];
    for id in members.iter().copied().filter(|id| !is_sink(id) && context.wants(*id)) {
        if !context.stores(id)?.is_empty() {
            stored.push(id);
        }
    }
    let sinks = members.iter().copied().filter(|id| is_sink(id) && context.wants(*id));
    let (amax, sinks): (Vec<usize>, Vec<usize>) =
        sinks.partition(|&id| matches!(schedule.nodes[id].kind, Kind::AmaxExponent));
    if let ([member], [], []) = (&stored[..], &sinks[..], &amax[..])
        && let Some(launch) = moved(context, *member)?
    {
        return Ok(vec![launch]);
    }
    // Without row values the mapping is flat: short rows then use enough threads, and random numbers are drawn four at
    // a time.
    let by_rows = members.iter().any(|&id| schedule.role(id) == Some(Role::Row) && context.wants(id));
    match domain.row.filter(|_| by_rows || !sinks.is_empty()) {
        Some(length) => row_loop(context, (domain.n, length), &stored, (&sinks, amax), space),
        None => flat_loop(context, domain.n, &stored, (&sinks, &amax), space),
    }
}

/// Returns the kernel of a loop that only permutes elements, rounded or not, through shared memory: for instance
/// convolution kernels changing layout.
fn moved(context: Context, member: usize) -> Result<Option<Launch>> {
    let (schedule, mut id, mut rounds) = (context.schedule, member, false);
    let [to] = context.stores(member)?[..] else { return Ok(None) };
    let (from, view) = loop {
        let node = &schedule.nodes[id];
        let ([operand], Kind::Elementwise(function)) = (&node.operands[..], &node.kind) else { return Ok(None) };
        let Some((read, view)) = operand.at() else { return Ok(None) };
        match function {
            Elementwise::Copy => {}
            Elementwise::Convert(_) if schedule.nodes[read].dtype == node.dtype => {}
            Elementwise::Round(Precision::Bf16) => rounds = true,
            _ => return Ok(None),
        }
        if schedule.access(id, operand) == Some(Access::Memory) {
            break (read, view);
        }
        id = read;
    };
    if context.overwrites(&[member]) || !is_smem_transpose(view) {
        return Ok(None);
    }
    let (storage, wanted) = (context.storage(from), context.storage(member));
    let rounds = rounds && storage != StorageType::Bf16;
    let written = (rounds || storage != wanted).then_some(RoundedStorage::of(wanted));
    Ok(Some(gathered(context.dialect, Elements { place: context.place(from)?, view }, storage, to, written)))
}

/// Returns the operator, type, shape and result of a reduction.
fn sink(context: Context, id: usize) -> Result<(ReduceOp, DType, ReductionShape, Place)> {
    let node = &context.schedule.nodes[id];
    let Kind::Reduce(op, axes) = &node.kind else { return Err(internal_error("the operator of a reduction")) };
    let (_, view) = expect(node.operands[0].at(), "the elements of a reduction", node.location)?;
    Ok((*op, node.dtype, ReductionShape::new(&view.shape, axes), context.place(id)?))
}

fn flat_loop(
    context: Context,
    n: usize,
    stored: &[usize],
    (sinks, amax): (&[usize], &[usize]),
    space: &mut Workspace,
) -> Result<Vec<Launch>> {
    let (mut scalars, mut others): (Vec<usize>, Vec<(ReductionShape, Vec<usize>)>) = (vec![], vec![]);
    for &id in sinks {
        let (_, _, structure, _) = sink(context, id)?;
        let has_room =
            |(other, same): &&mut (ReductionShape, Vec<usize>)| *other == structure && same.len() < MAX_TERMS;
        if is_scalar_reduction(&structure) {
            scalars.push(id);
        } else if let Some((_, same)) = others.iter_mut().find(has_room) {
            same.push(id);
        } else {
            others.push((structure, vec![id]));
        }
    }
    let (mut works, mut parted) = (vec![], vec![]);
    let with_map = !scalars.is_empty() || others.is_empty();
    for (number, (structure, ids)) in others.iter().enumerate() {
        let last = number + 1 == others.len() && !with_map;
        let mut targets = vec![];
        for &id in ids {
            let (op, dtype, _, place) = sink(context, id)?;
            targets.push((id, target(structure, (op, dtype, place), space, &mut parted)));
        }
        if !context.measures {
            let (stored, amax) = if last { (stored, amax) } else { (&[][..], &[][..]) };
            works.push(reduce(context, structure, stored, &targets, amax)?);
        }
    }
    if with_map {
        let mut targets = vec![];
        let parts = if n == 0 { 0 } else { partials(n) };
        for &id in &scalars {
            let (op, dtype, _, place) = sink(context, id)?;
            let of = sum_type(op, dtype);
            let partial = space.take(parts * of.size());
            targets.push((id, partial));
            parted.push(Partial { op, from: (partial, of), to: (place, dtype), kept: 1, parts });
        }
        if n > 0 && !(stored.is_empty() && targets.is_empty() && amax.is_empty()) && !context.measures {
            works.push(map(context, n, stored, &targets, amax)?);
        }
    }
    works.extend(folds(context.dialect, &parted));
    Ok(works)
}

/// Returns where a reduction writes: to its result or, if it has several parts, to partial results.
fn target(
    structure: &ReductionShape,
    (op, dtype, place): (ReduceOp, DType, Place),
    space: &mut Workspace,
    parted: &mut Vec<Partial>,
) -> Place {
    let (kept, parts) = (structure.kept(), structure.parts());
    if parts == 1 {
        return place;
    }
    let partial = space.take(parts * kept * dtype.size());
    parted.push(Partial { op, from: (partial, dtype), to: (place, dtype), kept, parts });
    partial
}

fn row_loop(
    context: Context,
    (n, length): (usize, usize),
    stored: &[usize],
    (sinks, amax): (&[usize], Vec<usize>),
    space: &mut Workspace,
) -> Result<Vec<Launch>> {
    let overwrites = context.overwrites(stored);
    let (mut written, mut parted) = (RowReductions { amax, ..RowReductions::default() }, vec![]);
    let by_columns = by_columns(context, (n, length), sinks)?;
    // Reductions before the loop, and after it.
    let mut apart: [Vec<(ReductionShape, Vec<MemoryReduction>)>; 2] = [vec![], vec![]];
    for &id in sinks {
        let node = &context.schedule.nodes[id];
        let (op, dtype, structure, place) = sink(context, id)?;
        if by_columns.contains(&id) {
            let (kept, parts) = (length, column_blocks((n, length)));
            let partial = space.take(parts * kept * dtype.size());
            written.columns.push(ColumnReduction { sink: id, op, dtype, place: partial });
            parted.push(Partial { op, from: (partial, dtype), to: (place, dtype), kept, parts });
            continue;
        }
        let memory = read_from_memory(&context, id).and_then(Operand::at);
        let full = memory.is_none() && context.schedule.role(id) == Some(Role::Reduction { full: true });
        if let Some(row) = full.then(|| within_rows(&structure, (n, length), dtype)).flatten() {
            written.inner.push(SegmentReduction { sink: id, op, dtype, place, row });
            continue;
        }
        let (_, view) = expect(node.operands[0].at(), "the elements of a reduction", node.location)?;
        let (from, view, after) = match memory {
            // The loop may overwrite memory of others, row by row in any order.
            Some((read, view)) => ((context.place(read)?, context.storage(read)), view.clone(), !overwrites),
            None => {
                let place = space.take(view.count() * dtype.size());
                written.kept.push((id, place));
                ((place, dtype.into()), View::contiguous(&view.shape), true)
            }
        };
        let to = target(&structure, (op, dtype, place), space, &mut parted);
        let reduced = MemoryReduction { op, dtype, from, view, to };
        let works = &mut apart[usize::from(after)];
        match works.iter_mut().find(|(other, _)| *other == structure) {
            Some((_, same)) => same.push(reduced),
            None => works.push((structure, vec![reduced])),
        }
    }
    let [before, after] = apart.map(|works| {
        works
            .into_iter()
            .flat_map(|(structure, all)| reduce_memory(context.dialect, &structure, &all))
            .collect::<Vec<Launch>>()
    });
    let mut works = before;
    if n > 0 && !(stored.is_empty() && written.is_empty()) && !context.measures {
        works.push(rows(context, (n, length), stored, &written)?);
    }
    works.extend(after);
    works.extend(folds(context.dialect, &parted));
    Ok(works)
}

/// Returns the reductions that a loop over rows accumulates by columns: those of its own values and, if there are any,
/// those of operands in the same order, which it mostly reads anyway.
fn by_columns(context: Context, rows: (usize, usize), sinks: &[usize]) -> Result<Vec<usize>> {
    let (mut computed, mut in_order) = (vec![], vec![]);
    for &id in sinks {
        let (_, dtype, structure, _) = sink(context, id)?;
        let full = context.schedule.role(id) == Some(Role::Reduction { full: true });
        if full && is_by_columns(&structure, rows) {
            match read_from_memory(&context, id).and_then(Operand::at) {
                None => computed.push((id, dtype)),
                Some((read, view)) if context.schedule.nodes[read].is_whole(view) => in_order.push((id, dtype)),
                Some(_) => {}
            }
        }
    }
    let mut registers = Registers::new(rows);
    computed.retain(|(_, dtype)| registers.take(*dtype));
    in_order.retain(|(_, dtype)| !computed.is_empty() && registers.take(*dtype));
    Ok(computed.into_iter().chain(in_order).map(|(id, _)| id).collect())
}
