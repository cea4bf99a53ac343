//! Sums of padded values as one operation (col2im).
//!
//! The derivative of reading overlapping patches of an image is the sum of all patches, each padded to the size of the
//! image. Padded separately, nine patches are written among zeros and read again. As one operation, every patch is read
//! once and the image is written once.

use crate::ir::node::{Operand, Padding};
use bilevel_graph::{BinaryOp, Op, Program};

/// By node: for a maximal sum of padded values, the paddings in the order of addition. Neither they nor intermediate
/// sums have other readers.
pub(crate) fn pad_sums(program: &Program, uses: &[usize]) -> Vec<Option<Vec<usize>>> {
    let nodes = &program.nodes;
    // By node: the paddings that it is the sum of.
    let mut found: Vec<Option<Vec<usize>>> = vec![None; nodes.len()];
    for (id, node) in nodes.iter().enumerate() {
        found[id] = match node.op {
            Op::Pad { .. } => Some(vec![id]),
            Op::Binary(BinaryOp::Add) if node.meta.dtype.is_float() => {
                let terms = |term: usize| found[term].clone().filter(|_| uses[term] == 1);
                let (first, second) = (terms(node.inputs[0]), terms(node.inputs[1]));
                first.zip(second).map(|(first, second)| [first, second].concat())
            }
            _ => None,
        };
    }
    for (id, node) in nodes.iter().enumerate() {
        if matches!(node.op, Op::Pad { .. }) {
            found[id] = None;
        } else if found[id].is_some() {
            node.inputs.iter().for_each(|&term| found[term] = None);
        }
    }
    found
}

/// Returns true if no two padded values overlap: along some axis, one ends before the other begins.
pub(crate) fn are_disjoint(frames: &[Padding], pieces: &[Operand]) -> bool {
    let extent = |piece: usize, axis: usize| -> Option<(usize, usize)> {
        let (low, stride, length) =
            (frames[piece].low[axis], frames[piece].interior[axis] + 1, pieces[piece].at()?.1.shape[axis]);
        Some((low, low + length.checked_sub(1).map_or(0, |last| last * stride + 1)))
    };
    let is_disjoint = |a: usize, b: usize| {
        (0..frames[a].low.len())
            .any(|axis| extent(a, axis).zip(extent(b, axis)).is_some_and(|(a, b)| a.1 <= b.0 || b.1 <= a.0))
    };
    (0..frames.len()).all(|a| (0..a).all(|b| is_disjoint(a, b)))
}

#[cfg(test)]
mod tests {
    use crate::ir::node::Kind;
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::{DType, Graph, Program, Tensor, gradient};

    /// A target with or without fused sums of padded values.
    fn machine(pad_sum: bool) -> Target {
        Target::PLAIN.with(|target| target.can.pad_sum = pad_sum)
    }

    /// Counts the paddings, and the terms of fused sums.
    fn pieces(program: &Program, overlays: bool) -> (usize, Vec<usize>) {
        let schedule = Schedule::new(program, &machine(overlays)).unwrap();
        let mut found = (0, vec![]);
        for &id in schedule.groups().iter().flat_map(|group| &group.members) {
            match &schedule.nodes[id].kind {
                Kind::Pad { .. } => found.0 += 1,
                Kind::PadSum(frames) => found.1.push(frames.len()),
                _ => {}
            }
        }
        found
    }

    #[test]
    fn the_derivative_of_reading_overlapping_patches_is_one_pad_sum() {
        let g = Graph::new();
        let x = g.input("x", [4, 10], DType::F32);
        let piece = |start: usize| (x.slice(1, start, start + 7) * (start + 2) as f64).sin();
        let loss = piece(0).square() + piece(2).exp() + piece(3).tanh();
        let slope: Tensor = gradient(loss.sum_all(), &[x]).unwrap()[0].unwrap();
        let program = Program::builder(&g).output("slope", slope).build().unwrap();
        assert_eq!(pieces(&program, false), (3, vec![]));
        assert_eq!(pieces(&program, true), (0, vec![3]));
    }

    #[test]
    fn a_padded_value_with_another_reader_is_written_separately() {
        let g = Graph::new();
        let (x, y) = (g.input("x", [5], DType::F32), g.input("y", [6], DType::F32));
        let (x, y) = (x.pad(0, 3, 0), y.pad(0, 0, 2));
        let program = Program::builder(&g).output("sum", x + y).output("x", x.sin()).build().unwrap();
        assert_eq!(pieces(&program, true), (2, vec![]));
    }
}
