//! Inline gathers: loops gather short rows themselves instead of reading the result of a separate gather.
//!
//! A gather of short rows, such as the four neighbours of a sample point in an image, writes several values per index,
//! and later loops read them all again. Inside those loops each index becomes
//!
//!   value(e) = table[base(e) + index(e)·stride],
//!
//! where base is a view of the table's first row. The rows are never stored, nor are indices that the same loop
//! computes. A loop that needs the rows much later gathers them again.

use crate::ir::index_dims::IndexDims;
use crate::ir::lowered_graph::LoweredGraph;
use crate::ir::node::{Elementwise, Kind, Node, Operand};
use crate::ir::rewrite::Rewriter;
use crate::ir::view::View;
use crate::schedule::index_checks::index_check;
use crate::target::Target;
use std::collections::HashMap;

/// Returns the program with gathers inlined into loops if only loops read them; `None` if there are none.
pub(crate) fn inline_gathers(low: &LoweredGraph, target: &Target) -> Option<LoweredGraph> {
    let gathers = found(low, target);
    if gathers.is_empty() {
        return None;
    }
    let mut new = Rewriter::new(low);
    // By gather and view: the inline gather.
    let mut inlined: HashMap<(usize, View), usize> = HashMap::new();
    for (id, node) in low.nodes.iter().enumerate() {
        for (view, operands) in gathers.get(&id).into_iter().flatten() {
            let operands = operands.clone().map(|(read, view)| Operand::At { node: new.at(read), view });
            let (rows, checking) = (rows(low, id)?, checking(low, id, &gathers[&id]));
            let kind = Kind::InlineGather { stride: rows.inner, limit: rows.n, checked: checking == Some(view) };
            let (shape, layout) = (view.shape.clone(), View::contiguous(&view.shape));
            let made = new.add(Node { kind, operands: operands.to_vec(), shape, layout, ..node.clone() });
            inlined.insert((id, view.clone()), made);
        }
        // The gather becomes dead; dead-code elimination removes it.
        let kept = new.keep();
        for (operand, old) in new.nodes[kept].operands.iter_mut().zip(&node.operands) {
            let inlined_read = old.at().and_then(|(read, view)| Some((*inlined.get(&(read, view.clone()))?, view)));
            if let Some((node, view)) = inlined_read {
                *operand = Operand::At { node, view: View::contiguous(&view.shape) };
            }
        }
    }
    new.finish()
}

/// A view of a gather, with the views of the indices and of the table's first row that produce it.
type GatherReads = (View, [(usize, View); 2]);

/// Returns the gathers of short rows that only loops read, with the views that are read.
fn found(low: &LoweredGraph, target: &Target) -> HashMap<usize, Vec<GatherReads>> {
    let live = low.live();
    let is_gather = |id: &usize| live[*id] && matches!(low.nodes[*id].kind, Kind::Gather { .. });
    let short =
        |id: &usize| rows(low, *id).is_some_and(|rows| (1..=target.costs.max_gathered_row()).contains(&rows.inner));
    let mut found: HashMap<usize, Vec<GatherReads>> =
        (0..low.nodes.len()).filter(is_gather).filter(short).map(|id| (id, vec![])).collect();
    for (node, _) in low.nodes.iter().zip(&live).filter(|(_, live)| **live) {
        let in_loop = match node.kind {
            Kind::Elementwise(kind) => !matches!(kind, Elementwise::Random(..)),
            Kind::Reduce(..) | Kind::AmaxExponent | Kind::ArgMax => true,
            _ => false,
        };
        for (read, view) in node.reads() {
            let Some(views) = found.get_mut(&read) else { continue };
            match through(low, read, view).filter(|_| in_loop && node.invariant == low.nodes[read].invariant) {
                None => drop(found.remove(&read)),
                Some(_) if views.iter().any(|(known, _)| known == view) => {}
                Some(operands) => views.push((view.clone(), operands)),
            }
        }
    }
    let last = low.outputs.iter().chain(low.carries.iter().map(|(_, next)| next));
    last.filter_map(Operand::at).for_each(|(node, _)| drop(found.remove(&node)));
    // A gather fails on any of its indices. If it can, one of the loops must read and check them all.
    let is_checked =
        |id: usize, views: &[GatherReads]| index_check(&low.nodes, id).is_none() || checking(low, id, views).is_some();
    found.retain(|&id, views| !views.is_empty() && is_checked(id, views));
    found
}

/// Returns the first view of a gather that covers all its indices, if the gather can fail: its loop checks them.
fn checking<'a>(low: &LoweredGraph, gather: usize, views: &'a [GatherReads]) -> Option<&'a View> {
    index_check(&low.nodes, gather)?;
    let IndexDims { batch, k, .. } = rows(low, gather)?;
    // Axes with a constant index have stride 0; along all others indices are distinct.
    let met = |indices: &View| -> usize {
        let axes = indices.shape.iter().zip(&indices.strides);
        axes.filter(|(_, stride)| **stride != 0).map(|(length, _)| length).product()
    };
    views.iter().find(|(_, [(_, indices), _])| met(indices) == batch * k).map(|(view, _)| view)
}

/// Returns the dimensions of a gather; `None` if it has no elements or its table is not stored whole.
fn rows(low: &LoweredGraph, gather: usize) -> Option<IndexDims> {
    let Kind::Gather { batch } = low.nodes[gather].kind else { return None };
    let [(table, whole), (_, indices)] = operands(low, gather)?;
    let plain = !low.nodes[table].storage.is_reduced() && low.nodes[gather].count() > 0;
    plain.then(|| IndexDims::new(&whole.shape, &indices.shape, batch))
}

/// Returns the table and the indices of a gather, both dense.
fn operands(low: &LoweredGraph, gather: usize) -> Option<[(usize, &View); 2]> {
    let mut reads = low.nodes[gather].reads();
    Some([reads.next()?, reads.next()?])
}

/// Returns the views of the indices and of the table's first row for a view of a gather's dense result `[batch, k,
/// inner]`. Each axis of the view must run along one of these axes.
fn through(low: &LoweredGraph, gather: usize, view: &View) -> Option<[(usize, View); 2]> {
    let IndexDims { n, k, inner, .. } = rows(low, gather)?;
    let [(table, _), (indices, _)] = operands(low, gather)?;
    let [n, k, inner] = [n, k, inner].map(|length| length as isize);
    let (row, column) = (view.offset.div_euclid(inner), view.offset.rem_euclid(inner));
    let (mut by_index, mut by_base) = (vec![], vec![]);
    // The largest offsets along k and along a row.
    let (mut places, mut columns) = ([row.rem_euclid(k); 2], [column; 2]);
    let go = |ends: &mut [isize; 2], distance: isize| ends[usize::from(distance > 0)] += distance;
    for (&length, &stride) in view.shape.iter().zip(&view.strides) {
        let last = length as isize - 1;
        let (index, base) = match stride {
            _ if last <= 0 => (0, 0),
            stride if stride % (k * inner) == 0 => (stride / inner, stride / (k * inner) * n * inner),
            stride if stride % inner == 0 => {
                go(&mut places, last * stride / inner);
                (stride / inner, 0)
            }
            stride => {
                go(&mut columns, last * stride);
                (0, stride)
            }
        };
        by_index.push(index);
        by_base.push(base);
    }
    let within = |[first, last]: [isize; 2], length: isize| first >= 0 && last < length;
    let shown = |strides, offset| View { shape: view.shape.clone(), strides, offset };
    (within(places, k) && within(columns, inner)).then(|| {
        let base = row.div_euclid(k) * n * inner + column;
        [(indices, shown(by_index, row)), (table, shown(by_base, base))]
    })
}

#[cfg(test)]
mod tests {
    use crate::ir::node::{Kind, Node};
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::{DType, Graph, Program, Tensor, gradient, nn};

    fn machine() -> Target {
        Target::PLAIN.with(|target| {
            target.can.inline_gather = true;
            target.costs.remat_min_bytes = Some(1000);
        })
    }

    /// Counts the gathers, inline gathers and checked inline gathers of a program.
    fn gathers(program: &Program) -> [usize; 3] {
        let schedule = Schedule::new(program, &machine()).unwrap();
        let members = || schedule.groups().iter().flat_map(|group| &group.members).map(|&id| &schedule.nodes[id].kind);
        let count = |is: fn(&Kind) -> bool| members().filter(|kind| is(kind)).count();
        [
            count(|kind| matches!(kind, Kind::Gather { .. })),
            count(|kind| matches!(kind, Kind::InlineGather { .. })),
            count(|kind| matches!(kind, Kind::InlineGather { checked: true, .. })),
        ]
    }

    /// Counts them for a function of rows of this width, in a batch of two.
    fn of_rows(width: usize, make: impl FnOnce(Tensor) -> Tensor) -> [usize; 3] {
        let g = Graph::new();
        let (table, at) = (g.input("table", [2, 10, width], DType::F32), g.input("at", [2, 50], DType::I32));
        gathers(&Program::builder(&g).output("y", make(table.gather(at, 1))).build().unwrap())
    }

    #[test]
    fn gathers_of_short_rows_are_inlined_and_their_indices_checked_once() {
        assert_eq!(of_rows(4, |rows| rows.index(2, 1) * rows.index(2, 3)), [0, 2, 1]);
        assert_eq!(of_rows(4, |rows| rows.sin()), [0, 1, 1], "whole rows");
        assert_eq!(of_rows(4, |rows| rows.transpose([2, 0, 1]).exp()), [0, 1, 1]);
        assert_eq!(of_rows(4, |rows| rows.reverse([1]).sum([2])), [0, 1, 1]);
    }

    /// The gather fails on any of its indices, whether its row is read or not.
    #[test]
    fn rows_of_which_no_loop_reads_all_are_gathered_so_that_every_index_is_checked() {
        assert_eq!(of_rows(4, |rows| rows.slice(1, 7, 30).sin()), [1, 0, 0]);
        let parts = |rows: Tensor| rows.slice(1, 0, 5).sin().concat(&[rows.slice(1, 5, 50).cos()], 1);
        assert_eq!(of_rows(4, parts), [1, 0, 0]);
        let g = Graph::new();
        let (table, at) = (g.input("table", [10, 4], DType::F32), g.input("at", [50], DType::I32));
        let rows = table.take(at);
        let y = rows.slice(0, 0, 5).sin().concat(&[rows.cos()], 0);
        let schedule = Schedule::new(&Program::builder(&g).output("y", y).build().unwrap(), &machine()).unwrap();
        let inlined = schedule.nodes.iter().filter(|node| matches!(node.kind, Kind::InlineGather { .. }));
        let checked = |node: &Node| matches!(node.kind, Kind::InlineGather { checked: true, .. });
        let found: Vec<_> = inlined.map(|node| (node.count() / 4, checked(node))).collect();
        assert_eq!(found, [(5, false), (50, true)], "the loop that reads all rows checks all indices");
    }

    #[test]
    fn long_rows_and_those_that_something_else_reads_are_written() {
        assert_eq!(of_rows(9, |rows| rows.sin()), [1, 0, 0]);
        assert_eq!(of_rows(4, |rows| rows), [1, 0, 0], "an output");
        assert_eq!(of_rows(4, |rows| rows.cumsum(1)), [1, 0, 0]);
        assert_eq!(of_rows(4, |rows| rows.reshape([400]).slice(0, 30, 370).sin()), [1, 0, 0], "across both of a batch");
    }

    #[test]
    fn the_gradient_of_sampling_an_image_gathers_again() {
        let g = Graph::new();
        let (x, at) = (g.input("x", [2, 1, 9, 9], DType::F32), g.input("at", [2, 300], DType::F32));
        let seen = nn::sample_at(x, [at.sin().reshape([2, 300, 1]), at.cos().reshape([2, 300, 1])], false);
        let slope = gradient(seen.square().sum_all(), &[at]).unwrap()[0].unwrap();
        let program = Program::builder(&g).output("seen", seen).output("slope", slope).build().unwrap();
        let [gathers, inlined, checked] = gathers(&program);
        assert_eq!((gathers, checked), (0, 1));
        assert!(inlined >= 4, "{inlined}");
    }
}
