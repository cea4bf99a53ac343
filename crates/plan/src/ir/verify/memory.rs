//! The verifier's rule for memory: no two values share a byte while both are needed, unless one is computed as a part of
//! the other or written over it.

use crate::ir::node::{Kind, Operand};
use crate::ir::verify::require;
use crate::memory::alias_policy::{AliasPolicy, Stage};
use crate::memory::{MemoryMap, Place, Region, lives};
use crate::schedule::Schedule;
use bilevel_graph::Result;

/// The owner of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The value of a node.
    Node(usize),
    /// The workspace of a group.
    Workspace(usize),
}

/// Bytes that are needed from group `first` to group `last`, counted from 1.
#[derive(Clone, Copy, Debug)]
struct Held {
    owner: Owner,
    place: Place,
    bytes: usize,
    first: usize,
    last: usize,
    stage: Stage,
}

impl Held {
    fn end(&self) -> usize {
        self.place.offset.saturating_add(self.bytes)
    }

    /// Returns true if both are needed at some time, or in stages that may overlap.
    fn meets(&self, other: &Held) -> bool {
        let are_concurrent = self.stage != other.stage && self.stage != Stage::Both && other.stage != Stage::Both;
        are_concurrent || (self.first <= other.last && other.first <= self.last)
    }
}

/// Checks a memory map that was assigned under this policy.
pub(crate) fn verify_memory(schedule: &Schedule, map: &MemoryMap, policy: AliasPolicy) -> Result<()> {
    let mut all = held(schedule, map, policy);
    for one in &all {
        let size = match one.place.region {
            Region::Arena => map.arena_bytes,
            Region::Persistent => map.persistent_bytes,
            Region::Input(_) | Region::Output(_) => continue,
        };
        require(one.end() <= size, || format!("{:?} ends beyond {:?}, which has {size} bytes", one.owner, one.place))?;
    }
    all.sort_unstable_by_key(|one| (one.place, one.bytes));
    let mut before: Vec<Held> = vec![];
    for one in all {
        before.retain(|other| other.place.region == one.place.region && other.end() > one.place.offset);
        let other = before.iter().find(|other| one.meets(other) && !may_share(schedule, other, &one));
        require(other.is_none(), || format!("{other:?} and {one:?} share memory and are needed at the same time"))?;
        before.push(one);
    }
    Ok(())
}

/// Values and workspaces that take any bytes.
fn held(schedule: &Schedule, map: &MemoryMap, policy: AliasPolicy) -> Vec<Held> {
    let end = schedule.groups().len() + 1;
    let (stages, mut is_separate) = (policy.stages(schedule, &[]), vec![false; schedule.nodes.len()]);
    let copied = schedule.carries.iter().filter(|carry| policy == AliasPolicy::SeparateCarries && !carry.in_place);
    copied.filter_map(|carry| carry.next.at()).for_each(|(node, _)| is_separate[node] = true);
    let of_node = |(id, life)| {
        let (place, life): (Place, crate::memory::arena::Life) = (map.nodes[id]?, life?);
        let stage = stages.get(id).copied().unwrap_or(Stage::Early);
        let throughout = is_separate[id] || (stage == Stage::Both && !stages.is_empty());
        let (first, last) = if throughout { (0, end) } else { (life.first, life.last) };
        Some(Held { owner: Owner::Node(id), place, bytes: life.bytes, first, last, stage })
    };
    let of_group = |(g, workspace): (usize, &Option<Place>)| {
        let late = if let AliasPolicy::Stages(late) = policy { late[g] } else { false };
        let (owner, stage) = (Owner::Workspace(g), Stage::of_group(late));
        workspace.map(|place| Held { owner, place, bytes: 1, first: g + 1, last: g + 1, stage })
    };
    let values = lives(schedule).into_iter().enumerate().filter_map(of_node);
    let workspaces = map.workspaces.iter().enumerate().filter_map(of_group);
    values.chain(workspaces).filter(|one| one.bytes > 0).collect()
}

/// Returns true if one of two values is computed as a part of the other, at hand of its product, or over a carried
/// value.
fn may_share(schedule: &Schedule, a: &Held, b: &Held) -> bool {
    let (Owner::Node(x), Owner::Node(y)) = (a.owner, b.owner) else { return false };
    [(x, a, y, b), (y, b, x, a)].into_iter().any(|(one, of_one, other, of_other)| {
        let updates = schedule.carries.iter().any(|carry| {
            carry.in_place && carry.input == one && carry.next.at().is_some_and(|(next, _)| next == other)
        });
        let group = schedule.group_of(one).filter(|&group| schedule.group_of(other) == Some(group));
        let is_product_at_hand = group.is_some_and(|group| schedule.groups()[group].gemm == Some(one));
        updates
            || (is_product_at_hand && of_one.place == of_other.place && of_one.first == of_one.last)
            || is_part(schedule, (one, of_one), (other, of_other))
    })
}

/// Returns true if a value is at its place within a concatenation.
fn is_part(schedule: &Schedule, (whole, of_whole): (usize, &Held), (part, of_part): (usize, &Held)) -> bool {
    let node = &schedule.nodes[whole];
    if !matches!(node.kind, Kind::Concat(_)) {
        return false;
    }
    let mut offset = of_whole.place.offset;
    node.operands.iter().filter_map(Operand::at).any(|(read, _)| {
        let is_here = read == part && offset == of_part.place.offset;
        offset += schedule.nodes[read].bytes();
        is_here
    })
}
