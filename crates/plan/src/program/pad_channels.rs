//! Channel padding for convolutions that read several channels per load.
//!
//!   y = x * w = pad(x) * pad(w),   ∂w = slice(pad(x) * ∂y)
//!
//! RGB inputs have C = 3, but vector loads want C % 4 == 0. With a fourth channel of zeros, their convolutions use the
//! channels-last layout like all others. This is a separate rewrite, because
//! layout assignment only permutes axes: its rewriter keeps every shape up to a permutation.

use crate::ir::rewrite::Rewriter;
use crate::program::channels_last::NHWC;
use bilevel_graph::shape::inverse_permutation;
use bilevel_graph::{ConvDims, ConvPass, ConvRole, DType, Op, Precision, Program, ProgramNode};
use std::collections::HashMap;

/// Returns the program with channels padded to a multiple of `lanes`, if that less than doubles them, for convolutions
/// of these types and precisions. `None` if nothing changes.
pub(crate) fn padded(program: &Program, takes: impl Fn(DType, Precision) -> bool, lanes: usize) -> Option<Program> {
    let mut new = Padded { new: Rewriter::new(program), known: HashMap::new() };
    let mut changed = false;
    for node in &program.nodes {
        let made = match &node.op {
            Op::Conv(dims, role, precision) if takes(node.meta.dtype, *precision) => {
                new.convolution(node, (dims, *role), [0, 1].map(|i| new.new.at(node.inputs[i])), lanes)
            }
            _ => None,
        };
        changed |= made.is_some();
        match made {
            Some(made) => new.new.hold(made),
            None => drop(new.new.keep()),
        }
    }
    new.new.finish().filter(|_| changed)
}

struct Padded<'a> {
    new: Rewriter<'a, Program>,
    /// By node and axis: the padded value.
    known: HashMap<(usize, usize), usize>,
}

impl Padded<'_> {
    fn push(&mut self, op: Op, inputs: Vec<usize>, shape: Vec<usize>, like: &ProgramNode) -> usize {
        self.new.push(op, inputs, &shape, like.meta.dtype, like)
    }

    /// Pads the channels of a convolution if necessary.
    fn convolution(
        &mut self,
        node: &ProgramNode,
        (dims, role): (&ConvDims, ConvRole),
        [image, kernel]: [usize; 2],
        lanes: usize,
    ) -> Option<usize> {
        let shape = |id: usize| self.new.nodes[id].meta.shape.clone();
        let (of_image, of_kernel, mut of_result) = (shape(image), shape(kernel), node.meta.shape.clone());
        // For wgrad, the first axis is the channel axis.
        let is_kernel = role.pass() == ConvPass::Wgrad;
        let channels = if is_kernel { of_image[0] } else { of_image[1] };
        let all = channels.next_multiple_of(lanes);
        let is_few = all > channels && all - channels < channels && of_kernel[0].is_multiple_of(lanes);
        if dims.groups != 1 || dims.image_dilation != [1, 1] || !is_few {
            return None;
        }
        if !is_kernel {
            let image = self.with_zeros(image, 1, all, node);
            let kernel = self.with_zeros(kernel, 1, all, node);
            return Some(self.push(node.op.clone(), vec![image, kernel], of_result, node));
        }
        let image = self.with_zeros(image, 0, all, node);
        let wanted = of_result.clone();
        of_result[0] = all;
        let made = self.push(node.op.clone(), vec![image, kernel], of_result, node);
        let slice = Op::Slice { start: vec![0; 4], stop: wanted.clone(), step: vec![1; 4] };
        Some(self.push(slice, vec![made], wanted, node))
    }

    /// Pads an axis of a value with zeros to this length, once for all readers, with the channels of an image last.
    fn with_zeros(&mut self, id: usize, axis: usize, length: usize, like: &ProgramNode) -> usize {
        if let Some(&known) = self.known.get(&(id, axis)) {
            return known;
        }
        let (mut shape, op) = (self.new.nodes[id].meta.shape.clone(), self.new.nodes[id].op.clone());
        let made = match op {
            Op::Transpose(order) => {
                let below = self.with_zeros(self.new.nodes[id].inputs[0], order[axis], length, like);
                shape[axis] = length;
                self.push(Op::Transpose(order), vec![below], shape, like)
            }
            _ => {
                let turned = |shape: &[usize]| NHWC.map(|axis| shape[axis]).to_vec();
                let at = NHWC.iter().position(|&from| from == axis).unwrap_or(axis);
                let last = self.push(Op::Transpose(NHWC.to_vec()), vec![id], turned(&shape), like);
                let mut high = vec![0; 4];
                high[at] = length - shape[axis];
                shape[axis] = length;
                let pad = Op::Pad { low: vec![0; 4], high, interior: vec![0; 4] };
                let padded = self.push(pad, vec![last], turned(&shape), like);
                self.push(Op::Transpose(inverse_permutation(&NHWC)), vec![padded], shape, like)
            }
        };
        self.known.insert((id, axis), made);
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Pipeline;
    use crate::target::Target;
    use bilevel_graph::conformance::{Dice, Inputs, agree, outputs};
    use bilevel_graph::{Graph, Reference, Tensor, gradient_or_zeros, hessian_vector, nn};

    /// Two layers on images with this many channels, with second-order derivatives of a loss.
    fn network(channels: usize, dtype: DType) -> (Program, Inputs) {
        let g = Graph::new();
        let x = g.input("x", [2, channels, 8, 8], dtype);
        let [v, w] = [("v", [4, channels, 3, 3]), ("w", [8, 4, 3, 3])].map(|(name, shape)| g.input(name, shape, dtype));
        let convolved =
            |x: Tensor, w: Tensor| nn::conv2d(x, w, None, nn::Conv2d { padding: [1, 1], ..Default::default() });
        let loss = convolved(convolved(x, v).tanh(), w).square().mean([0, 1, 2, 3]);
        let along = [v.cos(), w.sin()];
        let mut results = gradient_or_zeros(loss, &[v, w]).unwrap();
        results.extend(hessian_vector(loss, &[v, w], &along).unwrap().into_iter().flatten());
        let builder = Program::builder(&g).output("loss", loss).carry(v, v - results[0] * 0.1).outputs("", results);
        let mut dice = Dice::new(7);
        let named = [(x, "x"), (v, "v"), (w, "w")];
        let values = named.map(|(t, name)| (name.to_string(), dice.array(&t.shape(), dtype).unwrap())).to_vec();
        (builder.build().unwrap(), values)
    }

    #[test]
    fn a_fourth_channel_of_zeros_changes_no_bit() {
        for channels in [2, 3, 5, 6, 7] {
            let (program, inputs) = network(channels, DType::F64);
            let expected = outputs(&Reference, &program, &inputs, 2).unwrap();
            let Some(new) = padded(&program, |_, _| true, 4) else {
                assert!([2, 5].contains(&channels), "{channels} channels: as many zeros as channels, or more");
                continue;
            };
            new.validate().unwrap();
            let found = outputs(&Reference, &new, &inputs, 2).unwrap();
            agree(&found, &expected, &vec![0.0; expected.len()]).unwrap_or_else(|mismatch| panic!("{mismatch}"));
        }
    }

    #[test]
    fn an_image_gets_its_zeros_once_and_whole_channels_get_none() {
        let (program, _) = network(3, DType::F32);
        let new = padded(&program, |_, _| true, 4).unwrap();
        let pads = |program: &Program| program.nodes.iter().filter(|node| matches!(node.op, Op::Pad { .. })).count();
        // The image, the kernel, and the direction of a Hessian-vector product.
        assert_eq!(pads(&new) - pads(&program), 3);
        assert!(padded(&network(4, DType::F32).0, |_, _| true, 4).is_none());
        assert!(padded(&program, |_, precision| precision != Precision::Full, 4).is_none(), "exact convolutions");
        // With channels last, no convolution reads an image of three channels.
        let machine = Target::PLAIN.with(|target| target.can.channels_last = true);
        let new = Pipeline::new().rewrite(&program.with_precision(Precision::Tf32), &machine).unwrap();
        for node in new.nodes.iter().filter(|node| matches!(node.op, Op::Conv(..))) {
            let shapes: Vec<&[usize]> = node.inputs.iter().map(|&input| &new.nodes[input].meta.shape[..]).collect();
            assert!(shapes.iter().all(|shape| !shape[..2].contains(&3)), "{shapes:?}");
        }
    }
}
