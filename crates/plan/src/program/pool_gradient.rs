//! The gradient of a max pool with disjoint windows as a select: every element belongs to at most one window.
//!
//!   scattered\[k·o + i\] = updates\[o\] if chosen\[o\] = k·o + i, else 0    (o a window of size k, i a position in it)
//!
//! This is elementwise, and part of the loop that reads it. If a pool is decomposed as a whole (`max_pool.rs`), its
//! gradient is also such a select.

use crate::ir::rewrite::Rewriter;
use crate::program::max_pool::are_disjoint;
use bilevel_graph::{BinaryOp, DType, Op, Program, ProgramNode};

/// The dimensions of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Windows {
    planes: usize,
    image: [usize; 2],
    size: [usize; 2],
    count: [usize; 2],
}

/// Returns the program with the gradient of every such pool as a select; `None` if there are none.
pub(crate) fn select_pool_gradients(program: &Program) -> Option<Program> {
    let mut new = Rewriter::new(program);
    let mut changed = false;
    for (id, node) in program.nodes.iter().enumerate() {
        match disjoint_pool_windows(program, id) {
            Some(windows) => {
                let made = selected(&mut new, windows, node);
                new.hold(made);
                changed = true;
            }
            None => drop(new.keep()),
        }
    }
    new.finish().filter(|_| changed)
}

/// Returns the windows of the pool that a scatter is the gradient of, if they are disjoint and every plane of the
/// result is one image.
fn disjoint_pool_windows(program: &Program, scatter: usize) -> Option<Windows> {
    let node = &program.nodes[scatter];
    let Op::ScatterAdd { batch, .. } = node.op else { return None };
    let indices = &program.nodes[node.inputs[0]];
    let argmax = if indices.op == Op::Reshape { &program.nodes[indices.inputs[0]] } else { indices };
    let Op::WindowArgMax(dims) = &argmax.op else { return None };
    let image = &program.nodes[argmax.inputs[0]].meta.shape;
    let (&[h, w], &[oh, ow]) = (image.last_chunk()?, argmax.meta.shape.last_chunk()?);
    let shape = &indices.meta.shape;
    // One index per update, and the windows of a plane in one axis.
    let plain = program.nodes[node.inputs[1]].meta.shape == *shape && batch + 1 == shape.len();
    let whole = plain && shape.last() == Some(&(oh * ow)) && node.meta.shape.last() == Some(&(h * w));
    let planes = shape[..batch].iter().product();
    (whole && are_disjoint(dims)).then_some(Windows { planes, image: [h, w], size: dims.size, count: [oh, ow] })
}

/// Adds the select in place of a scatter.
fn selected(new: &mut Rewriter<Program>, windows: Windows, like: &ProgramNode) -> usize {
    let Windows { planes, image: [h, w], size: [kh, kw], count: [oh, ow] } = windows;
    let (dtype, by_place) = (like.meta.dtype, [planes, oh, kh, ow, kw]);
    let [chosen, updates] = [(0, DType::I32), (1, dtype)].map(|(operand, dtype)| {
        let by_window = new.push(Op::Reshape, vec![new.at(like.inputs[operand])], &[planes, oh, ow], dtype, like);
        new.push(Op::Broadcast(vec![0, 1, 3]), vec![by_window], &by_place, dtype, like)
    });
    // The number of every place of an image that is in a window.
    let mut places = new.push(Op::Iota(0), vec![], &[h * w], DType::I32, like);
    places = new.push(Op::Reshape, vec![places], &[h, w], DType::I32, like);
    let inside = [oh * kh, ow * kw];
    let slice = Op::Slice { start: vec![0; 2], stop: inside.to_vec(), step: vec![1; 2] };
    places = new.push(slice, vec![places], &inside, DType::I32, like);
    places = new.push(Op::Reshape, vec![places], &by_place[1..], DType::I32, like);
    places = new.push(Op::Broadcast(vec![1, 2, 3, 4]), vec![places], &by_place, DType::I32, like);
    let mask = new.push(Op::Binary(BinaryOp::Eq), vec![chosen, places], &by_place, DType::I32, like);
    let mask = new.push(Op::Convert(dtype), vec![mask], &by_place, dtype, like);
    let zero = new.push(Op::Constant(0f64.to_bits()), vec![], &by_place, dtype, like);
    let mut made = new.push(Op::Select, vec![mask, updates, zero], &by_place, dtype, like);
    if inside != [h, w] {
        made = new.push(Op::Reshape, vec![made], &[planes, inside[0], inside[1]], dtype, like);
        let high = vec![0, h - inside[0], w - inside[1]];
        let pad = Op::Pad { low: vec![0; 3], high, interior: vec![0; 3] };
        made = new.push(pad, vec![made], &[planes, h, w], dtype, like);
    }
    new.push(Op::Reshape, vec![made], &like.meta.shape, dtype, like)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::node::Kind;
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::conformance::{Dice, agree, outputs};
    use bilevel_graph::{Graph, Reference, gradient, nn};

    fn machine() -> Target {
        Target::PLAIN.with(|target| target.can.pool_grad_as_select = true)
    }

    fn derivative(image: [usize; 2], windows: nn::Pool2d) -> Program {
        let g = Graph::new();
        let x = g.input("x", [2, 3, image[0], image[1]], DType::F32);
        let slope = gradient(nn::max_pool2d(x, windows).sin().sum_all(), &[x]).unwrap()[0].unwrap();
        Program::builder(&g).output("slope", slope).build().unwrap()
    }

    #[test]
    fn a_select_is_the_same_gradient() {
        for (image, size) in [([4, 6], [2, 3]), ([5, 7], [2, 2]), ([3, 3], [3, 3]), ([4, 4], [1, 1])] {
            let program = derivative(image, nn::Pool2d::of(size));
            let new = select_pool_gradients(&program).unwrap();
            new.validate().unwrap();
            let x = Dice::new(5).array(&[2, 3, image[0], image[1]], DType::F32).unwrap();
            let inputs = vec![("x".to_string(), x)];
            let [old, new] = [&program, &new].map(|program| outputs(&Reference, program, &inputs, 1).unwrap());
            agree(&new, &old, &[0.0]).unwrap_or_else(|mismatch| panic!("{mismatch}"));
        }
    }

    /// Counts the scatters and paddings in the gradient of a pool.
    fn scatters(image: [usize; 2], windows: nn::Pool2d) -> [usize; 2] {
        let schedule = Schedule::new(&derivative(image, windows), &machine()).unwrap();
        let members = || schedule.groups().iter().flat_map(|group| &group.members).map(|&id| &schedule.nodes[id].kind);
        let scatters = members().filter(|kind| matches!(kind, Kind::ScatterAdd { .. })).count();
        [scatters, members().filter(|kind| matches!(kind, Kind::Pad(_))).count()]
    }

    #[test]
    fn only_windows_that_overlap_or_are_padded_scatter() {
        assert_eq!(scatters([4, 6], nn::Pool2d::of([2, 3])), [0, 0]);
        assert_eq!(scatters([5, 7], nn::Pool2d::of([2, 2])), [0, 1], "what is in no window gets zeros");
        assert_eq!(scatters([5, 7], nn::Pool2d { stride: [2, 2], ..nn::Pool2d::of([3, 3]) }), [1, 0]);
        assert_eq!(scatters([4, 4], nn::Pool2d { padding: [1, 1], ..nn::Pool2d::of([2, 2]) }), [1, 0]);
    }
}
