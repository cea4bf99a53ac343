//! Loop-invariant code motion: which invariant operations are computed before the first step.
//!
//! A hoisted value stays in memory and is read in every step. For a reduction, a matrix product or an exponential that
//! pays. For a multiplication it does not: reading the result costs as much as computing it, and it occupies an array.
//! So cheap elementwise operations stay in the loop that reads them, unless a reader needs them in memory anyway.
//!
//! A program without carries is not a loop: nothing is hoisted, and nothing is kept for a second run.

use crate::ir::lowered_graph::LoweredGraph;
use crate::ir::node::{Elementwise, Kind};
use crate::target::Target;
use bilevel_graph::{BinaryOp, UnaryOp};

/// Clears the invariance mark of all values that are not hoisted.
pub(crate) fn hoist(low: &mut LoweredGraph, target: &Target) {
    // By node: whether a reader is hoisted itself or needs the value in memory.
    let mut wanted = vec![false; low.nodes.len()];
    for id in (0..low.nodes.len()).rev() {
        let node = &low.nodes[id];
        let computes = !matches!(node.kind, Kind::Input | Kind::CarriedCast(_) | Kind::Table(_));
        let invariant = node.invariant && !low.carries.is_empty();
        let hoisted =
            computes && invariant && (wanted[id] || !is_cheap(&node.kind) || target.costs.is_negligible(node.count()));
        let keeps = hoisted || !node.kind.fuses();
        let reads: Vec<usize> = node.reads().map(|(read, _)| read).collect();
        let table = node.gathers_from();
        for read in reads {
            wanted[read] |= keeps || Some(read) == table;
        }
        if computes {
            low.nodes[id].invariant = hoisted;
        }
    }
}

/// Elementwise operations that take no longer than reading their result from memory.
fn is_cheap(kind: &Kind) -> bool {
    match kind {
        Kind::Elementwise(Elementwise::Unary(op)) => {
            matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Floor)
        }
        Kind::Elementwise(Elementwise::Binary(op)) => {
            !matches!(op, BinaryOp::Pow | BinaryOp::Polygamma | BinaryOp::Div)
        }
        Kind::Elementwise(
            Elementwise::Copy
            | Elementwise::Select
            | Elementwise::Convert(_)
            | Elementwise::Round(_)
            | Elementwise::Unscale(_),
        ) => true,
        Kind::Elementwise(Elementwise::ScaleToF16(_) | Elementwise::Random(..))
        | Kind::Input
        | Kind::CarriedCast(_)
        | Kind::Table(_)
        | Kind::Reduce(..)
        | Kind::AmaxExponent
        | Kind::ArgMax
        | Kind::Dot(..)
        | Kind::Conv(..)
        | Kind::Gather { .. }
        | Kind::InlineGather { .. }
        | Kind::ScatterAdd { .. }
        | Kind::AddRows { .. }
        | Kind::WindowArgMax(_)
        | Kind::CumSum { .. }
        | Kind::Host(_)
        | Kind::Collective(_)
        | Kind::Block(_)
        | Kind::Concat(_)
        | Kind::Pad(_)
        | Kind::PadSum(_)
        | Kind::CheckIndex { .. } => false,
    }
}
