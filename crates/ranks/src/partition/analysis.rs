//! The way of computing every operation, and the placement of its value.
//!
//! One forward pass chooses the way of each operation that moves the fewest elements. Terms of a sum stay terms as long
//! as possible; but a value that is needed whole is summed at its origin, so that it is summed once. Because that
//! changes later choices, the pass is repeated until there is nothing more to sum.

use crate::partition::placement::{Owned, Placement};
use crate::partition::rules::{Site, Way};
use bilevel_graph::shape::element_count;
use bilevel_graph::{Op, Program, even_parts};

/// The plan of a partition, by node of the program.
pub(crate) struct Analysis {
    /// The way it is computed in.
    pub ways: Vec<Way>,
    /// Terms that are summed as soon as they are computed.
    pub summed: Vec<bool>,
    /// The first placement for readers.
    pub places: Vec<Placement>,
}

/// Plans the partition of a program over this many ranks. Of some inputs and outputs every rank has a part only.
pub(crate) fn analyse(program: &Program, ranks: usize, owned: &Owned) -> Analysis {
    let mut summed = vec![false; program.nodes.len()];
    loop {
        let found = propagate(program, ranks, &summed, owned);
        let mut more = false;
        for node in needed_whole(program, &found, owned) {
            more |= found.places[node].is_partial() && !std::mem::replace(&mut summed[node], true);
        }
        if !more {
            return Analysis { summed, ..found };
        }
    }
}

/// The nodes whose value is needed whole.
fn needed_whole(program: &Program, found: &Analysis, owned: &Owned) -> Vec<usize> {
    let outputs = program.outputs.iter().zip(&owned.outputs).filter(|(_, place)| place.is_replicated());
    let outputs = outputs.filter_map(|(port, _)| port.node);
    let whole = program.carries.iter().filter(|carry| owned.inputs[carry.input].is_replicated());
    let mut needed: Vec<usize> = outputs.chain(whole.map(|carry| carry.next)).collect();
    for (node, way) in program.nodes.iter().zip(&found.ways) {
        let whole = node.inputs.iter().zip(&way.operands).filter(|(_, place)| place.is_replicated());
        needed.extend(whole.map(|(&input, _)| input));
    }
    needed
}

fn propagate(program: &Program, ranks: usize, summed: &[bool], owned: &Owned) -> Analysis {
    let mut hints = vec![None; program.nodes.len()];
    program.shards.iter().for_each(|shard| hints[shard.node] = Some(shard.axis));
    let (mut ways, mut places) = (vec![], Vec::<Placement>::new());
    // By node: every rank has the whole value in addition to its part.
    let mut whole = vec![false; program.nodes.len()];
    for (number, node) in program.nodes.iter().enumerate() {
        let is_zero = |&input: &usize| matches!(program.nodes[input].op, Op::Constant(bits) if bits == 0);
        let site = Site {
            op: &node.op,
            operands: node.inputs.iter().map(|&input| &program.nodes[input].meta).collect(),
            result: &node.meta,
            have: node.inputs.iter().map(|&input| &places[input]).collect(),
            zero: node.inputs.iter().map(is_zero).collect(),
        };
        let cost = |way: &Way| {
            let moved = |(i, need): (usize, &Placement)| {
                let elements = element_count(&site.operands[i].shape);
                moved(site.have[i], need, whole[node.inputs[i]]) * elements
            };
            let terms = if way.result.is_partial() { 2 * element_count(&node.meta.shape) } else { 0 };
            way.operands.iter().enumerate().map(moved).sum::<usize>() + terms
        };
        let is_empty = node.meta.shape.contains(&0) || site.operands.iter().any(|meta| meta.shape.contains(&0));
        let input = program.inputs.iter().position(|port| port.node == Some(number));
        let own = input.map(|input| &owned.inputs[input]).filter(|place| !place.is_replicated());
        if let Some(place) = own {
            ways.push(Way { operands: vec![], result: place.clone(), is_maximum: false });
            places.push(place.clone());
            continue;
        }
        let way = site.ways().into_iter().filter(|_| !is_empty).min_by_key(cost).unwrap_or_else(|| site.whole());
        let mut place =
            if summed[number] && way.result.is_partial() { Placement::Replicated } else { way.result.clone() };
        if let (Placement::Replicated, Some(axis)) = (&place, hints[number])
            && node.meta.shape[axis] >= ranks
            && !is_empty
        {
            place = Placement::sharded(axis, &even_parts(node.meta.shape[axis], ranks).into());
            whole[number] = true;
        }
        ways.push(way);
        places.push(place);
    }
    Analysis { ways, summed: vec![], places }
}

/// How often the elements of a value move between ranks to get from one place to another.
fn moved(have: &Placement, need: &Placement, is_whole: bool) -> usize {
    match (have, need) {
        _ if have == need || is_whole => 0,
        (Placement::Replicated, _) => 0,
        (Placement::Partial, Placement::Replicated) => 2,
        _ => 1,
    }
}
