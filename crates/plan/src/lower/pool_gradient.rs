//! The gradient of a max pool with disjoint windows as a select: every element belongs to at most one window.
//!
//!   scattered\[k·o + i\] = updates\[o\] if chosen\[o\] = k·o + i, else 0    (o a window of size k, i a position in it)
//!
//! This is elementwise, and part of the loop that reads it.

use crate::ir::node::{Elementwise, Kind, Operand, Padding};
use crate::ir::view::View;
use crate::lower::{Line, Lowering};
use crate::program::max_pool::are_disjoint;
use bilevel_graph::{BinaryOp, DType, Op, Program};

/// The dimensions of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    planes: usize,
    image: [usize; 2],
    size: [usize; 2],
    count: [usize; 2],
}

/// Returns the windows of the pool that a scatter is the gradient of, if they are disjoint and every plane of the
/// result is one image.
pub(crate) fn disjoint_pool_windows(program: &Program, scatter: usize) -> Option<Windows> {
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

impl Lowering {
    /// Returns the result of scattering the updates to the chosen positions; the operands are the indices and the
    /// updates.
    pub fn pool_gradient(
        &mut self,
        windows: Windows,
        operands: &[Operand],
        shape: &[usize],
        dtype: DType,
        like: Line,
    ) -> Operand {
        let Windows { planes, image: [h, w], size: [kh, kw], count: [oh, ow] } = windows;
        let (by_window, by_place) = ([planes, oh, ow], [planes, oh, kh, ow, kw]);
        let mut of_windows = |operand: &Operand, dtype: DType| {
            let Operand::At { node, view } = operand else { return operand.clone() };
            let (node, view) = match view.reshape(&by_window) {
                Some(view) => (*node, view),
                None => {
                    let copy = Kind::Elementwise(Elementwise::Copy);
                    let dense = self.push(copy, vec![operand.clone()], &by_window, dtype, like);
                    (dense, View::contiguous(&by_window))
                }
            };
            Operand::At { node, view: view.broadcast(&[0, 1, 3], &by_place) }
        };
        let (chosen, updates) = (of_windows(&operands[0], DType::I32), of_windows(&operands[1], dtype));
        let table = self.push(Kind::Table((0..h * w).map(|i| i as f64).collect()), vec![], &[h * w], DType::I32, like);
        let strides = [0, kh * w, w, kw, 1].map(|stride| stride as isize).to_vec();
        let places = Operand::At { node: table, view: View { shape: by_place.to_vec(), strides, offset: 0 } };
        let mut elementwise = |kind: Elementwise, operands: Vec<Operand>, dtype: DType| {
            self.push(Kind::Elementwise(kind), operands, &by_place, dtype, like)
        };
        let whole = |node: usize, shape: &[usize]| Operand::At { node, view: View::contiguous(shape) };
        let mask = elementwise(Elementwise::Binary(BinaryOp::Eq), vec![chosen, places], DType::I32);
        let mask = elementwise(Elementwise::Convert(dtype), vec![whole(mask, &by_place)], dtype);
        let values = vec![whole(mask, &by_place), updates, Operand::Constant(0.0)];
        let mut made = elementwise(Elementwise::Select, values, dtype);
        if [oh * kh, ow * kw] != [h, w] {
            let part = whole(made, &[planes, oh * kh, ow * kw]);
            let frame = Padding { low: vec![0; 3], interior: vec![0; 3] };
            made = self.push(Kind::Pad(frame), vec![part], &[planes, h, w], dtype, like);
        }
        whole(made, shape)
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::node::Kind;
    use crate::schedule::Schedule;
    use crate::target::{LIMITS, Limits, Target};
    use bilevel_graph::{DType, Graph, Program, gradient, nn};

    struct Machine;
    impl Target for Machine {
        fn limits(&self) -> Limits {
            LIMITS
        }

        fn pool_grad_as_select(&self) -> bool {
            true
        }
    }

    /// Counts the scatters and paddings in the gradient of a pool.
    fn scatters(image: [usize; 2], windows: nn::Pool2d) -> [usize; 2] {
        let g = Graph::new();
        let x = g.input("x", [2, 3, image[0], image[1]], DType::F32);
        let slope = gradient(nn::max_pool2d(x, windows).sin().sum_all(), &[x]).unwrap()[0].unwrap();
        let program = Program::builder(&g).output("slope", slope).build().unwrap();
        let schedule = Schedule::new(&program, &Machine).unwrap();
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
