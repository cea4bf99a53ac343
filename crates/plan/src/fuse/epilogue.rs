//! GEMM epilogues: loops that are applied to a product's result while it is in cache or in registers.
//!
//! A loop that adds a bias and applies a tanh, or adds another product, becomes one group with the product. The product
//! is the first member, and the loop reads each element of its result from a register. So C = A·B + C₀ is such a group
//! too.

use crate::fuse::affine_epilogue::AffineEpilogue;
use crate::fuse::group::{Grouping, Role};
use crate::fuse::topo_order::TopoOrder;
use crate::internal_error::internal_error;
use crate::ir::lowered_graph::LoweredGraph;
use crate::ir::node::{Kind, Operand};
use crate::target::{EpilogueRule, Target};
use bilevel_graph::Result;

/// Merges a product with the loop that reads it if no group must run between them, the loop reads every element in
/// place, and the target requests it. If a loop reads several products, the last is chosen.
pub(crate) fn attach_epilogues(
    low: &LoweredGraph,
    target: &Target,
    grouping: &mut Grouping,
    order: &mut TopoOrder,
) -> Result<()> {
    for group in 0..grouping.groups.len() {
        let reads = grouping.groups[group].members.iter().flat_map(|&id| low.nodes[id].reads());
        let is_product = |&node: &usize| matches!(low.nodes[node].kind, Kind::Dot(..));
        let mut products: Vec<usize> = reads.map(|(node, _)| node).filter(is_product).collect();
        products.sort_unstable();
        products.dedup();
        for &product in products.iter().rev() {
            let affine = affine(low, target, product, &grouping.groups[group].members);
            let wants = |wants: EpilogueRule| wants(&low.nodes[product], &grouping.groups[group]);
            let wanted = affine.is_some() || target.can.epilogue.is_some_and(wants);
            if wanted && can_follow(low, grouping, order, group, product) {
                let Some(other) = grouping.group_of[product] else { continue };
                if !order.contract(group, other) {
                    return Err(internal_error("an acyclic order after attaching an epilogue"));
                }
                grouping.groups[other].members.clear();
                grouping.groups[group].members.insert(0, product);
                (grouping.groups[group].gemm, grouping.groups[group].affine) = (Some(product), affine);
                grouping.group_of[product] = Some(group);
                grouping.role[product] = Some(Role::Full);
                break;
            }
        }
    }
    Ok(())
}

/// Returns the affine map that a loop applies to a product, if the target has products with such an epilogue and nothing
/// else reads the product or a value on the way to the result.
fn affine(low: &LoweredGraph, target: &Target, product: usize, members: &[usize]) -> Option<AffineEpilogue> {
    target.can.affine_epilogue.filter(|applies| applies(&low.nodes[product]))?;
    let form = AffineEpilogue::of(&low.nodes, product, members)?;
    let inner = |id: usize| id == product || (id != form.result && members.contains(&id));
    let mut readers = low.nodes.iter().enumerate().filter(|(id, _)| !members.contains(id));
    let lasting = low.outputs.iter().chain(low.carries.iter().map(|(_, next)| next));
    let alone = !readers.any(|(_, node)| node.reads().any(|(read, _)| inner(read)))
        && !lasting.filter_map(Operand::at).any(|(read, _)| inner(read));
    alone.then_some(form)
}

/// Returns true if a loop can become the epilogue of a product that it reads.
pub(crate) fn can_follow(
    low: &LoweredGraph,
    grouping: &mut Grouping,
    order: &TopoOrder,
    group: usize,
    product: usize,
) -> bool {
    let (Some(domain), Some(other)) = (grouping.groups[group].domain, grouping.group_of[product]) else { return false };
    let node = &low.nodes[product];
    let alone = grouping.groups[other].gemm.is_none() && grouping.groups[group].gemm.is_none();
    let same = node.count() == domain.n && node.invariant == grouping.groups[group].invariant;
    // An update in place must wait until the product has read the old value.
    let updates = low.carries.iter().any(|(input, next)| {
        let made_here = next.at().is_some_and(|(made, _)| grouping.group_of[made] == Some(group));
        made_here && node.reads().any(|(read, _)| read == *input)
    });
    if updates || !alone || !same || !order.adjacent(group, other) {
        return false;
    }
    // As if it already were a member.
    grouping.group_of[product] = Some(group);
    grouping.role[product] = Some(Role::Full);
    let in_step = grouping.groups[group].members.iter().all(|&id| {
        let Some(role) = grouping.role[id] else { return false };
        let mut of_product = low.nodes[id].operands.iter().filter(|o| o.at().is_some_and(|(read, _)| read == product));
        of_product.all(|operand| grouping.access(&low.nodes, (group, domain), (id, role), operand).is_some())
    });
    grouping.group_of[product] = Some(other);
    grouping.role[product] = None;
    in_step
}

#[cfg(test)]
mod tests {
    use crate::ir::node::Kind;
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::{DType, Graph, Program};

    fn machine() -> Target {
        Target::PLAIN.with(|target| target.can.epilogue = Some(|_, _| true))
    }

    fn is_product(schedule: &Schedule, node: usize) -> bool {
        matches!(schedule.nodes[node].kind, Kind::Dot(..))
    }

    #[test]
    fn a_bias_and_a_tanh_are_one_group_with_their_product_and_take_its_place() {
        let g = Graph::new();
        let (x, w) = (g.input("x", [8, 5], DType::F64), g.input("w", [5, 6], DType::F64));
        let y = (x.matmul(w) + g.input("b", [6], DType::F64).broadcast_to([8, 6])).tanh();
        let program = Program::builder(&g).output("y", y).carry(x, x.sin()).build().unwrap();
        let schedule = Schedule::new(&program, &machine()).unwrap();
        let group = schedule.groups().iter().find(|group| group.gemm.is_some()).unwrap();
        assert_eq!((group.members.len(), group.members[0]), (3, group.gemm.unwrap()));
        assert!(is_product(&schedule, group.members[0]));
        let map = schedule.lay_out(&vec![0; schedule.groups().len()]).unwrap();
        let (y, _) = schedule.outputs[0].at().unwrap();
        assert_eq!(map.nodes[group.members[0]], map.nodes[y]);
        assert_eq!(map.arena_bytes, 0);
    }

    #[test]
    fn a_product_that_others_read_too_keeps_a_place_of_its_own() {
        let g = Graph::new();
        let (x, w) = (g.input("x", [8, 5], DType::F64), g.input("w", [5, 6], DType::F64));
        let product = x.matmul(w);
        let program = Program::builder(&g).output("p", product).output("y", product.tanh()).build().unwrap();
        let schedule = Schedule::new(&program, &machine()).unwrap();
        assert_eq!(schedule.groups().len(), 1);
        let map = schedule.lay_out(&[0]).unwrap();
        let places: Vec<_> = schedule.outputs.iter().map(|o| map.nodes[o.at().unwrap().0]).collect();
        assert_ne!(places[0], places[1]);
    }

    #[test]
    fn a_loop_follows_the_last_of_its_products() {
        let g = Graph::new();
        let (x, w) = (g.input("x", [6, 6], DType::F64), g.input("w", [6, 6], DType::F64));
        let first = x.matmul(w);
        let second = first.matmul(w);
        let program = Program::builder(&g).output("y", first + second).build().unwrap();
        let schedule = Schedule::new(&program, &machine()).unwrap();
        let [alone, together] = schedule.groups() else { panic!("two groups") };
        assert_eq!((alone.gemm, alone.members.len(), together.members.len()), (None, 1, 2));
        assert!(together.gemm.is_some_and(|second| second > alone.members[0]));
    }

    #[test]
    fn a_carried_value_that_the_product_reads_is_updated_in_place_after_the_product() {
        let g = Graph::new();
        let (x, w) = (g.input("x", [6, 6], DType::F64), g.input("w", [6, 6], DType::F64));
        // A product and an update; or a sine, and the two together.
        for (read, together) in [(x, false), (x.sin(), true)] {
            let program = Program::builder(&g).carry(x, x - w.matmul(read) * 0.1).build().unwrap();
            let schedule = Schedule::new(&program, &machine()).unwrap();
            assert!(schedule.carries[0].in_place);
            assert_eq!(schedule.groups().iter().any(|group| group.gemm.is_some()), together);
        }
    }
}
