//! In-place updates: which carried inputs are overwritten by the loop that computes their next value.

use crate::fuse::group::{Grouping, Role};
use crate::fuse::topo_order::TopoOrder;
use crate::ir::lowered_graph::LoweredGraph;
use crate::ir::node::{Kind, Operand};
use crate::schedule::index_checks::index_check;
use std::collections::HashMap;

/// The next value of a carried input.
#[derive(Clone, Debug)]
pub struct Carry {
    /// The node of the input.
    pub input: usize,
    /// Its next value. Never a constant.
    pub next: Operand,
    /// Whether the next value overwrites the old one element by element, or by adding [rows](Kind::AddRows). All other
    /// readers of the old value then run before. Otherwise the next value is copied at the end of the step.
    pub in_place: bool,
}

/// Decides which carries are updated in place: the loop must read the old value only element by element, or add rows to
/// it, and all other readers must be able to run before. Adds the necessary edges to the order.
pub(crate) fn carries_in_place(low: &LoweredGraph, grouping: &Grouping, order: &mut TopoOrder) -> Vec<Carry> {
    let mut readers: HashMap<usize, Vec<usize>> = low.carries.iter().map(|(input, _)| (*input, vec![])).collect();
    for (id, node) in low.nodes.iter().enumerate() {
        for (operand, _) in node.reads() {
            readers.entry(operand).and_modify(|readers| readers.push(id));
        }
    }
    // Operations that can fail run before, so that a failed step leaves its inputs unchanged.
    let failing: Vec<usize> = (0..low.nodes.len()).filter(|&id| index_check(&low.nodes, id).is_some()).collect();
    let mut carries = vec![];
    for (input, next) in &low.carries {
        let group = next.at().and_then(|(node, view)| {
            let group = grouping.group_of[node]?;
            let made = &low.nodes[node];
            let in_step = match made.kind {
                Kind::AddRows { .. } => made.reads().enumerate().all(|(i, (read, _))| (read == *input) == (i == 0)),
                _ => grouping.role[node] == Some(Role::Full) && grouping.reads_in_step(&low.nodes, group, *input),
            };
            // A loop that fails midway has already written some elements.
            let fails = grouping.groups[group].members.iter().any(|id| failing.binary_search(id).is_ok());
            (made.is_whole(view) && !grouping.groups[group].invariant && in_step && !fails).then_some(group)
        });
        let in_place = group.is_some_and(|group| {
            let first = readers.get(input).into_iter().flatten().chain(&failing);
            let in_loop = |&g: &usize| g != group && !grouping.groups[g].invariant;
            let mut first: Vec<usize> = first.filter_map(|&id| grouping.group_of[id]).filter(in_loop).collect();
            first.sort_unstable();
            first.dedup();
            first.into_iter().all(|reader| order.add_edge(reader, group))
        });
        carries.push(Carry { input: *input, next: next.clone(), in_place });
    }
    carries
}

#[cfg(test)]
mod tests {
    use crate::ir::node::Kind;
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::{DType, Graph, Program, Tensor};

    fn machine() -> Target {
        Target::PLAIN.with(|target| (target.costs.tiny_loop, target.costs.horizontal_fusion_max) = (64, 64))
    }

    /// Plans a step that carries a table of 1000 rows. Returns which carries are in place, the bytes of arena and
    /// persistent memory, and the schedule.
    fn planned(make: impl FnOnce(Tensor, Tensor) -> (Tensor, Vec<Tensor>)) -> (Vec<bool>, usize, Schedule) {
        let g = Graph::new();
        let (table, at) = (g.input("table", [1000, 8], DType::F64), g.input("at", [], DType::I32));
        let (next, outputs) = make(table, at);
        let builder = Program::builder(&g).carry(table, next).outputs("", outputs);
        let schedule = Schedule::new(&builder.build().unwrap(), &machine()).unwrap();
        let map = schedule.lay_out(&vec![0; schedule.groups().len()]).unwrap();
        (
            schedule.carries.iter().map(|carry| carry.in_place).collect(),
            map.arena_bytes + map.persistent_bytes,
            schedule,
        )
    }

    #[test]
    fn a_row_of_a_carried_table_is_updated_in_place_without_an_operation_of_the_tables_size() {
        let (in_place, bytes, schedule) = planned(|table, at| {
            let (old, new) = (table.take(at), table.take(at).sin());
            (table + (new - old).scatter_add(at, 0, 1000), vec![old])
        });
        assert_eq!(in_place, [true]);
        assert!(bytes < 1000, "{bytes}");
        let members = || schedule.groups().iter().flat_map(|group| &group.members);
        let large: Vec<_> = members().filter(|&&id| schedule.nodes[id].count() >= 8000).collect();
        assert!(matches!(large[..], [&id] if matches!(schedule.nodes[id].kind, Kind::AddRows { .. })), "{large:?}");
        let last = schedule.groups().last().unwrap();
        assert_eq!(last.members, [*large[0]], "who reads the old row, and the check of its number, come first");
    }

    #[test]
    fn tables_updated_at_the_same_index_are_all_updated_in_place_after_one_check() {
        let g = Graph::new();
        let at = g.input("at", [], DType::I32);
        let mut builder = Program::builder(&g);
        for name in ["a", "b", "c"] {
            let table = g.input(name, [1000, 8], DType::F64);
            builder = builder.carry(table, table + table.take(at).cos().scatter_add(at, 0, 1000));
        }
        let schedule = Schedule::new(&builder.build().unwrap(), &machine()).unwrap();
        assert!(schedule.carries.iter().all(|carry| carry.in_place));
        let checks = schedule.nodes.iter().filter(|node| matches!(node.kind, Kind::CheckIndex { .. }));
        assert_eq!(checks.count(), 1);
    }

    #[test]
    fn a_table_whose_old_value_is_needed_later_is_not_overwritten() {
        let (in_place, bytes, _) = planned(|table, at| {
            let next = table + table.take(at).cos().scatter_add(at, 0, 1000);
            (next, vec![(table * next.reverse([0])).sum_all()])
        });
        assert_eq!(in_place, [false]);
        assert!(bytes >= 8000 * 8);
        // Rows of the table that are added to it are read while others are written.
        let (in_place, ..) =
            planned(|table, at| (table + table.scatter_add(at.broadcast([], [1000]), 0, 1000), vec![]));
        assert_eq!(in_place, [false]);
    }

    #[test]
    fn a_table_that_is_also_an_output_is_updated_in_place_and_copied_once_at_the_end() {
        let (in_place, bytes, schedule) = planned(|table, at| {
            let next = table + table.take(at).cos().scatter_add(at, 0, 1000);
            (next, vec![next])
        });
        assert_eq!(in_place, [true]);
        assert!(bytes < 1000);
        assert_eq!(schedule.lay_out(&vec![0; schedule.groups().len()]).unwrap().outputs_to_copy, [0]);
    }
}
