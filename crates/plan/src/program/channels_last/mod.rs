//! Layout assignment: images with channels last for machines whose convolutions are fastest in that layout.
//!
//! Convolutions are defined on images \[n, c, h, w\]. The fast kernels of a GPU read \[n, h, w, c\], and any other
//! layout is transposed before and after each of them. Here the result of a convolution is transposed to \[n, h, w,
//! c\], which [lowering](crate::Schedule) does for free, and all operations up to the next convolution use that layout.
//! No element changes its bits, but sums over several axes are added in another order.
//!
//! Operations that need rows, such as gathers, read through a transpose back. If the operands and readers of an
//! elementwise operation have different layouts, the majority decides: each of the others costs a copy.

#[cfg(test)]
mod tests;

use crate::program::layout_rewriter::{LayoutRewriter, Permutation, is_identity, permuted, regrouped};
use crate::program::max_pool::{elementwise_pools, has_max_pools};
use bilevel_graph::shape::inverse_permutation;
use bilevel_graph::{ConvDims, ConvPass, ConvRole, DType, Op, Precision, Program, ProgramNode};
use std::collections::HashMap;

/// The permutation of an image's axes that puts channels last.
pub(crate) const NHWC: [usize; 4] = [0, 2, 3, 1];

/// Returns true for convolutions that have kernels for channels last: of 32-bit floats, in `Tf32` or `Bf16`.
pub(crate) fn takes_channels_last(dtype: DType, precision: Precision) -> bool {
    dtype == DType::F32 && precision != Precision::Full
}

/// Returns true if the images of a program will have channels last, of which `lanes` fill a load. Programs with grouped
/// convolutions or overlapping max pools are left alone: these stay in \[n, c, h, w\], and converting around them costs
/// as much as is gained.
pub(crate) fn will_have_channels_last(program: &Program, lanes: usize) -> bool {
    convolutions(program, takes_channels_last, lanes).iter().flatten().any(|one| one.gives_image)
        && !has_groups(program)
        && (!has_max_pools(program) || elementwise_pools(program).is_some())
}

/// Returns the program with images between convolutions in the layout `[n, h, w, c]`; `None` if nothing changes.
pub(crate) fn channels_last(program: &Program, lanes: usize) -> Option<Program> {
    let stays = has_max_pools(program) || has_groups(program);
    if stays { None } else { rewritten(program, takes_channels_last, lanes) }
}

fn has_groups(program: &Program) -> bool {
    program.nodes.iter().any(|node| matches!(&node.op, Op::Conv(dims, ..) if dims.groups > 1))
}

/// By node: the convolution it is, if it has one of these types and precisions and can use channels last.
fn convolutions(program: &Program, takes: impl Fn(DType, Precision) -> bool, lanes: usize) -> Vec<Option<Convolution>> {
    let of = |node: &ProgramNode| match &node.op {
        Op::Conv(dims, role, precision) if takes(node.meta.dtype, *precision) => {
            Convolution::new(&program.nodes, (dims, *role), node, lanes)
        }
        _ => None,
    };
    program.nodes.iter().map(of).collect()
}

/// As [`channels_last`], for convolutions of these types and precisions, and multiples of this many channels.
fn rewritten(program: &Program, takes: impl Fn(DType, Precision) -> bool, lanes: usize) -> Option<Program> {
    let old = &program.nodes[..];
    let convolutions = convolutions(program, takes, lanes);
    if convolutions.iter().flatten().all(|convolution| !convolution.gives_image) {
        return None;
    }
    let wanted = wanted(program, &convolutions);
    let mut new = LayoutRewriter::new(program);
    let mut kernels = HashMap::new();
    for (id, node) in old.iter().enumerate() {
        let written = match &node.op {
            Op::Constant(_) | Op::Iota(_) | Op::Broadcast(_) | Op::Transpose(_) => {
                new.leave(id);
                true
            }
            op if is_elementwise(op) && new.are_free(&node.inputs) => {
                new.leave(id);
                true
            }
            op if is_elementwise(op) || matches!(op, Op::Concat(_)) => {
                let order = chosen(&new, node, wanted[id], lanes);
                new.write(id, &order)
            }
            Op::Slice { .. } | Op::Pad { .. } | Op::Reverse(_) | Op::Reduce(..) | Op::CumSum { .. } | Op::Reshape => {
                let order = new.of(node.inputs[0]).clone();
                new.write(id, &order)
            }
            Op::Conv(..) => match &convolutions[id] {
                Some(convolution) => {
                    convolution.write(&mut new, node, wanted[id], &mut kernels);
                    true
                }
                None => false,
            },
            _ => false,
        };
        if !written {
            new.keep(id);
        }
    }
    new.finish()
}

fn is_elementwise(op: &Op) -> bool {
    matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Convert(_) | Op::StopGradient)
}

/// Returns the layout of an elementwise operation: the majority of its operands and readers.
fn chosen(new: &LayoutRewriter, node: &ProgramNode, wanted: i32, lanes: usize) -> Permutation {
    let rank = node.meta.shape.len();
    let operands: Vec<&Permutation> = node.inputs.iter().filter(|&&i| !new.is_free(i)).map(|&i| new.of(i)).collect();
    let count = |order: &Permutation| operands.iter().filter(|&&other| other == order).count() as i32;
    let as_it_was: Permutation = (0..rank).collect();
    let other = operands.iter().copied().filter(|order| !is_identity(order)).max_by_key(|order| count(order));
    let votes = other.map_or(0, count) - count(&as_it_was) + wanted;
    match other {
        Some(other) if votes > 0 || (votes == 0 && wanted >= 0) => other.clone(),
        None if votes > 0 && rank == NHWC.len() && node.meta.shape[1].is_multiple_of(lanes) => NHWC.to_vec(),
        _ => as_it_was,
    }
}

/// By node: the number of readers that prefer channels last, minus those that need the original layout.
fn wanted(program: &Program, convolutions: &[Option<Convolution>]) -> Vec<i32> {
    let mut wanted = vec![0; program.nodes.len()];
    let outputs = program.outputs.iter().filter_map(|port| port.node);
    outputs.chain(program.carries.iter().map(|carry| carry.next)).for_each(|node| wanted[node] -= 1);
    for (id, node) in program.nodes.iter().enumerate().rev() {
        match (&node.op, &convolutions[id]) {
            (Op::Conv(..), Some(convolution)) => {
                wanted[node.inputs[0]] += 1;
                // The large kernel of a wgrad is another image.
                wanted[node.inputs[1]] += i32::from(!convolution.gives_image);
            }
            (Op::Transpose(_), _) => wanted[node.inputs[0]] += wanted[id],
            (Op::Reshape, _) => {
                let from = &program.nodes[node.inputs[0]].meta.shape;
                let keeps = from.len() == NHWC.len() && regrouped(from, &node.meta.shape, &NHWC.to_vec()).is_some();
                wanted[node.inputs[0]] += if keeps { wanted[id] } else { -1 };
            }
            (
                Op::Conv(..)
                | Op::Dot(..)
                | Op::Gather { .. }
                | Op::ScatterAdd { .. }
                | Op::WindowArgMax(_)
                | Op::ArgMax(_)
                | Op::Host(_)
                | Op::Collective(_)
                | Op::CheckIndex(_)
                | Op::Block(_)
                | Op::Custom(_),
                _,
            ) => node.inputs.iter().for_each(|&input| wanted[input] -= 1),
            // Layout-agnostic operations, and operations that read no image.
            (
                Op::Input(_)
                | Op::Constant(_)
                | Op::Iota(_)
                | Op::Random(..)
                | Op::Unary(_)
                | Op::Binary(_)
                | Op::Select
                | Op::Convert(_)
                | Op::StopGradient
                | Op::Broadcast(_)
                | Op::Slice { .. }
                | Op::Pad { .. }
                | Op::Concat(_)
                | Op::Reverse(_)
                | Op::Reduce(..)
                | Op::CumSum { .. },
                _,
            ) => {}
        }
    }
    wanted
}

/// A convolution that can use channels last.
struct Convolution {
    /// Whether its result is an image; otherwise it is a wgrad, whose result keeps its layout.
    gives_image: bool,
    /// Whether the channels of its image, and of its result, are a multiple of the vector width.
    inputs: bool,
    outputs: bool,
    /// The transposes and reversals through which it reads its kernel, outermost first.
    moves: Vec<usize>,
    /// The kernel it reads through them.
    kernel: usize,
    /// The permutation of that kernel for a channels-last convolution.
    order: Permutation,
}

impl Convolution {
    fn new(old: &[ProgramNode], (dims, role): (&ConvDims, ConvRole), node: &ProgramNode, lanes: usize) -> Option<Self> {
        let (moves, kernel) = moves(old, node.inputs[1]);
        let mut axes: Permutation = (0..4).collect();
        for &id in &moves {
            if let Op::Transpose(perm) = &old[id].op {
                axes = permuted(perm, &axes);
            }
        }
        let read = &old[node.inputs[1]].meta.shape;
        // Dgrad reads the kernel with inputs and outputs exchanged.
        let is_dgrad = role.pass() == ConvPass::Dgrad;
        let order = permuted(&axes, if is_dgrad { &[1, 2, 3, 0] } else { &NHWC });
        let [inputs, outputs] = [read[1], read[0]].map(|channels| channels.is_multiple_of(lanes));
        let gives_image = role.pass() != ConvPass::Wgrad;
        let dense = if is_dgrad { dims.stride } else { dims.image_dilation };
        let taken = dims.groups == 1 && dense == [1, 1];
        taken.then_some(Convolution { gives_image, inputs, outputs, moves, kernel, order })
    }

    /// Emits the convolution with its result in the layout that readers prefer.
    fn write(
        &self,
        new: &mut LayoutRewriter,
        node: &ProgramNode,
        wanted: i32,
        kernels: &mut HashMap<(usize, Permutation), usize>,
    ) {
        let image = new.read_as_it_was(node.inputs[0]);
        let kernel = if self.gives_image && self.inputs && self.outputs {
            self.kernel_last(new, node, kernels)
        } else {
            new.read_as_it_was(node.inputs[1])
        };
        let made = new.push(node.op.clone(), vec![image, kernel], node.meta.shape.clone(), node);
        if self.gives_image && self.outputs && wanted >= 0 {
            let held = new.push_transpose(made, NHWC.to_vec(), node);
            new.hold(held, NHWC.to_vec());
        } else {
            new.hold(made, (0..4).collect());
        }
    }

    /// Returns the kernel through a copy with channels last, shared by all convolutions and their dgrads.
    fn kernel_last(
        &self,
        new: &mut LayoutRewriter,
        node: &ProgramNode,
        kernels: &mut HashMap<(usize, Permutation), usize>,
    ) -> usize {
        let as_read = new.old(node.inputs[1]).meta.shape.as_slice();
        // A kernel that already has the layout needs no copy.
        if as_read[2] * as_read[3] == 1 || new.is_free(self.kernel) || is_identity(&self.order) {
            return new.read_as_it_was(node.inputs[1]);
        }
        let from = new.old(self.kernel);
        let mut value = match kernels.get(&(self.kernel, self.order.clone())) {
            Some(&known) => known,
            None => {
                let read = new.read(self.kernel, &self.order);
                // A conversion to the same type is a copy.
                let copy =
                    new.push(Op::Convert(from.meta.dtype), vec![read], permuted(&from.meta.shape, &self.order), from);
                let back = new.push_transpose(copy, inverse_permutation(&self.order), from);
                kernels.insert((self.kernel, self.order.clone()), back);
                back
            }
        };
        for &id in self.moves.iter().rev() {
            let moved = new.old(id);
            value = new.push(moved.op.clone(), vec![value], moved.meta.shape.clone(), moved);
        }
        value
    }
}

/// Returns the transposes and reversals through which a value is read, outermost first, and the value itself.
fn moves(old: &[ProgramNode], mut id: usize) -> (Vec<usize>, usize) {
    let mut moves = vec![];
    while let Op::Transpose(_) | Op::Reverse(_) = old[id].op {
        moves.push(id);
        id = old[id].inputs[0];
    }
    (moves, id)
}
