//! The verifier's rules for groups: membership, roles, order, updates in place and which values are in memory.

use crate::fuse::affine_epilogue::AffineEpilogue;
use crate::fuse::group::{Domain, Group, Grouping, Role};
use crate::ir::lowered::LoweredProgram;
use crate::ir::node::{Kind, Operand};
use crate::ir::verify::{broken, require};
use crate::schedule::index_checks::index_check;
use bilevel_graph::Result;
use std::collections::HashMap;

impl LoweredProgram<'_> {
    /// Checks the groups, once there are any.
    pub(crate) fn verify_groups(&self) -> Result<()> {
        let Some(grouping) = self.grouping else { return Ok(()) };
        require(grouping.group_of.len() == self.nodes.len() && grouping.role.len() == self.nodes.len(), || {
            "the groups are those of another program".into()
        })?;
        let mut member_of = vec![None; self.nodes.len()];
        for (g, group) in grouping.groups.iter().enumerate().filter(|(_, group)| !group.members.is_empty()) {
            for &id in &group.members {
                require(id < self.nodes.len() && grouping.group_of[id] == Some(g), || {
                    format!("node {id} is a member of group {g} and said to be in another")
                })?;
                require(member_of[id].replace(g).is_none(), || format!("node {id} is a member of two groups"))?;
                require(self.nodes[id].invariant == group.invariant, || {
                    format!("node {id} and its group {g} do not agree whether they are invariant")
                })?;
            }
            self.verify_group(grouping, g, group)?;
        }
        for id in (0..self.nodes.len()).filter(|&id| self.is_operation(id)) {
            require(member_of[id].is_some(), || format!("node {id} is used and in no group"))?;
        }
        self.verify_order(grouping)?;
        self.verify_in_place(grouping)?;
        self.verify_stored(grouping)
    }

    fn verify_group(&self, grouping: &Grouping, g: usize, group: &Group) -> Result<()> {
        let Some(domain) = group.domain else {
            let [id] = group.members[..] else {
                return Err(broken(format!("group {g} is one operation and has {} members", group.members.len())));
            };
            return require(grouping.role[id].is_none(), || format!("node {id} is in no loop and has a role in one"));
        };
        let whole_rows = domain.row.is_none_or(|row| row > 0 && domain.n.is_multiple_of(row));
        require(whole_rows, || format!("the loop of group {g} has no whole rows"))?;
        let mut seen = vec![];
        for &id in &group.members {
            for (read, _) in self.nodes[id].reads().filter(|(read, _)| grouping.group_of[*read] == Some(g)) {
                require(seen.contains(&read), || format!("group {g} computes node {id} before node {read}"))?;
            }
            seen.push(id);
            if Some(id) == group.second_gemm {
                continue;
            }
            let role = grouping.role[id].ok_or_else(|| broken(format!("node {id} is in a loop and has no role")))?;
            self.verify_role((g, domain), id, role)?;
            if Some(id) != group.gemm {
                self.verify_accesses(grouping, (g, domain), id, role)?;
            }
        }
        self.verify_products(grouping, g, group)
    }

    /// As many elements as the role has values.
    fn verify_role(&self, (g, Domain { n, row }): (usize, Domain), id: usize, role: Role) -> Result<()> {
        let node = &self.nodes[id];
        let reads = node.operands.first().and_then(Operand::at).map_or(0, |(_, view)| view.count());
        let rows = row.map(|row| n / row);
        let reduces = matches!(node.kind, Kind::Reduce(..) | Kind::ArgMax | Kind::AmaxExponent);
        let fits = match role {
            Role::Full => !reduces && node.count() == n,
            Role::Row if reduces => Some(node.count()) == rows && reads == n,
            Role::Row => Some(node.count()) == rows,
            Role::Reduction { full } => reduces && Some(reads) == if full { Some(n) } else { rows },
        };
        require(fits, || format!("node {id} with the role {role:?} does not fit the loop of group {g}"))
    }

    fn verify_accesses(&self, grouping: &Grouping, (g, domain): (usize, Domain), id: usize, role: Role) -> Result<()> {
        for operand in &self.nodes[id].operands {
            require(grouping.access(self.nodes, (g, domain), (id, role), operand).is_some(), || {
                format!(
                    "node {id} reads {:?} of its own loop, which is not complete",
                    operand.at().map(|(read, _)| read)
                )
            })?;
        }
        Ok(())
    }

    /// A product that a loop begins with is its first member, one that it ends in the last.
    fn verify_products(&self, grouping: &Grouping, g: usize, group: &Group) -> Result<()> {
        let is_dot = |id: usize| matches!(self.nodes[id].kind, Kind::Dot(..));
        if let Some(product) = group.gemm {
            let first = group.members.first() == Some(&product) && grouping.role[product] == Some(Role::Full);
            require(first && is_dot(product), || format!("group {g} does not begin with its product"))?;
        }
        if let Some(form) = group.affine {
            let found = group.gemm.and_then(|product| AffineEpilogue::of(self.nodes, product, &group.members[1..]));
            require(found == Some(form), || format!("the loop of group {g} is not the affine map that it names"))?;
        }
        if let Some(next) = group.second_gemm {
            let last = group.members.last() == Some(&next) && group.gemm.is_some();
            require(last && is_dot(next), || format!("group {g} does not end in its second product"))?;
        }
        let products = group.members.iter().filter(|&&id| is_dot(id) && group.domain.is_some()).count();
        let named = usize::from(group.gemm.is_some()) + usize::from(group.second_gemm.is_some());
        require(products == named, || format!("group {g} has {products} products and names {named}"))
    }

    /// A group runs after those it reads: in the order there is, and as numbered once groups are numbered as they run.
    fn verify_order(&self, grouping: &Grouping) -> Result<()> {
        for (g, group) in grouping.groups.iter().enumerate() {
            for (read, _) in group.members.iter().flat_map(|&id| self.nodes[id].reads()) {
                let Some(before) = grouping.group_of[read].filter(|&before| before != g) else {
                    let made = grouping.group_of[read] == Some(g) || !self.computes(read);
                    require(made, || format!("group {g} reads node {read}, which nothing computes"))?;
                    continue;
                };
                let in_order = match (self.prologue, self.order) {
                    (Some(_), _) => before < g,
                    (None, Some(order)) => order.place(before) < order.place(g),
                    (None, None) => true,
                };
                require(in_order, || format!("group {g} reads node {read} of group {before}, which runs after it"))?;
            }
        }
        let Some(prologue) = self.prologue else { return Ok(()) };
        let first = grouping.groups.iter().position(|group| !group.invariant).unwrap_or(grouping.groups.len());
        let all = grouping.groups.iter().skip(first).all(|group| !group.invariant);
        require(all && first == prologue, || format!("the first {prologue} groups are not the invariant ones"))
    }

    /// Nothing reads an old value, and nothing can fail, after the loop that writes over it.
    fn verify_in_place(&self, grouping: &Grouping) -> Result<()> {
        let before = |first: usize, second: usize| match (self.prologue, self.order) {
            (Some(_), _) => first < second,
            (None, Some(order)) => order.place(first) < order.place(second),
            (None, None) => true,
        };
        let is_late = |g: usize, writer: usize| g != writer && !grouping.groups[g].invariant && !before(g, writer);
        let mut readers: HashMap<usize, Vec<usize>> =
            self.carries.iter().filter(|carry| carry.in_place).map(|carry| (carry.input, vec![])).collect();
        for (id, node) in self.nodes.iter().enumerate().filter(|(id, _)| grouping.group_of[*id].is_some()) {
            node.reads().for_each(|(read, _)| readers.get_mut(&read).into_iter().for_each(|ids| ids.push(id)));
        }
        let computing = (0..self.nodes.len()).filter_map(|id| Some((id, grouping.group_of[id]?)));
        let failing: Vec<(usize, usize)> = computing.filter(|(id, _)| index_check(self.nodes, *id).is_some()).collect();
        for carry in self.carries.iter().filter(|carry| carry.in_place) {
            let Some((next, view)) = carry.next.at() else { continue };
            let writer = grouping.group_of[next]
                .ok_or_else(|| broken(format!("nothing computes node {next}, which is written over an input")))?;
            let whole = self.nodes[next].is_whole(view);
            require(whole, || format!("a part of node {next} is written over node {}", carry.input))?;
            let late =
                readers[&carry.input].iter().find(|&&id| grouping.group_of[id].is_some_and(|g| is_late(g, writer)));
            require(late.is_none(), || {
                format!("node {late:?} reads node {} after node {next} was written over it", carry.input)
            })?;
            let late = failing.iter().find(|(_, g)| *g == writer || is_late(*g, writer));
            require(late.is_none(), || format!("node {late:?} can fail after node {next} was written over an input"))?;
            let in_step = match self.nodes[next].kind {
                Kind::AddRows { .. } => self.nodes[next].reads().next().is_some_and(|(read, _)| read == carry.input),
                _ => grouping.role[next] == Some(Role::Full) && grouping.reads_in_step(self.nodes, writer, carry.input),
            };
            require(in_step, || {
                format!("the loop that writes node {next} over node {} reads it out of step", carry.input)
            })?;
        }
        Ok(())
    }

    /// Values that leave their group are in memory.
    fn verify_stored(&self, grouping: &Grouping) -> Result<()> {
        let Some(stored) = self.stored else { return Ok(()) };
        for (id, node) in self.nodes.iter().enumerate().filter(|(id, _)| self.live[*id]) {
            for (read, _) in node.reads().filter(|(read, _)| grouping.group_of[*read] != grouping.group_of[id]) {
                require(stored[read], || format!("node {id} reads node {read}, which is not in memory"))?;
            }
        }
        let copied = self.carries.iter().filter(|carry| !carry.in_place).map(|carry| &carry.next);
        let lost = self.outputs.iter().chain(copied).filter_map(Operand::at).find(|(node, _)| !stored[*node]);
        require(lost.is_none(), || {
            format!("node {:?} is given to others and not in memory", lost.map(|(node, _)| node))
        })
    }
}
