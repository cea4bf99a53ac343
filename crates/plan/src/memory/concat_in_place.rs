//! Concat elision: the parts of a concatenation are computed directly in its buffer.
//!
//! y = (a, b, c): parts with no other constraint on their address are placed one after the other in y's memory. The
//! derivatives with respect to queries, keys and values are such parts.

use crate::ir::node::{Kind, Node};
use crate::memory::arena::Life;
use crate::schedule::Schedule;

/// The position of a part within its concatenation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConcatSlot {
    /// The concatenation.
    pub whole: usize,
    /// The offset in bytes.
    pub offset: usize,
}

/// By node: the concatenation it is computed in, at a multiple of `align` bytes. Only nodes that satisfy `is_free`
/// qualify. Extends the lifetime of the concatenation to that of its parts.
pub(crate) fn concat_slots(
    schedule: &Schedule,
    align: usize,
    is_free: impl Fn(usize) -> bool,
    lives: &mut [Option<Life>],
) -> Vec<Option<ConcatSlot>> {
    let mut within: Vec<Option<ConcatSlot>> = vec![None; schedule.nodes.len()];
    for (whole, node) in schedule.nodes.iter().enumerate() {
        let Some(parts) = parts_in_order(schedule, node) else { continue };
        let Some(mut life) = lives[whole].filter(|_| is_free(whole) && schedule.group_of(whole).is_some()) else {
            continue;
        };
        let mut offset = 0;
        let mut found: Vec<(usize, ConcatSlot)> = vec![];
        for part in parts {
            let own = lives[part].filter(|_| is_free(part) && within[part].is_none() && offset % align == 0);
            let is_new = found.iter().all(|(other, _)| *other != part);
            let Some(own) = own.filter(|_| is_new) else { break };
            (life.first, life.last) = (life.first.min(own.first), life.last.max(own.last));
            found.push((part, ConcatSlot { whole, offset }));
            offset += own.bytes;
        }
        if found.len() == node.operands.len() {
            lives[whole] = Some(life);
            found.into_iter().for_each(|(part, place)| within[part] = Some(place));
        }
    }
    within
}

/// Returns the parts of a concatenation if they fill it in order, and each is a whole array of its type computed in the
/// same phase.
fn parts_in_order(schedule: &Schedule, node: &Node) -> Option<Vec<usize>> {
    let Kind::Concat(axis) = node.kind else { return None };
    let in_order = node.shape[..axis].iter().all(|&length| length == 1);
    let parts = node.operands.iter().map(|operand| {
        let (part, view) = operand.at()?;
        let made = &schedule.nodes[part];
        let alike = (made.storage, made.invariant) == (node.storage, node.invariant);
        let computed = schedule.group_of(part).is_some() && !matches!(made.kind, Kind::AmaxExponent);
        (alike && computed && made.is_whole(view)).then_some(part)
    });
    parts.collect::<Option<Vec<usize>>>().filter(|_| in_order)
}

#[cfg(test)]
mod tests {
    use crate::ir::node::Kind;
    use crate::memory::Place;
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::{DType, Graph, Program, Tensor};

    fn machine(concat_in_place: bool) -> Target {
        Target::PLAIN.with(|target| target.can.concat_in_place = concat_in_place)
    }

    /// Returns the bytes of the arena, and the offset of each part within the concatenation.
    fn planned(make: impl FnOnce([Tensor; 2]) -> Vec<Tensor>, joins: bool) -> (usize, Vec<Option<usize>>) {
        let g = Graph::new();
        let inputs = ["x", "y"].map(|name| g.input(name, [16, 16], DType::F32));
        let builder = Program::builder(&g).outputs("", make(inputs));
        let schedule = Schedule::new(&builder.build().unwrap(), &machine(joins)).unwrap();
        let map = schedule.lay_out(&vec![0; schedule.groups().len()]).unwrap();
        let whole = schedule.nodes.iter().position(|node| matches!(node.kind, Kind::Concat(_))).unwrap();
        let Place { region, offset } = map.nodes[whole].unwrap();
        let offset = |part: usize| {
            let place = map.nodes[part].unwrap();
            let end = offset + schedule.nodes[whole].bytes();
            (place.region == region && (offset..end).contains(&place.offset)).then(|| place.offset - offset)
        };
        (map.arena_bytes, schedule.nodes[whole].reads().map(|(part, _)| offset(part)).collect())
    }

    fn read([x, y]: [Tensor; 2], axis: usize) -> Vec<Tensor> {
        let joined = x.matmul(y).concat(&[y.matmul(x)], axis);
        vec![if axis == 0 { joined.t().matmul(joined) } else { joined.matmul(joined.t()) }]
    }

    #[test]
    fn parts_are_computed_one_after_the_other_where_they_belong() {
        assert_eq!(planned(|inputs| read(inputs, 0), true), (2048, vec![Some(0), Some(1024)]));
        assert_eq!(planned(|inputs| read(inputs, 0), false), (4096, vec![None, None]));
    }

    #[test]
    fn parts_with_other_layouts_or_other_readers_are_copied() {
        assert_eq!(planned(|inputs| read(inputs, 1), true).1, [None, None], "side by side");
        let twice = |[x, y]: [Tensor; 2]| {
            let part = x.matmul(y);
            let joined = part.concat(&[part], 0);
            vec![joined.t().matmul(joined)]
        };
        assert_eq!(planned(twice, true).1, [None, None], "one part in two places");
        let given = |[x, y]: [Tensor; 2]| {
            let part = x.matmul(y);
            let joined = part.concat(&[y.matmul(x)], 0);
            vec![joined.t().matmul(joined), part]
        };
        assert_eq!(planned(given, true).1, [None, None], "an output has a buffer of its own");
    }
}
