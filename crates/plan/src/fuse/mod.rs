//! Vertical fusion: elementwise operations and their reductions become loops (see `group.rs`).
//!
//! A node joins the loop of one of its operands if every operand can be read there before the loop ends, and no cycle
//! between groups would close. Loops with a common reader are merged if they run over the same elements.
//!
//! Tiny loops are merged even if unrelated, because launching them dominates their cost. At first only loops with the
//! same dependencies are merged, so that a tiny loop does not serialise two long ones that could be one. The remaining
//! tiny loops are merged after the long ones. No small loop may serialise two large parts of a program, such as two
//! passes through a network with common labels: the memory of both would be live at once.

pub(crate) mod affine_epilogue;
pub(crate) mod epilogue;
pub(crate) mod gemm_gemm;
pub(crate) mod group;
pub(crate) mod licm;
pub(crate) mod min_cut;
pub(crate) mod remat;
pub(crate) mod topo_order;

use crate::fuse::group::{Access, Domain, Group, Grouping, Role};
use crate::fuse::topo_order::TopoOrder;
use crate::internal_error::{expect, internal_error};
use crate::ir::lowered_graph::LoweredGraph;
use crate::ir::node::Kind;
use crate::target::Target;
use bilevel_graph::Result;
use std::collections::HashMap;

/// Whether merging two loops may delay other work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delay {
    /// No large work may become dependent on other large work.
    Never,
    /// A delay is acceptable, because memory is read only once.
    Allowed,
}

/// Puts every computing node into a group, and returns the groups with their partial order.
pub(crate) fn group(low: &LoweredGraph, target: &Target) -> Result<(Grouping, TopoOrder)> {
    let (count, target) = (low.nodes.len(), *target);
    let grouping = Grouping { groups: vec![], group_of: vec![None; count], role: vec![None; count], target };
    let mut fuser = Fuser { low, target, grouping, order: TopoOrder::default(), short: HashMap::new() };
    let live = low.live();
    for id in (0..count).filter(|&id| live[id]) {
        let node = &low.nodes[id];
        match &node.kind {
            Kind::Input | Kind::CarriedCast(_) | Kind::Table(_) => continue,
            kind if kind.fuses() => fuser.place_in_loop(id)?,
            _ => fuser.join_new(id, None).map(|_| ())?,
        }
    }
    fuser.merge_readers()?;
    fuser.merge_short()?;
    Ok((fuser.grouping, fuser.order))
}

struct Fuser<'a> {
    low: &'a LoweredGraph,
    target: Target,
    grouping: Grouping,
    order: TopoOrder,
    /// The newest tiny loop by its length, its invariance and its dependencies.
    short: HashMap<(usize, bool, Vec<usize>), usize>,
}

impl Fuser<'_> {
    fn place_in_loop(&mut self, id: usize) -> Result<()> {
        let node = &self.low.nodes[id];
        let n = expect(loop_length(self.low, id), "the elements of a reduction", node.location)?;
        let waits_for = self.waits_for(id);
        let groups = &self.grouping.groups;
        let mut candidates: Vec<usize> = node
            .reads()
            .filter_map(|(read, _)| self.grouping.group_of[read])
            .filter(|&g| groups[g].domain.is_some() && groups[g].invariant == node.invariant)
            // A rematerialised value begins a separate loop, which its reader then joins.
            .filter(|&g| {
                !node.is_remat || groups[g].members.first().is_some_and(|&first| self.low.nodes[first].is_remat)
            })
            .collect();
        // Newest first: it most likely holds the other operands too.
        candidates.sort_unstable();
        candidates.dedup();
        candidates.reverse();
        let like = (n, node.invariant, waits_for);
        candidates.extend(self.short.get(&like).copied().filter(|g| !candidates.contains(g)));
        for &group in &candidates {
            if let Some(place) = self.fits(group, id)
                && self.waits_already(group, n, &like.2)
                && !self.delays(group, &like.2)
                && self.join(group, id, Some(place))
            {
                // The loops of its other operands can often be merged with this one.
                for &other in candidates.iter().filter(|&&other| other != group) {
                    self.merge(group, other, Delay::Never)?;
                }
                return Ok(());
            }
        }
        let place = self.alone(id, n);
        let group = self.join_new(id, Some(place))?;
        if self.target.costs.is_tiny(n) {
            self.short.insert(like, group);
        }
        Ok(())
    }

    /// Returns the groups of a node's operands, without those of the prologue.
    fn waits_for(&self, id: usize) -> Vec<usize> {
        let node = &self.low.nodes[id];
        let groups = node.reads().filter_map(|(read, _)| self.grouping.group_of[read]);
        let mut groups: Vec<usize> = groups.filter(|&g| node.invariant || !self.grouping.groups[g].invariant).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Returns true if a tiny loop already depends on these groups; a long loop may gain dependencies. A loop over one
    /// row does not wait for a number that is added to its sum, so that the sums over all parameters of a network stay
    /// independent.
    fn waits_already(&self, group: usize, n: usize, others: &[usize]) -> bool {
        let is_short = self.grouping.groups[group].domain.is_some_and(|domain| {
            let of_one_row = n == 1 && domain.row == Some(domain.n);
            self.target.costs.is_tiny(domain.n) || of_one_row
        });
        !is_short || others.iter().all(|&other| other == group || self.order.before(group).contains(&other))
    }

    /// Adds a group with this first member. It is last in the order, so no cycle can close.
    fn join_new(&mut self, id: usize, place: Option<(Domain, Role)>) -> Result<usize> {
        let node = &self.low.nodes[id];
        self.grouping.groups.push(Group {
            members: vec![],
            domain: None,
            gemm: None,
            affine: None,
            second_gemm: None,
            invariant: node.invariant,
        });
        let group = self.order.add_group();
        let joined = self.join(group, id, place).then_some(group);
        expect(joined, "a position for a new group", node.location)
    }

    /// Returns the row length of a reduction over trailing axes, if it is within the limit.
    fn row_length(&self, id: usize) -> Option<usize> {
        let node = &self.low.nodes[id];
        let (_, view) = node.operands.first()?.at()?;
        match &node.kind {
            Kind::ArgMax => view.shape.last().copied(),
            Kind::Reduce(_, axes) => {
                let kept = view.shape.len() - axes.len();
                let trailing = axes.iter().copied().eq(kept..view.shape.len());
                let length: usize = axes.iter().map(|&a| view.shape[a]).product();
                (trailing && (2..=self.target.can.row).contains(&length)).then_some(length)
            }
            _ => None,
        }
    }

    fn alone(&self, id: usize, n: usize) -> (Domain, Role) {
        match (&self.low.nodes[id].kind, self.row_length(id)) {
            (Kind::ArgMax | Kind::Reduce(..), Some(row)) => (Domain { n, row: Some(row) }, Role::Row),
            (Kind::Reduce(..) | Kind::AmaxExponent, None) => (Domain { n, row: None }, Role::Reduction { full: true }),
            _ => (Domain { n, row: None }, Role::Full),
        }
    }

    /// Returns the role that this node would have in a loop, and the resulting domain.
    fn fits(&self, group: usize, id: usize) -> Option<(Domain, Role)> {
        let domain = self.grouping.groups[group].domain?;
        let node = &self.low.nodes[id];
        let rows = domain.row.map(|row| domain.n / row);
        let choices: Vec<(Domain, Role)> = match &node.kind {
            Kind::Reduce(..) | Kind::ArgMax => {
                let count = loop_length(self.low, id)?;
                let row = self.row_length(id);
                let as_row = row.filter(|_| count == domain.n && (domain.row.is_none() || domain.row == row));
                let mut choices: Vec<_> =
                    as_row.map(|row| (Domain { row: Some(row), ..domain }, Role::Row)).into_iter().collect();
                if matches!(node.kind, Kind::Reduce(..)) && count == domain.n {
                    choices.push((domain, Role::Reduction { full: true }));
                }
                if matches!(node.kind, Kind::Reduce(..)) && Some(count) == rows {
                    choices.push((domain, Role::Reduction { full: false }));
                }
                choices
            }
            Kind::AmaxExponent => {
                let whole = loop_length(self.low, id) == Some(domain.n);
                whole.then_some((domain, Role::Reduction { full: true })).into_iter().collect()
            }
            _ if node.count() == domain.n => vec![(domain, Role::Full)],
            _ if Some(node.count()) == rows => vec![(domain, Role::Row)],
            _ => vec![],
        };
        // A reduction from memory gains nothing by joining, and a row reduction of other memory only lengthens rows.
        choices.into_iter().find(|&(domain, role)| {
            let mut related = self.target.costs.is_tiny(domain.n);
            let possible = node.operands.iter().all(|operand| {
                match self.grouping.access(&self.low.nodes, (group, domain), (id, role), operand) {
                    None => false,
                    Some(access) => {
                        related |= access != Access::Memory;
                        true
                    }
                }
            });
            possible && related
        })
    }

    /// Adds a node to a group unless that would close a cycle.
    fn join(&mut self, group: usize, id: usize, place: Option<(Domain, Role)>) -> bool {
        for (node, _) in self.low.nodes[id].reads() {
            if let Some(before) = self.grouping.group_of[node]
                && before != group
                && !self.order.add_edge(before, group)
            {
                return false;
            }
        }
        if let Some((domain, role)) = place {
            self.grouping.groups[group].domain = Some(domain);
            self.grouping.role[id] = Some(role);
        }
        self.grouping.groups[group].members.push(id);
        self.grouping.group_of[id] = Some(group);
        true
    }

    /// Merges loops that read the same memory in full, so that it is read once.
    fn merge_readers(&mut self) -> Result<()> {
        // By node and invariance of the reader: the last operation that read it.
        let mut readers: HashMap<(usize, bool), usize> = HashMap::new();
        for id in 0..self.low.nodes.len() {
            let Some(group) = self.grouping.group_of[id] else { continue };
            let is_loop = self.grouping.groups[group].domain.is_some_and(|domain| !self.target.costs.is_tiny(domain.n));
            for (read, view) in self.low.nodes[id].reads().filter(|_| is_loop) {
                let (read_group, here) = (self.grouping.group_of[read], self.grouping.group_of[id]);
                if read_group == here || !self.low.nodes[read].is_whole(view) {
                    continue;
                }
                let before = readers.insert((read, self.low.nodes[id].invariant), id);
                let before = before.and_then(|before| self.grouping.group_of[before]);
                if let (Some(before), Some(here)) = (before, here)
                    && before != here
                {
                    self.merge(before, here, Delay::Allowed)?;
                }
            }
        }
        Ok(())
    }

    /// Merges short loops that do not depend on each other.
    fn merge_short(&mut self) -> Result<()> {
        let short =
            |group: &Group| group.domain.is_some_and(|domain| domain.n <= self.target.costs.horizontal_fusion_max);
        let groups = &self.grouping.groups;
        let mut all: Vec<usize> =
            (0..groups.len()).filter(|&g| short(&groups[g]) && !groups[g].members.is_empty()).collect();
        all.sort_unstable_by_key(|&g| self.order.place(g));
        // By length and invariance: the loop that others are merged into.
        let mut last: HashMap<(usize, bool), usize> = HashMap::new();
        for group in all {
            let Group { domain: Some(domain), invariant, .. } = self.grouping.groups[group] else { continue };
            let into = last.entry((domain.n, invariant)).or_insert(group);
            if *into != group {
                let into = std::mem::replace(into, group);
                self.merge(group, into, Delay::Never)?;
            }
        }
        Ok(())
    }

    /// Returns true if adding these dependencies to a small loop would make large work that waits for it wait for other
    /// large work too: the memory of both would be live at once.
    fn delays(&self, group: usize, others: &[usize]) -> bool {
        let direct = self.order.before(group);
        let known = others.iter().all(|other| *other == group || direct.contains(other));
        if known || self.is_large(group) {
            return false;
        }
        let is_large = |group| self.is_large(group);
        self.order.any_after(group, is_large) && self.order.any_new_before(group, others, is_large)
    }

    /// Returns true if a group has a large result.
    fn is_large(&self, group: usize) -> bool {
        self.grouping.groups[group].members.iter().any(|&id| self.target.costs.is_large(self.low.nodes[id].bytes()))
    }

    /// Merges two loops if they run over the same elements, no group must run between them, and each can read the
    /// values of the other from registers.
    fn merge(&mut self, group: usize, other: usize, delay: Delay) -> Result<()> {
        let (first, second) = (&self.grouping.groups[group], &self.grouping.groups[other]);
        let (Some(a), Some(b)) = (first.domain, second.domain) else { return Ok(()) };
        let members = first.members.len() + second.members.len();
        let rows_agree = a.row.is_none() || b.row.is_none() || a.row == b.row;
        if a.n != b.n || !rows_agree || members > self.target.can.members || second.members.is_empty() {
            return Ok(());
        }
        if first.invariant != second.invariant || !self.order.adjacent(group, other) {
            return Ok(());
        }
        if delay == Delay::Never && (self.delays(group, &[other]) || self.delays(other, &[group])) {
            return Ok(());
        }
        let domain = Domain { n: a.n, row: a.row.or(b.row) };
        let grouping = &mut self.grouping;
        let moved = std::mem::take(&mut grouping.groups[other].members);
        moved.iter().for_each(|&id| grouping.group_of[id] = Some(group));
        let mut all = [&grouping.groups[group].members[..], &moved].concat();
        all.sort_unstable();
        let registers = all.iter().all(|&id| {
            let Some(role) = grouping.role[id] else { return false };
            self.low.nodes[id].operands.iter().all(|operand| {
                let inside = operand.at().is_some_and(|(node, _)| grouping.group_of[node] == Some(group));
                !inside || grouping.access(&self.low.nodes, (group, domain), (id, role), operand).is_some()
            })
        });
        if registers {
            if !self.order.contract(group, other) {
                return Err(internal_error("an acyclic order after merging two loops"));
            }
            grouping.groups[group].members = all;
            grouping.groups[group].domain = Some(domain);
        } else {
            moved.iter().for_each(|&id| grouping.group_of[id] = Some(other));
            grouping.groups[other].members = moved;
        }
        Ok(())
    }
}

/// Returns the number of elements of a loop for this node alone; `None` for a reduction of a constant.
fn loop_length(low: &LoweredGraph, id: usize) -> Option<usize> {
    let node = &low.nodes[id];
    match &node.kind {
        Kind::Reduce(..) | Kind::AmaxExponent | Kind::ArgMax => Some(node.operands.first()?.at()?.1.count()),
        _ => Some(node.count()),
    }
}
