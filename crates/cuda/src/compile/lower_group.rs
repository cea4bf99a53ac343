//! Lowers one group of a schedule to steps.

use crate::codegen::gemm::fused_attention::fused_attention;
use crate::codegen::{
    Arg, Cell, Context, Elements, Launch, add_rows, check_index, concat, cumsum, gather, list_bytes, pad_sum,
    scatter_add, window_argmax,
};
use crate::compile::fused_loop::loops;
use crate::compile::step::{Factor, Span, Step, Work};
use crate::compile::workspace::Workspace;
use crate::conv::cudnn::Dnn;
use crate::conv::lower::conv;
use crate::gemm::lower::dot;
use bilevel_graph::{DType, Error, Precision, Result};
use bilevel_plan::{IndexDims, Kind, Operand, Place, expect, internal_error};

/// Returns the steps of a group, with the bytes of workspace they need.
pub(crate) fn steps_of(
    context: Context,
    dnn: Option<&Dnn>,
    group: usize,
    workspace: Option<Place>,
) -> Result<(Vec<Step>, usize)> {
    let mut space = Workspace::new(workspace);
    let group = &context.schedule.groups()[group];
    let members = &group.members;
    let works = match group.domain {
        Some(_) if group.second_gemm.is_some() => launched(fused_attention(context, group)?.into_iter().collect()),
        Some(domain) => launched(loops(context, members, domain, &mut space)?),
        None if context.wants(members[0]) => single(context, dnn, members[0], &mut space)?,
        None => vec![],
    };
    let (reads, writes) = spans(context, members, space.bytes(), workspace)?;
    let location = context.schedule.nodes[members[0]].location;
    let all: Vec<Vec<Arg>> = works.iter().map(Work::addresses).collect();
    // If a step can fail, the others must wait for it although they share no memory.
    let can_fail = works.iter().any(Work::can_fail);
    let steps = works.into_iter().zip(all).map(|(work, addresses)| {
        // A reduction of partial results depends only on them, not on the rest of its group.
        let own = |spans: &[Span]| -> Vec<Span> {
            spans.iter().filter(|span| can_fail || addresses.iter().any(|arg| span.holds(arg))).copied().collect()
        };
        Step { work, reads: own(&reads), writes: own(&writes), location }
    });
    Ok((steps.collect(), space.bytes()))
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
fn launched(launches: Vec<Launch>) -> Vec<Work> {
    launches.into_iter().filter(|launch| launch.grid.iter().all(|&blocks| blocks > 0)).map(Work::Kernel).collect()
}

/// Returns the steps of an operation that is a group of its own.
fn single(context: Context, dnn: Option<&Dnn>, id: usize, space: &mut Workspace) -> Result<Vec<Work>> {
    let schedule = context.schedule;
    let node = &schedule.nodes[id];
    let (dtype, line) = (node.dtype, node.location);
    let elements = |operand: usize| -> Result<Elements<'_>> {
        let at = node.operands.get(operand).and_then(Operand::at);
        let (read, view) = expect(at, "the memory of an operand", line)?;
        Ok(Elements { place: context.place(read)?, view })
    };
    let cell = |operand: usize| node.operands[operand].at().map_or(dtype.into(), |(read, _)| context.cell(read));
    let part = |operand: usize| elements(operand).map(|elements| (elements, cell(operand)));
    let to = || context.place(id).map(|place| (place, context.cell(id)));
    let shape_of = |operand: usize| elements(operand).map(|elements| elements.view.shape.clone());
    let number = context.checks.number(id);
    let is_scaled_f16 = |operand: &Operand| operand.at().is_some_and(|(read, _)| schedule.nodes[read].is_scaled_f16());
    let factor = |precision: Precision| match (dtype, precision) {
        _ if node.operands.iter().all(is_scaled_f16) => Factor::Half,
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
                (context.place(id)?, 0, context.cell(id)),
            );
            dot(layout, dtype, factor(*precision), starts, space)
        }
        Kind::Conv(dims, precision) => {
            let to = (&node.layout, context.place(id)?, context.cell(id));
            let operands = [part(0)?, part(1)?];
            conv(dims, operands, (dtype, factor(*precision)), to, dnn, space)
        }
        Kind::Gather { batch } => {
            let (x, indices) = (elements(0)?, elements(1)?);
            let sizes = IndexDims::new(&x.view.shape, &indices.view.shape, *batch);
            launched(vec![gather(sizes, dtype, (x.place, indices.place, context.place(id)?), number)])
        }
        Kind::ScatterAdd { batch } => {
            let (indices, updates) = (elements(0)?, elements(1)?);
            let sizes = IndexDims::new(&node.shape, &indices.view.shape, *batch);
            let lists = space.take(list_bytes(sizes));
            let places = (indices.place, updates.place, context.place(id)?);
            let check = number.map(|number| check_index(indices.place, indices.view.count(), sizes.n, number));
            launched(check.into_iter().chain(scatter_add(sizes, dtype, places, lists)).collect())
        }
        Kind::AddRows { batch } => {
            let (x, indices, updates) = (elements(0)?, elements(1)?, elements(2)?);
            let (sizes, to) = (IndexDims::new(&node.shape, &indices.view.shape, *batch), context.place(id)?);
            let lists = space.take(list_bytes(sizes));
            let copy = Work::Copy { from: x.place, to, bytes: node.bytes() };
            let mut works = if x.place == to || node.count() == 0 { vec![] } else { vec![copy] };
            // The check of these indices runs before an update in place; otherwise the sum is not read after a failure.
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
            let parts = (0..node.operands.len()).map(part).collect::<Result<Vec<_>>>()?;
            // Parts that were computed in place need no copy.
            let mut at = context.place(id)?;
            let is_there = |(from, _): &(Elements, Cell)| {
                let there = from.place == at;
                at.offset += from.view.count() * context.cell(id).size();
                there
            };
            if node.shape[..*axis].iter().all(|&length| length == 1) && parts.iter().all(is_there) {
                vec![]
            } else {
                launched(vec![concat(&parts, *axis, &node.shape, to()?)])
            }
        }
        Kind::Pad(frame) => launched(vec![pad_sum(&[(part(0)?, frame)], &node.shape, dtype, to()?)]),
        Kind::PadSum(frames) => {
            let parts = (0..frames.len()).map(part).collect::<Result<Vec<_>>>()?;
            let parts: Vec<_> = parts.into_iter().zip(frames).collect();
            launched(vec![pad_sum(&parts, &node.shape, dtype, to()?)])
        }
        &Kind::CheckIndex { limit, .. } => {
            let indices = elements(0)?;
            let check = number.map(|number| check_index(indices.place, indices.view.count(), limit, number));
            launched(check.into_iter().collect())
        }
        Kind::Input
        | Kind::CarriedCast(_)
        | Kind::Table(_)
        | Kind::Elementwise(_)
        | Kind::Reduce(..)
        | Kind::AmaxExponent
        | Kind::ArgMax
        | Kind::InlineGather { .. } => return Err(Error::at(internal_error("a kernel for an operation"), line)),
    })
}
