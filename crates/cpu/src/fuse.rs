//! Grouping: chains of elementwise operations and their reductions become one loop over tiles that stay in cache.
//!
//! A loop runs over n elements in row-major order. Where it contains a reduction over trailing axes, the n elements are
//! rows of l, and its members are of three kinds: `Full` (n values), `Row` (n/l values, one a row: what a row reduction gives,
//! and what is computed from that), and `Sink` (a reduction over other axes, added up in memory and complete only after
//! the loop). So a softmax, a layer norm or a cross entropy, forward or backward, is one pass over memory.

use crate::lower::{Elementwise, Kind, Lowering, Operand};
use crate::order::Order;
use crate::planning::{known, lacks};
use crate::view::{Run, View};
use bilevel_graph::Result;
use std::collections::HashMap;

/// Longest row kept in cache.
const MAX_ROW: usize = 16 * 1024;
/// Loops at most this long are put together even when unrelated: the cost of starting one is what counts.
const SMALL: usize = 64;

/// What a member of a loop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Full,
    Row,
    /// Reduction into memory of full (true) or row values.
    Sink {
        full: bool,
    },
}

/// One loop, or one operation of another kind.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub members: Vec<usize>,
    /// `Some` for a loop.
    pub domain: Option<Domain>,
    /// Runs once before the steps of a program.
    pub invariant: bool,
}

/// What a loop runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Domain {
    pub n: usize,
    pub row: Option<usize>,
}

/// The groups of a program and the order they must keep.
pub(crate) struct Grouping {
    pub groups: Vec<Group>,
    pub group_of: Vec<Option<usize>>,
    pub role: Vec<Option<Role>>,
    pub order: Order,
}

/// How a member gets an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The value the same loop holds for the same element (or row).
    Register,
    /// The row's value, repeated along the row.
    Repeat,
    /// From memory.
    Memory,
}

/// True where the view shows all elements of its memory in their order.
pub(crate) fn is_whole(low: &Lowering, node: usize, view: &View) -> bool {
    view.is_contiguous() && view.count() == low.nodes[node].count()
}

/// True where the view repeats each of `rows` dense values `length` times.
pub(crate) fn repeats_rows(view: &View, rows: usize, length: usize) -> bool {
    let (dense, repeat) = (Run { length: rows, stride: 1 }, Run { length, stride: 0 });
    view.offset == 0
        && match view.runs()[..] {
            [first, second] => first == dense && second == repeat,
            [only] => rows == 1 && only == repeat,
            _ => false,
        }
}

impl Grouping {
    /// How member `id` of `group`, with this role, reads an operand; `None` where it would have to wait for the whole loop.
    pub fn access(
        &self,
        low: &Lowering,
        group: usize,
        domain: Domain,
        (id, role): (usize, Role),
        operand: &Operand,
    ) -> Option<Access> {
        let Operand::At { node, view } = operand else { return Some(Access::Memory) };
        if self.group_of[*node] != Some(group) {
            return Some(Access::Memory);
        }
        // A draw reads its key and counter whole, for its first element already: only a loop of one tile has them by then.
        let draws = matches!(low.nodes[id].kind, Kind::Elementwise(Elementwise::Random(..)));
        if draws && domain.n > SMALL {
            return None;
        }
        // A row reduction gives a row value but reads full ones.
        let reduction = matches!(low.nodes[id].kind, Kind::Reduce(..) | Kind::ArgMax);
        let wants_full = matches!(role, Role::Full | Role::Sink { full: true }) || (reduction && role == Role::Row);
        match self.role[*node]? {
            Role::Sink { .. } => None,
            Role::Full => (wants_full && is_whole(low, *node, view)).then_some(Access::Register),
            Role::Row if wants_full => {
                let row = domain.row?;
                repeats_rows(view, domain.n / row, row).then_some(Access::Repeat)
            }
            Role::Row => is_whole(low, *node, view).then_some(Access::Register),
        }
    }
}

/// Puts every node that computes something into a group.
pub(crate) fn group(low: &Lowering) -> Result<Grouping> {
    let count = low.nodes.len();
    let mut grouping =
        Grouping { groups: vec![], group_of: vec![None; count], role: vec![None; count], order: Order::default() };
    let mut recent: HashMap<(usize, bool), usize> = HashMap::new();
    let live = low.live();
    for id in (0..count).filter(|&id| live[id]) {
        match low.nodes[id].kind {
            Kind::Input | Kind::Table(_) => continue,
            Kind::Elementwise(_) | Kind::Reduce(..) | Kind::ArgMax => {
                let group = place_in_loop(low, &mut grouping, &recent, id)?;
                if let Some(domain) = grouping.groups[group].domain
                    && domain.n <= SMALL
                {
                    recent.insert((domain.n, low.nodes[id].invariant), group);
                }
            }
            _ => {
                let group = new_group(&mut grouping, None, low.nodes[id].invariant);
                join_new(low, &mut grouping, group, id, None)?;
            }
        }
    }
    Ok(grouping)
}

fn new_group(grouping: &mut Grouping, domain: Option<Domain>, invariant: bool) -> usize {
    grouping.groups.push(Group { members: vec![], domain, invariant });
    grouping.order.add_group()
}

fn place_in_loop(
    low: &Lowering,
    grouping: &mut Grouping,
    recent: &HashMap<(usize, bool), usize>,
    id: usize,
) -> Result<usize> {
    let node = &low.nodes[id];
    let mut candidates: Vec<usize> = node
        .operands
        .iter()
        .filter_map(|o| grouping.group_of[o.at()?.0])
        .filter(|&g| grouping.groups[g].domain.is_some() && grouping.groups[g].invariant == node.invariant)
        .collect();
    // The newest first: it is the likeliest to hold the other operands too.
    candidates.sort_unstable();
    candidates.dedup();
    candidates.reverse();
    let n = known(loop_length(low, id), "the elements of a reduction", node.location)?;
    candidates.extend(recent.get(&(n, node.invariant)).copied().filter(|g| !candidates.contains(g)));
    for &group in &candidates {
        if let Some((domain, role)) = fits(low, grouping, group, id)
            && join(low, grouping, group, id, Some((domain, role)))
        {
            // Its other operands' loops can often run as one with this.
            for &other in candidates.iter().filter(|&&other| other != group) {
                merge(low, grouping, group, other)?;
            }
            return Ok(group);
        }
    }
    let (domain, role) = alone(low, id, n);
    let group = new_group(grouping, Some(domain), node.invariant);
    join_new(low, grouping, group, id, Some((domain, role)))?;
    Ok(group)
}

/// Adds the first member of a new group. It stands last in the order, so no cycle can close.
fn join_new(
    low: &Lowering,
    grouping: &mut Grouping,
    group: usize,
    id: usize,
    place: Option<(Domain, Role)>,
) -> Result<()> {
    let joined = join(low, grouping, group, id, place).then_some(());
    known(joined, "a place for a new group in the order", low.nodes[id].location)
}

/// Number of elements a loop made for this node alone runs over; `None` for a reduction of something without memory.
fn loop_length(low: &Lowering, id: usize) -> Option<usize> {
    let node = &low.nodes[id];
    match &node.kind {
        Kind::Reduce(..) | Kind::ArgMax => Some(node.operands.first()?.at()?.1.count()),
        _ => Some(node.count()),
    }
}

/// For a reduction: the length of its rows, where it is over trailing axes and they fit the cache.
fn row_length(low: &Lowering, id: usize) -> Option<usize> {
    let node = &low.nodes[id];
    let (_, view) = node.operands.first()?.at()?;
    match &node.kind {
        Kind::ArgMax => view.shape.last().copied(),
        Kind::Reduce(_, axes) => {
            let kept = view.shape.len() - axes.len();
            let trailing = axes.iter().copied().eq(kept..view.shape.len());
            let length: usize = axes.iter().map(|&a| view.shape[a]).product();
            (trailing && (2..=MAX_ROW).contains(&length)).then_some(length)
        }
        _ => None,
    }
}

fn alone(low: &Lowering, id: usize, n: usize) -> (Domain, Role) {
    match (&low.nodes[id].kind, row_length(low, id)) {
        (Kind::ArgMax | Kind::Reduce(..), Some(row)) => (Domain { n, row: Some(row) }, Role::Row),
        (Kind::Reduce(..), None) => (Domain { n, row: None }, Role::Sink { full: true }),
        _ => (Domain { n, row: None }, Role::Full),
    }
}

/// The role this node would have in a loop, and the loop's domain with it.
fn fits(low: &Lowering, grouping: &Grouping, group: usize, id: usize) -> Option<(Domain, Role)> {
    let domain = grouping.groups[group].domain?;
    let node = &low.nodes[id];
    let rows = domain.row.map(|row| domain.n / row);
    let choices: Vec<(Domain, Role)> = match &node.kind {
        Kind::Reduce(..) | Kind::ArgMax => {
            let count = loop_length(low, id)?;
            let row = row_length(low, id);
            let as_row = row.filter(|_| count == domain.n && (domain.row.is_none() || domain.row == row));
            let mut choices: Vec<_> =
                as_row.map(|row| (Domain { row: Some(row), ..domain }, Role::Row)).into_iter().collect();
            if matches!(node.kind, Kind::Reduce(..)) && count == domain.n {
                choices.push((domain, Role::Sink { full: true }));
            }
            if matches!(node.kind, Kind::Reduce(..)) && Some(count) == rows {
                choices.push((domain, Role::Sink { full: false }));
            }
            choices
        }
        _ if node.count() == domain.n => vec![(domain, Role::Full)],
        _ if Some(node.count()) == rows => vec![(domain, Role::Row)],
        _ => vec![],
    };
    // A sink from memory gains nothing by joining, and a row reduction of something else's memory only lengthens rows.
    choices.into_iter().find(|&(domain, role)| {
        let mut related = domain.n <= SMALL;
        let possible =
            node.operands.iter().all(|operand| match grouping.access(low, group, domain, (id, role), operand) {
                None => false,
                Some(access) => {
                    related |= access != Access::Memory;
                    true
                }
            });
        possible && related
    })
}

/// Adds a node to a group unless that would close a cycle.
fn join(low: &Lowering, grouping: &mut Grouping, group: usize, id: usize, place: Option<(Domain, Role)>) -> bool {
    for operand in &low.nodes[id].operands {
        if let Some((node, _)) = operand.at()
            && let Some(before) = grouping.group_of[node]
            && before != group
            && !grouping.order.add_edge(before, group)
        {
            return false;
        }
    }
    if let Some((domain, role)) = place {
        grouping.groups[group].domain = Some(domain);
        grouping.role[id] = Some(role);
    }
    grouping.groups[group].members.push(id);
    grouping.group_of[id] = Some(group);
    true
}

/// Most members of a loop: beyond that, its live values no longer fit the cache.
const MAX_MEMBERS: usize = 96;

/// Makes one loop of two, where they run over the same elements, nothing must happen between them, and what one reads of
/// the other it can read from registers.
fn merge(low: &Lowering, grouping: &mut Grouping, group: usize, other: usize) -> Result<()> {
    let (Some(a), Some(b)) = (grouping.groups[group].domain, grouping.groups[other].domain) else { return Ok(()) };
    let members = grouping.groups[group].members.len() + grouping.groups[other].members.len();
    let rows_agree = a.row.is_none() || b.row.is_none() || a.row == b.row;
    if a.n != b.n || !rows_agree || members > MAX_MEMBERS || grouping.groups[other].members.is_empty() {
        return Ok(());
    }
    if grouping.groups[group].invariant != grouping.groups[other].invariant || !grouping.order.adjacent(group, other) {
        return Ok(());
    }
    let domain = Domain { n: a.n, row: a.row.or(b.row) };
    let moved = std::mem::take(&mut grouping.groups[other].members);
    moved.iter().for_each(|&id| grouping.group_of[id] = Some(group));
    let mut all = [&grouping.groups[group].members[..], &moved].concat();
    all.sort_unstable();
    let registers = all.iter().all(|&id| {
        let Some(role) = grouping.role[id] else { return false };
        low.nodes[id].operands.iter().all(|operand| {
            let inside = operand.at().is_some_and(|(node, _)| grouping.group_of[node] == Some(group));
            !inside || grouping.access(low, group, domain, (id, role), operand).is_some()
        })
    });
    if registers {
        if !grouping.order.contract(group, other) {
            return Err(lacks("an order for two loops between which nothing must happen"));
        }
        grouping.groups[group].members = all;
        grouping.groups[group].domain = Some(domain);
    } else {
        moved.iter().for_each(|&id| grouping.group_of[id] = Some(other));
        grouping.groups[other].members = moved;
    }
    Ok(())
}
