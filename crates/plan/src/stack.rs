//! Two computations on the same weights as one: where a program does the same to two sets of data ([`crate::twins`]), it is done once, to
//! both stacked along an axis in front.
//!
//!   x₀·W, x₁·W   become   [x₀; x₁]·W
//!
//! A machine with many processors is busy with products that are twice as large where it was half idle before, and has half as many loops to
//! start. Each element is computed by the same formula; only sums may be added up in another order.

use crate::twins::{Twins, in_pairs, twins};
use bilevel_graph::{DotDims, Meta, Op, Program, ProgramNode};

/// The program with twins stacked; none where it has none.
pub(crate) fn stacked(program: &Program) -> Option<Program> {
    let twins = twins(program)?;
    let count = program.nodes.len();
    let mut stacking = Stacking {
        program,
        twins: &twins,
        nodes: Vec::with_capacity(count),
        plain: vec![None; count],
        both: vec![None; count],
    };
    for id in stacking.order()? {
        stacking.add(id);
    }
    let (mut inputs, mut outputs, mut carries) =
        (program.inputs.clone(), program.outputs.clone(), program.carries.clone());
    for port in inputs.iter_mut().chain(&mut outputs) {
        port.node = Some(stacking.alone(port.node?));
    }
    for carry in &mut carries {
        carry.next = stacking.alone(carry.next);
    }
    Some(Program { nodes: stacking.nodes, inputs, outputs, carries, step: program.step })
}

/// True where an operation can be done to both lanes at once, given which of its operands are stacked.
pub(crate) fn can_stack(op: &Op, stacked: &[bool]) -> bool {
    match op {
        Op::Input(_) | Op::Constant(_) | Op::Iota(_) | Op::Random(..) => false,
        Op::Conv(..) => stacked == [true, false],
        _ => true,
    }
}

struct Stacking<'a> {
    program: &'a Program,
    twins: &'a Twins,
    nodes: Vec<ProgramNode>,
    /// By node of the program: its value by itself.
    plain: Vec<Option<usize>>,
    /// By node of lane 0: both lanes.
    both: Vec<Option<usize>>,
}

impl Stacking<'_> {
    /// The nodes in an order in which each comes after what it, and its twin, needs; of two twins only that of lane 0. None where the
    /// order of things differs from one lane to the other, so that there is no such order.
    fn order(&self) -> Option<Vec<usize>> {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Open,
            Done,
        }
        let mut state = vec![State::New; self.program.nodes.len()];
        let mut order = vec![];
        for id in 0..state.len() {
            let mut stack = vec![self.first(id)];
            while let Some(&id) = stack.last() {
                let missing = self.needs(id).filter(|&need| state[need] != State::Done);
                let missing: Vec<usize> = if state[id] == State::Done { vec![] } else { missing.collect() };
                if missing.is_empty() {
                    if std::mem::replace(&mut state[id], State::Done) != State::Done {
                        order.push(id);
                    }
                    stack.pop();
                } else if missing.iter().any(|&need| state[need] == State::Open) {
                    return None;
                } else {
                    state[id] = State::Open;
                    stack.push(missing[0]);
                }
            }
        }
        Some(order)
    }

    /// Of two twins the one in lane 0.
    fn first(&self, id: usize) -> usize {
        match self.twins.of[id] {
            Some((twin, 1)) if !self.twins.meets[id] => twin,
            _ => id,
        }
    }

    fn needs(&self, id: usize) -> impl Iterator<Item = usize> {
        let second = self.twins.of[id].filter(|_| !self.twins.meets[id]).map(|(twin, _)| twin);
        let inputs = self.program.nodes[id].inputs.iter();
        inputs.chain(second.into_iter().flat_map(|twin| &self.program.nodes[twin].inputs)).map(|&need| self.first(need))
    }

    /// Adds a node: by itself, or with its twin.
    fn add(&mut self, id: usize) {
        let node = &self.program.nodes[id];
        match self.twins.of[id] {
            Some((twin, _)) if !self.twins.meets[id] => self.both[id] = Some(self.add_both(id, twin)),
            _ => {
                let inputs = node.inputs.iter().map(|&operand| self.alone(operand)).collect();
                self.plain[id] = Some(self.push(node.op.clone(), inputs, node.meta.shape.clone(), id));
            }
        }
    }

    /// A value by itself: where it is stacked, its lane.
    fn alone(&mut self, id: usize) -> usize {
        if let Some(known) = self.plain[id] {
            return known;
        }
        let lane = self.twins.of[id].map_or(0, |(_, lane)| lane);
        let both = self.both[self.first(id)].unwrap_or_default();
        let shape = &self.program.nodes[id].meta.shape;
        let (start, stop) = (in_front(lane, &vec![0; shape.len()]), in_front(lane + 1, shape));
        let step = vec![1; shape.len() + 1];
        let part = self.push(Op::Slice { start, stop, step }, vec![both], in_front(1, shape), id);
        let part = self.push(Op::Reshape, vec![part], shape.clone(), id);
        self.plain[id] = Some(part);
        part
    }

    /// A value of lane 0 with its twin.
    fn together(&mut self, id: usize, twin: usize) -> usize {
        if let Some(known) = self.both[id] {
            return known;
        }
        let shape = &self.program.nodes[id].meta.shape;
        let parts = [id, twin].map(|value| {
            let alone = self.alone(value);
            self.push(Op::Reshape, vec![alone], in_front(1, shape), value)
        });
        let both = self.push(Op::Concat(0), parts.into(), in_front(2, shape), id);
        self.both[id] = Some(both);
        both
    }

    /// A value that both lanes have, once for each.
    fn spread(&mut self, id: usize) -> usize {
        let (alone, shape) = (self.alone(id), &self.program.nodes[id].meta.shape);
        let axes = (1..=shape.len()).collect();
        self.push(Op::Broadcast(axes), vec![alone], in_front(2, shape), id)
    }

    /// The operation of a node of lane 0 and of its twin.
    fn add_both(&mut self, id: usize, twin: usize) -> usize {
        let node = &self.program.nodes[id];
        let twin_of = |id: usize| self.twins.of[id].map(|(twin, _)| twin);
        let pairs = in_pairs([node, &self.program.nodes[twin]], twin_of).unwrap_or_default();
        let stacked: Vec<bool> = pairs.iter().map(|[a, b]| a != b).collect();
        let shape = in_front(2, &node.meta.shape);
        let op = match (&node.op, &stacked[..]) {
            // Rows of both with the same weights are rows of one product.
            (Op::Dot(dims, precision), [true, false]) if dims.lhs_batch.is_empty() => {
                let (both, weights) = (self.together(pairs[0][0], pairs[0][1]), self.alone(pairs[1][0]));
                let dims = DotDims { lhs_contract: later(&dims.lhs_contract), ..dims.clone() };
                return self.push(Op::Dot(dims, *precision), vec![both, weights], shape, id);
            }
            (Op::Conv(..), _) => return self.convolve_both(id, pairs[0], pairs[1][0]),
            // The axis in front is one of the indices.
            (Op::Gather { batch: 0 }, [false, true]) => {
                let (from, both) = (self.alone(pairs[0][0]), self.together(pairs[1][0], pairs[1][1]));
                return self.push(node.op.clone(), vec![from, both], shape, id);
            }
            (op, _) => with_axis_in_front(op),
        };
        let inputs = pairs.iter().map(|&[a, b]| if a == b { self.spread(a) } else { self.together(a, b) }).collect();
        self.push(op, inputs, shape, id)
    }

    /// A convolution of the images of both with the same kernel, as one of all of them.
    fn convolve_both(&mut self, id: usize, [image, twin]: [usize; 2], kernel: usize) -> usize {
        let node = &self.program.nodes[id];
        let merged = |shape: &[usize]| [&[2 * shape[0]], &shape[1..]].concat();
        let (both, kernel) = (self.together(image, twin), self.alone(kernel));
        let images = self.push(Op::Reshape, vec![both], merged(&self.program.nodes[image].meta.shape), image);
        let made = self.push(node.op.clone(), vec![images, kernel], merged(&node.meta.shape), id);
        self.push(Op::Reshape, vec![made], in_front(2, &node.meta.shape), id)
    }

    fn push(&mut self, op: Op, inputs: Vec<usize>, shape: Vec<usize>, like: usize) -> usize {
        let node = &self.program.nodes[like];
        let meta = Meta { dtype: node.meta.dtype, shape };
        self.nodes.push(ProgramNode { op, inputs, meta, location: node.location });
        self.nodes.len() - 1
    }
}

fn in_front(length: usize, shape: &[usize]) -> Vec<usize> {
    [&[length], shape].concat()
}

/// Axes as they are counted with one more in front.
fn later(axes: &[usize]) -> Vec<usize> {
    axes.iter().map(|axis| axis + 1).collect()
}

/// The operation where all operands have one more axis in front, which its result has too.
fn with_axis_in_front(op: &Op) -> Op {
    let kept = |axes: &[usize]| [vec![0], later(axes)].concat();
    let none = |numbers: &[usize]| in_front(0, numbers);
    match op {
        Op::Transpose(perm) => Op::Transpose(kept(perm)),
        Op::Broadcast(axes) => Op::Broadcast(kept(axes)),
        Op::Slice { start, stop, step } => {
            Op::Slice { start: none(start), stop: in_front(2, stop), step: in_front(1, step) }
        }
        Op::Pad { low, high, interior } => Op::Pad { low: none(low), high: none(high), interior: none(interior) },
        Op::Concat(axis) => Op::Concat(axis + 1),
        Op::Reverse(axes) => Op::Reverse(later(axes)),
        Op::Reduce(how, axes) => Op::Reduce(*how, later(axes)),
        Op::ArgMax(axis) => Op::ArgMax(axis + 1),
        Op::Dot(dims, precision) => {
            let dims = DotDims {
                lhs_contract: later(&dims.lhs_contract),
                rhs_contract: later(&dims.rhs_contract),
                lhs_batch: kept(&dims.lhs_batch),
                rhs_batch: kept(&dims.rhs_batch),
            };
            Op::Dot(dims, *precision)
        }
        Op::Gather { batch } => Op::Gather { batch: batch + 1 },
        Op::ScatterAdd { batch, size } => Op::ScatterAdd { batch: batch + 1, size: *size },
        Op::CumSum { axis, reverse } => Op::CumSum { axis: axis + 1, reverse: *reverse },
        // One element of each operand for one of the result, or only the last axes matter.
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Convert(_)
        | Op::CheckIndex(_)
        | Op::StopGradient
        | Op::Reshape
        | Op::WindowArgMax(_) => op.clone(),
        // Never stacked, or not by an axis in front.
        Op::Input(_) | Op::Constant(_) | Op::Iota(_) | Op::Random(..) | Op::Conv(..) => op.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::conformance::Dice;
    use bilevel_graph::{Array, ConvDims, DType, Executor, Graph, Reference, Tensor, gradient, nn};

    /// How many operations of a kind there are.
    fn count(program: &Program, is: impl Fn(&Op) -> bool) -> usize {
        program.nodes.iter().filter(|node| is(&node.op)).count()
    }

    fn products(program: &Program) -> usize {
        count(program, |op| matches!(op, Op::Dot(..)))
    }

    /// What a run of three steps ends with: carried inputs and outputs.
    fn ended(program: &Program, values: &[Array]) -> Vec<Array> {
        program.validate().unwrap();
        let mut run = Reference.compile(program).unwrap();
        values.iter().enumerate().for_each(|(input, value)| run.set(input, value).unwrap());
        run.run(0..3).unwrap();
        let carried = program.carries.iter().map(|carry| run.input(carry.input).unwrap()).collect::<Vec<_>>();
        carried.into_iter().chain((0..program.outputs.len()).map(|output| run.output(output).unwrap())).collect()
    }

    /// The stacked program, which must come to the same.
    fn checked(program: &Program, seed: u64) -> Program {
        let made = stacked(program).expect("twins");
        let mut dice = Dice::new(seed);
        let value = |meta: &Meta| match meta.dtype {
            DType::I32 => Array::zeros(&meta.shape, DType::I32),
            dtype => dice.array(&meta.shape, dtype).unwrap(),
        };
        let values: Vec<Array> = program.inputs.iter().map(|port| &port.meta).map(value).collect();
        for (found, right) in ended(&made, &values).iter().zip(ended(program, &values)) {
            let (found, right) = (found.to_f64(), right.to_f64());
            assert!(right.iter().any(|x| *x != 0.0));
            for (a, b) in found.iter().zip(&right) {
                assert!((a - b).abs() <= 1e-12 * (1.0 + b.abs()), "{a} instead of {b}");
            }
        }
        made
    }

    /// One step of training by one loss, while the gradient of the other, at the same weights, is added up.
    fn two_losses(
        g: &Graph,
        weights: &[Tensor],
        [training, validation]: [Tensor; 2],
        scale: impl Into<Option<f64>>,
    ) -> Program {
        let training = scale.into().map_or(training, |scale| training * scale);
        let down = gradient(training, weights).unwrap();
        let other = gradient(validation, weights).unwrap();
        let mut builder = Program::builder(g).output("training", training).output("validation", validation);
        for (number, &weight) in weights.iter().enumerate() {
            let sum = g.input(format!("sum {number}"), weight.shape(), weight.dtype());
            builder = builder.carry(weight, weight - down[number].unwrap() * 0.01);
            builder = builder.carry(sum, sum + other[number].unwrap());
        }
        builder.build().unwrap()
    }

    fn data(g: &Graph, name: &str, shape: &[usize]) -> Tensor {
        g.input(name, shape, DType::F64)
    }

    #[test]
    fn a_network_at_two_minibatches_is_one_at_both_whatever_its_losses_are_scaled_by() {
        let g = Graph::new();
        let [first, second] = [data(&g, "first", &[6, 9]), data(&g, "second", &[9, 4])];
        let [gain, bias] = ["gain", "bias"].map(|name| data(&g, name, &[9]));
        let loss = |set: &str| {
            let images = data(&g, &format!("images {set}"), &[20, 6]);
            let labels = g.input(format!("labels {set}"), [20], DType::I32);
            let at = g.input(format!("at {set}"), [5], DType::I32);
            let hidden = images.take(at).matmul(first).tanh();
            nn::cross_entropy(nn::layer_norm(hidden, gain, bias, 1e-5).matmul(second), labels.take(at))
        };
        let program = two_losses(&g, &[first, second, gain, bias], [loss("t"), loss("v")], 3.0);
        let made = checked(&program, 1);
        assert_eq!(products(&program), 10);
        assert_eq!(products(&made), 5, "{made}");
    }

    #[test]
    fn attention_is_stacked_and_its_own_products_with_the_same_values_are_no_twins() {
        let g = Graph::new();
        let [q, k, v] = ["q", "k", "v"].map(|name| data(&g, name, &[6, 6]));
        let loss = |set: &str| {
            let x = data(&g, set, &[2, 4, 6]);
            let scores = nn::softmax(x.matmul(q).matmul(x.matmul(k).transpose([0, 2, 1])), 2);
            scores.matmul(x.matmul(v)).sin().sum_all()
        };
        let program = two_losses(&g, &[q, k, v], [loss("t"), loss("v2")], None);
        let made = checked(&program, 2);
        assert_eq!(2 * products(&made), products(&program), "{made}");
    }

    #[test]
    fn images_of_both_are_convolved_at_once_and_pooled() {
        let g = Graph::new();
        let (kernel, head) = (data(&g, "kernel", &[3, 2, 3, 3]), data(&g, "head", &[12, 2]));
        let loss = |set: &str| {
            let images = data(&g, set, &[4, 2, 5, 5]);
            let dims = ConvDims {
                stride: [1, 1],
                padding: [(1, 1); 2],
                image_dilation: [1, 1],
                kernel_dilation: [1, 1],
                groups: 1,
            };
            let seen = nn::max_pool2d(nn::relu(images.conv(kernel, dims)), nn::Pool2d::of([2, 2]));
            seen.reshape([4, 12]).matmul(head).square().mean_all()
        };
        let program = two_losses(&g, &[kernel, head], [loss("t"), loss("v")], 0.5);
        let made = checked(&program, 3);
        let convolutions = |program: &Program| count(program, |op| matches!(op, Op::Conv(..)));
        // Each lane has one of its own for the slope of the kernel.
        assert_eq!((convolutions(&program), convolutions(&made)), (4, 3), "{made}");
        assert_eq!(2 * products(&made), products(&program));
    }

    #[test]
    fn what_waits_for_the_other_is_not_done_at_the_same_time() {
        let g = Graph::new();
        let weights = data(&g, "weights", &[5, 3]);
        let loss = |set: &str, weights: Tensor| data(&g, set, &[4, 5]).matmul(weights).sin().sum_all();
        let down = gradient(loss("t", weights), &[weights]).unwrap()[0].unwrap();
        let next = weights - down;
        let after = gradient(loss("v", next), &[next]).unwrap()[0].unwrap();
        let sum = data(&g, "sum", &[5, 3]);
        let program = Program::builder(&g).carry(weights, next).carry(sum, sum + after).build().unwrap();
        assert!(stacked(&program).is_none());
    }

    #[test]
    fn what_every_step_computes_is_not_stacked_with_what_the_last_one_computes_alone() {
        let g = Graph::new();
        let weights = data(&g, "weights", &[5, 3]);
        let loss = |set: &str| data(&g, set, &[4, 5]).matmul(weights).sin().sum_all();
        let down = gradient(loss("t"), &[weights]).unwrap()[0].unwrap();
        let builder = Program::builder(&g).carry(weights, weights - down).output("validation", loss("v"));
        assert!(stacked(&builder.build().unwrap()).is_none());
    }

    #[test]
    fn lanes_that_do_the_same_things_in_another_order_are_left_as_they_are() {
        let g = Graph::new();
        let [a, b, c] = ["a", "b", "c"].map(|name| data(&g, name, &[3, 3]));
        let [x, y] = ["x", "y"].map(|name| data(&g, name, &[2, 3]).matmul(c));
        // One multiplies by a first, the other by b first: neither both products by a nor both by b can come first.
        let (first, second) = (x.sin().matmul(a).exp().matmul(b), y.cos().matmul(b).tanh().matmul(a));
        let mut builder = Program::builder(&g).output("first", first).output("second", second);
        for weights in [a, b, c] {
            builder = builder.carry(weights, weights * 0.5);
        }
        let program = builder.build().unwrap();
        assert!(twins(&program).is_some());
        assert!(stacked(&program).is_none());
    }
}
