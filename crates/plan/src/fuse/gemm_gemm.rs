//! GEMM–loop–GEMM fusion: a loop over rows between two products becomes one group with both, as in attention.
//!
//! C₁ = A₁·B₁,   G = f(C₁, …) row by row,   C₂ = G·B₂
//!
//! A block of rows of G and C₂ depends only on the same rows of C₁. An executor that keeps such a block in fast memory
//! need not store C₁ or G, unless other groups read them.

use crate::fuse::epilogue::can_follow;
use crate::fuse::group::{Group, Grouping, Role};
use crate::fuse::topo_order::TopoOrder;
use crate::ir::dot_layout::DotLayout;
use crate::ir::lowered_graph::LoweredGraph;
use crate::ir::node::{Kind, Node};
use crate::target::Target;

/// Merges a product, the loop over its rows and the product of those rows into one group if no group must run between
/// them and the target requests it.
pub(crate) fn fuse_gemm_gemm(low: &LoweredGraph, target: &Target, grouping: &mut Grouping, order: &mut TopoOrder) {
    for next in 0..low.nodes.len() {
        let Some(GemmGemm { product, groups: [first, middle, last] }) =
            gemm_gemm_ending_at(low, target, grouping, order, next)
        else {
            continue;
        };
        let mut joined = order.clone();
        if joined.contract(middle, first) && joined.adjacent(middle, last) && joined.contract(middle, last) {
            *order = joined;
            for group in [first, last] {
                grouping.groups[group].members.clear();
            }
            let group = &mut grouping.groups[middle];
            group.members.insert(0, product);
            group.members.push(next);
            (group.gemm, group.second_gemm) = (Some(product), Some(next));
            grouping.role[product] = Some(Role::Full);
            for node in [product, next] {
                grouping.group_of[node] = Some(middle);
            }
        }
    }
}

/// A candidate for fusion.
pub(crate) struct GemmGemm {
    /// The first product.
    pub product: usize,
    /// The groups of the first product, of the loop and of the second product.
    pub groups: [usize; 3],
}

/// Returns the candidate whose second product is `next`.
pub(crate) fn gemm_gemm_ending_at(
    low: &LoweredGraph,
    target: &Target,
    grouping: &mut Grouping,
    order: &TopoOrder,
    next: usize,
) -> Option<GemmGemm> {
    let Kind::Dot(layout, _) = &low.nodes[next].kind else { return None };
    let (rows, view) = low.nodes[next].operands[0].at()?;
    let (group, last) = (grouping.group_of[rows]?, grouping.group_of[next]?);
    let length = grouping.groups[group].domain?.row?;
    let in_rows = layout.k == length && layout.a == (length as isize, 1) && is_dense(layout, 0, layout.m * layout.k);
    let other = low.nodes[next].operands[1].at()?.0;
    let reads_once = grouping.group_of[other] != Some(group);
    let is_alone = |group: &Group| group.gemm.is_none() && group.second_gemm.is_none();
    let are_alone = is_alone(&grouping.groups[group]) && is_alone(&grouping.groups[last]);
    let same = low.nodes[next].invariant == grouping.groups[group].invariant && low.nodes[rows].is_whole(view);
    let is_row_by_row = |&id: &usize| {
        let plain = matches!(low.nodes[id].kind, Kind::Elementwise(_) | Kind::Reduce(..));
        plain
            && low.nodes[id].dtype == low.nodes[next].dtype
            && matches!(grouping.role[id], Some(Role::Full | Role::Row))
    };
    let members = &grouping.groups[group].members;
    // An update in place must wait until both products have read the old value.
    let carried = |(_, next): &(usize, crate::Operand)| next.at().is_some_and(|(made, _)| members.contains(&made));
    let fits = in_rows && reads_once && are_alone && same && grouping.role[rows] == Some(Role::Full);
    if !fits || !members.iter().all(is_row_by_row) || low.carries.iter().any(carried) {
        return None;
    }
    let read = members.iter().flat_map(|&id| low.nodes[id].reads()).map(|(read, _)| read);
    let mut products: Vec<usize> =
        read.filter(|&read| is_product_of_rows(&low.nodes[read], layout.m, length)).collect();
    products.sort_unstable();
    products.dedup();
    let product = products.into_iter().rev().find(|&product| {
        target.can.gemm_gemm.is_some_and(|fuses| fuses(&low.nodes, product, &grouping.groups[group], next))
            && can_follow(low, grouping, order, group, product)
    })?;
    Some(GemmGemm { product, groups: [grouping.group_of[product]?, group, last] })
}

/// Returns true for a batched product with dense results of this shape.
fn is_product_of_rows(node: &Node, rows: usize, length: usize) -> bool {
    let Kind::Dot(layout, _) = &node.kind else { return false };
    (layout.m, layout.n, layout.c) == (rows, length, (length as isize, 1)) && is_dense(layout, 2, rows * length)
}

/// Returns true if the matrices of one side are contiguous, with this many elements each.
fn is_dense(layout: &DotLayout, side: usize, elements: usize) -> bool {
    let mut stride = elements as isize;
    layout.batch.iter().rev().filter(|(length, _)| *length != 1).all(|(length, strides)| {
        let expected = stride;
        stride *= *length as isize;
        strides[side] == expected
    })
}

#[cfg(test)]
mod tests {
    use crate::fuse::group::Group;
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::{DType, Graph, Program, Tensor, gradient_or_zeros, nn};

    fn machine() -> Target {
        Target::PLAIN.with(|target| target.can.gemm_gemm = Some(|_, _, _, _| true))
    }

    fn inputs(g: &Graph) -> [Tensor; 3] {
        ["q", "k", "v"].map(|name| g.input(name, [2, 3, 16, 8], DType::F32))
    }

    /// The derivatives of an attention.
    fn derivatives() -> Program {
        let g = Graph::new();
        let [q, k, v] = inputs(&g);
        let y = nn::scaled_dot_product_attention(q, k, v, None);
        let slopes = gradient_or_zeros(y.sin().sum_all(), &[q, k, v]).unwrap();
        let mut builder = Program::builder(&g);
        for (name, slope) in ["q", "k", "v"].into_iter().zip(slopes) {
            builder = builder.output(name, slope);
        }
        builder.build().unwrap()
    }

    /// Members of each fused group, and whether its scores and its weights are stored.
    fn fused_pairs(program: &Program) -> Vec<(usize, bool, bool)> {
        let schedule = Schedule::new(program, &machine()).unwrap();
        let is_strip = |group: &&Group| group.second_gemm.is_some();
        let found = schedule.groups().iter().filter(is_strip).map(|group| {
            let (product, next) = (group.gemm.unwrap(), group.second_gemm.unwrap());
            let (rows, _) = schedule.nodes[next].operands[0].at().unwrap();
            assert_eq!((group.members[0], *group.members.last().unwrap()), (product, next));
            assert!(schedule.is_stored(next));
            let map = schedule.lay_out(&vec![0; schedule.groups().len()]).unwrap();
            assert_eq!(
                [product, rows].map(|id| map.nodes[id].is_some()),
                [product, rows].map(|id| schedule.is_stored(id))
            );
            (group.members.len(), schedule.is_stored(product), schedule.is_stored(rows))
        });
        found.collect()
    }

    #[test]
    fn an_attention_is_one_group_that_leaves_nothing_but_its_result() {
        let g = Graph::new();
        let [q, k, v] = inputs(&g);
        let y = nn::scaled_dot_product_attention(q, k, v, None);
        let [(members, scores, weights)] = fused_pairs(&Program::builder(&g).output("y", y).build().unwrap())[..]
        else {
            panic!("one fused pair")
        };
        assert!(members > 6 && !scores && !weights);
    }

    #[test]
    fn so_is_its_derivative_with_respect_to_the_queries_and_others_read_its_rows() {
        let found = fused_pairs(&derivatives());
        // The derivatives with respect to keys and values read the rows of both groups from memory.
        assert_eq!(found.iter().map(|(_, _, rows)| *rows).collect::<Vec<_>>(), [true, true], "{found:?}");
        assert!(!found[1].1, "nobody else reads the derivative with respect to the weights");
    }

    #[test]
    fn attention_weights_are_recomputed_in_the_backward_pass() {
        let again = machine().with(|target| target.costs.remat_min_bytes = Some(100));
        let schedule = Schedule::new(&derivatives(), &again).unwrap();
        let fused_pairs: Vec<&Group> = schedule.groups().iter().filter(|group| group.second_gemm.is_some()).collect();
        let left = |group: &Group| {
            let is_left = |id: &&usize| schedule.is_stored(**id) && schedule.nodes[**id].shape == [2, 3, 16, 16];
            group.members.iter().filter(is_left).count()
        };
        // Scores in the forward pass; weights and the derivative with respect to scores in the backward pass.
        assert_eq!(fused_pairs.into_iter().map(left).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_product_that_must_wait_for_another_reader_of_the_first_is_not_fused() {
        let g = Graph::new();
        let [q, k, v] = inputs(&g);
        let scores = q.matmul(k.transpose([0, 1, 3, 2]));
        let weights = nn::softmax(scores, 3);
        // The values also depend on the scores through a group of its own.
        let values = v + scores.sum([2, 3]).exp().broadcast([0, 1], [2, 3, 16, 8]).cumsum(2);
        let program = Program::builder(&g).output("y", weights.matmul(values)).build().unwrap();
        assert_eq!(fused_pairs(&program), []);
    }

    #[test]
    fn a_transposed_loop_is_not_fused() {
        let g = Graph::new();
        let [q, k, v] = inputs(&g);
        let weights = nn::softmax(q.matmul(k.transpose([0, 1, 3, 2])), 3);
        let program = Program::builder(&g).output("y", weights.transpose([0, 1, 3, 2]).matmul(v)).build().unwrap();
        assert_eq!(fused_pairs(&program), []);
    }
}
