//! Lossless narrow storage: signs and comparisons of 32-bit floats are −1, ±0, 1 or NaN, which bf16 represents exactly.
//!
//! A step of HPO-SGLD with a weight on every parameter stores the signs of all parameters until the outer gradient is
//! known.

use crate::fuse::group::Grouping;
use crate::ir::node::{Elementwise, Kind, Node};
use crate::ir::storage_type::StorageType;
use bilevel_graph::{DType, UnaryOp};

/// Stores such values in bf16 if only loops read them and they do not outlive a step.
pub(crate) fn narrow_lossless(nodes: &mut [Node], lasting: &[bool], grouping: &Grouping) {
    // Libraries, which apply affine epilogues, read arrays of one type.
    let is_loop = |group: usize| grouping.groups[group].domain.is_some() && grouping.groups[group].affine.is_none();
    let in_loop = |id: usize| grouping.group_of[id].is_some_and(is_loop);
    let mut fits: Vec<bool> = (0..nodes.len()).map(|id| is_short(&nodes[id]) && in_loop(id) && !lasting[id]).collect();
    for (id, node) in nodes.iter().enumerate() {
        let reads_elements = matches!(node.kind, Kind::Elementwise(_) | Kind::Reduce(..)) && in_loop(id);
        node.reads().filter(|_| !reads_elements).for_each(|(read, _)| fits[read] = false);
    }
    nodes.iter_mut().zip(fits).filter(|(_, fits)| *fits).for_each(|(node, _)| node.storage = StorageType::Bf16);
}

fn is_short(node: &Node) -> bool {
    let Kind::Elementwise(function) = node.kind else { return false };
    let short = match function {
        Elementwise::Unary(op) => op == UnaryOp::Sign,
        Elementwise::Binary(op) => op.is_comparison(),
        _ => false,
    };
    short && node.dtype == DType::F32
}

#[cfg(test)]
mod tests {
    use crate::ir::node::{Elementwise, Kind};
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::{DType, Graph, Program, UnaryOp};

    /// A target with or without two-byte storage.
    fn machine(reads_bf16: bool) -> Target {
        Target::PLAIN.with(|target| target.can.gemm_reads_bf16 = reads_bf16)
    }

    /// Counts the signs, and those stored in two bytes.
    fn signs(program: &Program, narrows: bool) -> [usize; 2] {
        let schedule = Schedule::new(program, &machine(narrows)).unwrap();
        let is_sign = |kind: &Kind| matches!(kind, Kind::Elementwise(Elementwise::Unary(UnaryOp::Sign)));
        let found: Vec<bool> =
            schedule.nodes.iter().filter(|n| is_sign(&n.kind)).map(|n| n.storage.is_reduced()).collect();
        [found.len(), found.iter().filter(|reduced| **reduced).count()]
    }

    #[test]
    fn signs_that_loops_read_take_two_bytes() {
        let g = Graph::new();
        let [x, y] = ["x", "y"].map(|name| g.input(name, [40, 30], DType::F32));
        let sign = x.sign();
        let kept = Program::builder(&g).output("later", sign * (y - sign).matmul(y.t()).sum_all()).build().unwrap();
        assert_eq!(signs(&kept, true), [1, 1]);
        assert_eq!(signs(&kept, false), [1, 0]);
        let output = Program::builder(&g).output("sign", sign).output("sum", sign + y).build().unwrap();
        assert_eq!(signs(&output, true), [1, 0], "what is given to others has the type of the graph");
        let next = Program::builder(&g).output("sum", sign + y).carry(x, sign).build().unwrap();
        assert_eq!(signs(&next, true), [1, 0]);
        let mut affine = machine(true);
        affine.can.affine_epilogue = Some(|_| true);
        let sum = (y - sign).matmul(y.t()).matmul(x) + sign;
        let sum = Program::builder(&g).output("sum", sum).build().unwrap();
        let schedule = Schedule::new(&sum, &affine).unwrap();
        assert!(schedule.groups().iter().any(|group| group.affine.is_some()));
        assert!(schedule.nodes.iter().all(|node| !node.storage.is_reduced()), "a library reads four bytes");
        let product = Program::builder(&g).output("product", sign.matmul(y.t())).build().unwrap();
        assert_eq!(signs(&product, true), [1, 0], "a product in full precision reads four bytes");
    }
}
