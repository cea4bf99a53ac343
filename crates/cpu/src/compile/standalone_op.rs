//! The step of an operation that is not part of a loop.

use crate::compile::collective::CollectiveStep;
use crate::compile::gemm_conv::Heavy;
use crate::compile::host::{HostArray, HostStep};
use crate::compile::step::StepKind;
use crate::data::moves::Move;
use crate::runtime::memory::{Address, Places};
use bilevel_graph::Result;
use bilevel_graph::block_ops::Blocks;
use bilevel_plan::{IndexDims, Kind, Padding, Schedule, View, expect, internal_error};

/// The step of a group that is this one operation.
pub(crate) fn single(
    schedule: &Schedule,
    id: usize,
    places: &Places,
    workspace: Address,
    heavy: Option<Heavy>,
) -> Result<StepKind> {
    let node = &schedule.nodes[id];
    let place = |node: usize| places.of(schedule, node);
    let (dtype, result) = (node.dtype, place(id)?);
    let operands = node.operands.iter().map(|of| expect(of.at(), "the memory of an operand", node.location));
    let operands: Vec<(usize, &View)> = operands.collect::<Result<_>>()?;
    // First byte of every operand's view.
    let start = |&(n, view): &(usize, &View)| -> Result<Address> {
        Ok(place(n)?.advanced(view.offset, schedule.nodes[n].dtype))
    };
    let starts: Vec<Address> = operands.iter().map(start).collect::<Result<_>>()?;
    let at = |i: usize| starts[i];
    let shape = |i: usize| &operands[i].1.shape[..];
    Ok(match (&node.kind, heavy) {
        (_, Some(Heavy::Gemm(plan))) => StepKind::Gemm { plan, a: at(0), b: at(1), c: result, workspace, then: None },
        (_, Some(Heavy::Conv(plan))) => StepKind::Conv { plan, image: at(0), kernel: at(1), out: result, workspace },
        (Kind::Gather { batch }, _) => {
            let rows = IndexDims::new(shape(0), shape(1), *batch);
            StepKind::Gather { rows, dtype, x: at(0), indices: at(1), result }
        }
        (Kind::ScatterAdd { batch, .. }, _) => {
            let rows = IndexDims::new(&node.shape, shape(0), *batch);
            StepKind::ScatterAdd { rows, dtype, onto: None, indices: at(0), updates: at(1), result }
        }
        (Kind::AddRows { batch }, _) => {
            let rows = IndexDims::new(&node.shape, shape(1), *batch);
            StepKind::ScatterAdd { rows, dtype, onto: Some(at(0)), indices: at(1), updates: at(2), result }
        }
        (Kind::WindowArgMax(dims), _) => {
            let (sizes, dtype) = (planes(shape(0), &node.shape), schedule.nodes[operands[0].0].dtype);
            StepKind::WindowArgMax { dims: dims.clone(), sizes, dtype, x: at(0), result }
        }
        (Kind::CumSum { axis, reverse }, _) => {
            let product = |s: &[usize]| s.iter().product::<usize>();
            let sizes = (product(&node.shape[..*axis]), node.shape[*axis], product(&node.shape[axis + 1..]));
            StepKind::CumSum { sizes, reverse: *reverse, dtype, x: at(0), result }
        }
        (&Kind::Block(op), _) => {
            let shapes: Vec<&[usize]> = operands.iter().map(|(_, view)| &view.shape[..]).collect();
            let blocks = Blocks::of(op, &shapes, &node.shape);
            // The type of the operand that is sorted, compared or solved.
            let dtype = operands.last().map_or(dtype, |&(n, _)| schedule.nodes[n].dtype);
            StepKind::Block { op, blocks, dtype, operands: [at(0), at(operands.len() - 1)], result }
        }
        (&Kind::CheckIndex { limit, operation }, _) => {
            StepKind::CheckIndex { limit, operation, count: shape(0).iter().product(), indices: at(0) }
        }
        (Kind::Host(call), _) => {
            let array = |at, shape: &[usize], dtype| HostArray { at, count: shape.iter().product(), dtype };
            let typed = operands.iter().enumerate().map(|(i, &(n, _))| array(at(i), shape(i), schedule.nodes[n].dtype));
            let (operands, result) = (typed.collect(), array(result, &node.shape, dtype));
            StepKind::Host(HostStep { call: call.clone(), operands, result })
        }
        (Kind::Collective(collective), _) => {
            let operand = HostArray { at: at(0), count: shape(0).iter().product(), dtype };
            let result = HostArray { at: result, count: node.count(), dtype };
            StepKind::Collective(CollectiveStep { collective: collective.clone(), operand, result })
        }
        (Kind::Concat(axis), _) => {
            let parts: Vec<&View> = operands.iter().map(|&(_, view)| view).collect();
            let parts = operands.iter().zip(concatenated(&node.shape, *axis, &parts));
            let moves = parts.map(|(&(n, view), part)| Ok(Move::new(view, place(n)?, &part, result, dtype)));
            StepKind::Moves { zero: None, moves: moves.collect::<Result<_>>()? }
        }
        (Kind::Pad(Padding { low, interior }), _) => {
            let step: Vec<usize> = interior.iter().map(|n| n + 1).collect();
            let (n, view) = operands[0];
            let part = View::contiguous(&node.shape).slice(low, &step, &view.shape);
            let moves = vec![Move::new(view, place(n)?, &part, result, dtype)];
            StepKind::Moves { zero: Some((result, node.bytes())), moves }
        }
        _ => return Err(internal_error("a way to run an operation by itself").at(node.location)),
    })
}

/// The parts of a concatenation of this shape, as views of it.
fn concatenated(shape: &[usize], axis: usize, parts: &[&View]) -> Vec<View> {
    let (whole, mut start, step) = (View::contiguous(shape), vec![0; shape.len()], vec![1; shape.len()]);
    let mut place = |part: &&View| {
        let view = whole.slice(&start, &step, &part.shape);
        start[axis] += part.shape[axis];
        view
    };
    parts.iter().map(&mut place).collect()
}

/// The number of planes, and their height and width before and after.
fn planes(from: &[usize], to: &[usize]) -> (usize, usize, usize, usize, usize) {
    let rank = to.len();
    (to[..rank - 2].iter().product(), from[rank - 2], from[rank - 1], to[rank - 2], to[rank - 1])
}
