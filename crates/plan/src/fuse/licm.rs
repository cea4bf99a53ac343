//! Which of the operations that are the same in every step are worth computing before the first.
//!
//! What is computed before the steps lies in memory from then on and is read in every step. For a sum, a product of matrices or
//! an exponential that pays. For a multiplication it does not: reading its result costs as much as computing it, and keeping it
//! takes an array. So cheap elementwise work stays in the loop that reads it, unless something reads it that needs it in
//! memory anyway.
//!
//! A program that carries nothing is not a loop: whatever it computes is computed when it is run, in the buffers of its outputs,
//! and nothing is kept for a second run.

use crate::ir::node::{Elementwise, Kind};
use crate::lower::Lowering;
use crate::target::Target;
use bilevel_graph::{BinaryOp, UnaryOp};

/// Results of at most this many elements cost nothing to keep.
const MAX_FREE_ELEMENTS: usize = 64;

/// Marks as invariant only what is computed before the steps.
pub(crate) fn hoist(low: &mut Lowering, target: &dyn Target) {
    // By node: something reads it that makes keeping it worth while, or that is itself computed before the steps.
    let mut wanted = vec![false; low.nodes.len()];
    for id in (0..low.nodes.len()).rev() {
        let node = &low.nodes[id];
        let computes = !matches!(node.kind, Kind::Input | Kind::CarriedCast(_) | Kind::Table(_));
        let invariant = node.invariant && !low.carries.is_empty();
        let hoisted =
            computes && invariant && (wanted[id] || !is_cheap(&node.kind) || node.count() <= MAX_FREE_ELEMENTS);
        let keeps = hoisted || !target.fuses(&node.kind);
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

/// Elementwise work that takes no longer than reading its result from memory.
fn is_cheap(kind: &Kind) -> bool {
    match kind {
        Kind::Elementwise(Elementwise::Unary(op)) => {
            matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Floor)
        }
        Kind::Elementwise(Elementwise::Binary(op)) => !matches!(op, BinaryOp::Pow | BinaryOp::Div),
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
        | Kind::Concat(_)
        | Kind::Pad(_)
        | Kind::PadSum(_)
        | Kind::CheckIndex { .. } => false,
    }
}
