//! The steps of one group of a schedule.

use crate::conv::conv;
use crate::dnn::Dnn;
use crate::dot::dot;
use crate::source::{
    Context, Elements, Launch, Structure, Within, add_rows, check_index, concat, cumsum, fold, gather, is_scalar_sink,
    list_bytes, map, overlay, partials, read_from_memory, reduce, reduce_memory, rows, scatter_add, sum_type,
    window_argmax, within_rows,
};
use crate::step::{Factor, Span, Step, Work};
use crate::workspace::Workspace;
use bilevel_graph::{DType, Error, Precision, ReduceOp, Result};
use bilevel_plan::{Domain, Kind, Operand, Place, Role, Rows, View, known, lacks};

/// Makes the steps of a group, with the bytes of workspace they need.
pub(crate) fn steps_of(
    context: Context,
    dnn: Option<&Dnn>,
    group: usize,
    workspace: Option<Place>,
) -> Result<(Vec<Step>, usize)> {
    let mut space = Workspace::new(workspace);
    let members = &context.schedule.groups()[group].members;
    let works = match context.schedule.groups()[group].domain {
        Some(domain) => loops(context, members, domain, &mut space)?,
        None if context.wants(members[0]) => single(context, dnn, members[0], &mut space)?,
        None => vec![],
    };
    let (reads, writes) = spans(context, members, space.bytes(), workspace)?;
    let location = context.schedule.nodes[members[0]].location;
    let steps = works.into_iter().map(|work| Step { work, reads: reads.clone(), writes: writes.clone(), location });
    Ok((steps.collect(), space.bytes()))
}

/// What a group reads and writes.
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

/// The kernels of a fused loop. Those that only reduce come before the one that writes, which may write over what they read.
fn loops(context: Context, members: &[usize], domain: Domain, space: &mut Workspace) -> Result<Vec<Work>> {
    let schedule = context.schedule;
    let is_sink = |&id: &usize| matches!(schedule.role(id), Some(Role::Sink { .. }));
    let mut stored = vec![];
    for id in members.iter().copied().filter(|id| !is_sink(id) && context.wants(*id)) {
        if !context.stores(id)?.is_empty() {
            stored.push(id);
        }
    }
    let sinks: Vec<usize> = members.iter().copied().filter(|id| is_sink(id) && context.wants(*id)).collect();
    match domain.row {
        Some(length) => row_loop(context, (domain.n, length), &stored, &sinks, space),
        None => flat_loop(context, domain.n, &stored, &sinks, space),
    }
}

/// What a sink reduces, and how.
fn sink(context: Context, id: usize) -> Result<(ReduceOp, DType, Structure, Place)> {
    let node = &context.schedule.nodes[id];
    let Kind::Reduce(op, axes) = &node.kind else { return Err(lacks("the reduction of a sink")) };
    let (_, view) = known(node.operands[0].at(), "the elements of a reduction", node.location)?;
    Ok((*op, node.dtype, Structure::new(&view.shape, axes), context.place(id)?))
}

fn flat_loop(
    context: Context,
    n: usize,
    stored: &[usize],
    sinks: &[usize],
    space: &mut Workspace,
) -> Result<Vec<Work>> {
    let (mut scalars, mut others): (Vec<usize>, Vec<(Structure, Vec<usize>)>) = (vec![], vec![]);
    for &id in sinks {
        let (_, _, structure, _) = sink(context, id)?;
        if is_scalar_sink(&structure) {
            scalars.push(id);
        } else if let Some((_, same)) = others.iter_mut().find(|(other, _)| *other == structure) {
            same.push(id);
        } else {
            others.push((structure, vec![id]));
        }
    }
    let mut works = vec![];
    let with_map = !scalars.is_empty() || others.is_empty();
    for (number, (structure, ids)) in others.iter().enumerate() {
        let last = number + 1 == others.len() && !with_map;
        let parts = structure.parts();
        let (mut targets, mut folds) = (vec![], vec![]);
        for &id in ids {
            let (op, dtype, _, place) = sink(context, id)?;
            if parts == 1 {
                targets.push((id, place));
            } else {
                let partial = space.take(parts * structure.kept() * dtype.size());
                targets.push((id, partial));
                folds.push(fold(op, (partial, dtype), (place, dtype), structure.kept(), parts));
            }
        }
        if !context.measures {
            works.push(reduce(context, structure, if last { stored } else { &[] }, &targets)?);
        }
        works.extend(folds);
    }
    if with_map {
        let (mut targets, mut folds) = (vec![], vec![]);
        let parts = if n == 0 { 0 } else { partials(n) };
        for &id in &scalars {
            let (op, dtype, _, place) = sink(context, id)?;
            let of = sum_type(op, dtype);
            let partial = space.take(parts * of.size());
            targets.push((id, partial));
            folds.push(fold(op, (partial, of), (place, dtype), 1, parts));
        }
        if n > 0 && (!stored.is_empty() || !targets.is_empty()) && !context.measures {
            works.push(map(context, n, stored, &targets)?);
        }
        works.extend(folds);
    }
    Ok(launched(works))
}

fn row_loop(
    context: Context,
    (n, length): (usize, usize),
    stored: &[usize],
    sinks: &[usize],
    space: &mut Workspace,
) -> Result<Vec<Work>> {
    let (mut before, mut inner, mut kept, mut after) = (vec![], vec![], vec![], vec![]);
    for &id in sinks {
        let node = &context.schedule.nodes[id];
        let (op, dtype, structure, place) = sink(context, id)?;
        let memory = read_from_memory(&context, id).and_then(Operand::at);
        // What others have in memory may be written over by the loop, row by row in any order.
        let full = memory.is_none() && context.schedule.role(id) == Some(Role::Sink { full: true });
        if let Some(row) = full.then(|| within_rows(&structure, (n, length), dtype)).flatten() {
            inner.push(Within { sink: id, op, dtype, place, row });
            continue;
        }
        let (_, view) = known(node.operands[0].at(), "the elements of a reduction", node.location)?;
        let dense = View::contiguous(&view.shape);
        let (from, view, works) = match memory {
            Some((read, view)) => (context.place(read)?, view, &mut before),
            None => {
                let place = space.take(view.count() * dtype.size());
                kept.push((id, place));
                (place, &dense, &mut after)
            }
        };
        let parts = structure.parts();
        if parts == 1 {
            works.push(reduce_memory(&structure, op, dtype, (from, view), place));
        } else {
            let partial = space.take(parts * structure.kept() * dtype.size());
            works.push(reduce_memory(&structure, op, dtype, (from, view), partial));
            works.push(fold(op, (partial, dtype), (place, dtype), structure.kept(), parts));
        }
    }
    let has_work = !stored.is_empty() || !inner.is_empty() || !kept.is_empty();
    if n > 0 && has_work && !context.measures {
        before.push(rows(context, (n, length), stored, &inner, &kept)?);
    }
    before.extend(after);
    Ok(launched(before))
}

/// Kernels that have something to do.
fn launched(launches: Vec<Launch>) -> Vec<Work> {
    launches.into_iter().filter(|launch| launch.grid.iter().all(|&blocks| blocks > 0)).map(Work::Kernel).collect()
}

/// The steps of an operation that is a group of its own.
fn single(context: Context, dnn: Option<&Dnn>, id: usize, space: &mut Workspace) -> Result<Vec<Work>> {
    let schedule = context.schedule;
    let node = &schedule.nodes[id];
    let (dtype, line) = (node.dtype, node.location);
    let elements = |operand: usize| -> Result<Elements<'_>> {
        let at = node.operands.get(operand).and_then(Operand::at);
        let (read, view) = known(at, "the memory of an operand", line)?;
        Ok(Elements { place: context.place(read)?, view })
    };
    let cell = |operand: usize| node.operands[operand].at().map_or(dtype.into(), |(read, _)| context.cell(read));
    let shape_of = |operand: usize| elements(operand).map(|elements| elements.view.shape.clone());
    let number = || context.checks.number(id);
    let factor = |precision: Precision| match (dtype, precision) {
        (DType::F64, _) => Factor::F64,
        (_, Precision::Full) => Factor::F32,
        (_, Precision::Tf32) => Factor::Tf32,
        (_, Precision::Bf16) => Factor::Bf16,
    };
    Ok(match &node.kind {
        Kind::Dot(layout, precision) => {
            let (a, b) = (elements(0)?, elements(1)?);
            let starts = (
                (a.place, a.view.offset, cell(0)),
                (b.place, b.view.offset, cell(1)),
                (context.place(id)?, 0, dtype.into()),
            );
            dot(layout, dtype, factor(*precision), starts, space)
        }
        Kind::Conv(dims, precision) => {
            let to = (&node.layout, context.place(id)?);
            let operands = [(elements(0)?, cell(0)), (elements(1)?, cell(1))];
            conv(dims, operands, (dtype, factor(*precision)), to, dnn, space)
        }
        Kind::Gather { batch } => {
            let (x, indices) = (elements(0)?, elements(1)?);
            let sizes = Rows::new(&x.view.shape, &indices.view.shape, *batch);
            launched(vec![gather(sizes, dtype, x.place, indices.place, context.place(id)?, number()?)])
        }
        Kind::ScatterAdd { batch } => {
            let (indices, updates) = (elements(0)?, elements(1)?);
            let sizes = Rows::new(&node.shape, &indices.view.shape, *batch);
            let lists = space.take(list_bytes(sizes));
            let places = (indices.place, updates.place, context.place(id)?);
            let mut works = vec![check_index(indices.place, indices.view.count(), sizes.n, number()?)];
            works.extend(scatter_add(sizes, dtype, places, lists));
            launched(works)
        }
        Kind::AddRows { batch } => {
            let (x, indices, updates) = (elements(0)?, elements(1)?, elements(2)?);
            let (sizes, to) = (Rows::new(&node.shape, &indices.view.shape, *batch), context.place(id)?);
            let lists = space.take(list_bytes(sizes));
            let copy = Work::Copy { from: x.place, to, bytes: node.bytes() };
            let mut works = if x.place == to || node.count() == 0 { vec![] } else { vec![copy] };
            if sizes.batch * sizes.k > 1 {
                // Before the first of them is added, all are looked at; what checks them otherwise may run beside this.
                works.extend(launched(vec![check_index(indices.place, indices.view.count(), sizes.n, number()?)]));
            }
            works.extend(launched(add_rows(sizes, dtype, (indices.place, updates.place, to), lists)));
            works
        }
        Kind::WindowArgMax(dims) => {
            let x = elements(0)?;
            let from = schedule.nodes[node.operands[0].at().map_or(0, |(read, _)| read)].dtype;
            let lead = node.shape.len() - 2;
            let planes = node.shape[..lead].iter().product();
            let sizes = (planes, x.view.shape[lead], x.view.shape[lead + 1], node.shape[lead], node.shape[lead + 1]);
            launched(vec![window_argmax(dims, from, sizes, x.place, context.place(id)?)])
        }
        Kind::CumSum { axis, reverse } => {
            let shape = shape_of(0)?;
            let sizes = (shape[..*axis].iter().product(), shape[*axis], shape[axis + 1..].iter().product());
            launched(vec![cumsum(sizes, *reverse, dtype, elements(0)?.place, context.place(id)?)])
        }
        Kind::Concat(axis) => {
            let parts = (0..node.operands.len()).map(elements).collect::<Result<Vec<_>>>()?;
            launched(vec![concat(&parts, *axis, &node.shape, dtype, context.place(id)?)])
        }
        Kind::Pad(frame) => {
            let part = (elements(0)?, frame);
            launched(vec![overlay(&[part], &node.shape, dtype, context.place(id)?)])
        }
        Kind::Overlay(frames) => {
            let parts = (0..frames.len()).map(elements).collect::<Result<Vec<_>>>()?;
            let parts: Vec<_> = parts.into_iter().zip(frames).collect();
            launched(vec![overlay(&parts, &node.shape, dtype, context.place(id)?)])
        }
        &Kind::CheckIndex { limit, .. } => {
            let indices = elements(0)?;
            launched(vec![check_index(indices.place, indices.view.count(), limit, number()?)])
        }
        _ => return Err(Error::at(lacks("how to run an operation"), line)),
    })
}
