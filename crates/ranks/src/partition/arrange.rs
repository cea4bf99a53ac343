//! The order of a rank's collectives, the same on every rank, and as few of them as there need be.
//!
//! The level of an operation is the number of collectives on the longest way to it. Collectives of one level do not depend on each
//! other: small sums among them become one. Each collective has the one before as its second operand, so no schedule changes their order.

use bilevel_graph::shape::element_count;
use bilevel_graph::{CollectiveKind, DType, Meta, Op, Program, ProgramNode};

/// Sums of up to this many elements are put together: for them a message costs more than its bytes, and a copy costs nothing.
const MAX_BUCKETED_ELEMENTS: usize = 1 << 14;

/// Removes dead operations, merges small sums of a level, and orders the collectives.
pub(crate) fn arrange(program: Program) -> Program {
    let live = live(&program);
    let levels = levels(&program);
    let deepest = levels.iter().copied().max().unwrap_or(0);
    let mut new = Arranged { nodes: vec![], places: vec![0; program.nodes.len()], last: None };
    for level in 0..=deepest {
        let here = |number: &usize| live[*number] && levels[*number] == level;
        let (collectives, others): (Vec<usize>, Vec<usize>) =
            (0..program.nodes.len()).filter(here).partition(|&number| is_collective(&program.nodes[number]));
        for number in others {
            new.copy(&program, number);
        }
        let (sums, rest): (Vec<usize>, Vec<usize>) =
            collectives.into_iter().partition(|&n| is_small_sum(&program.nodes[n]));
        for dtype in [DType::F64, DType::F32, DType::I32] {
            let of_type: Vec<usize> = sums.iter().copied().filter(|&n| program.nodes[n].meta.dtype == dtype).collect();
            new.bucket(&program, &of_type);
        }
        for number in rest {
            new.ordered(&program, number);
        }
    }
    let Arranged { nodes, places, .. } = new;
    let mut program = Program { nodes, ..program };
    for port in program.inputs.iter_mut().chain(&mut program.outputs) {
        port.node = port.node.map(|node| places[node]);
    }
    program.carries.iter_mut().for_each(|carry| carry.next = places[carry.next]);
    program
}

fn is_collective(node: &ProgramNode) -> bool {
    matches!(node.op, Op::Collective(_))
}

fn is_small_sum(node: &ProgramNode) -> bool {
    matches!(&node.op, Op::Collective(collective) if collective.kind == CollectiveKind::SumRanks)
        && element_count(&node.meta.shape) <= MAX_BUCKETED_ELEMENTS
}

/// By node: an input, an output or a carry depends on it.
fn live(program: &Program) -> Vec<bool> {
    let mut live = vec![false; program.nodes.len()];
    let ports = program.inputs.iter().chain(&program.outputs).filter_map(|port| port.node);
    ports.chain(program.carries.iter().map(|carry| carry.next)).for_each(|node| live[node] = true);
    for number in (0..live.len()).rev().filter(|&number| live[number]).collect::<Vec<_>>() {
        mark(program, number, &mut live);
    }
    live
}

fn mark(program: &Program, number: usize, live: &mut [bool]) {
    let mut stack = vec![number];
    while let Some(number) = stack.pop() {
        for &input in &program.nodes[number].inputs {
            if !std::mem::replace(&mut live[input], true) {
                stack.push(input);
            }
        }
    }
}

fn levels(program: &Program) -> Vec<usize> {
    let mut levels = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let behind = |&input: &usize| levels[input] + usize::from(is_collective(&program.nodes[input]));
        levels.push(node.inputs.iter().map(behind).max().unwrap_or(0));
    }
    levels
}

struct Arranged {
    nodes: Vec<ProgramNode>,
    /// By old node: the new one.
    places: Vec<usize>,
    /// The collective that was added last.
    last: Option<usize>,
}

impl Arranged {
    fn push(&mut self, node: ProgramNode) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn copy(&mut self, program: &Program, number: usize) {
        let mut node = program.nodes[number].clone();
        node.inputs.iter_mut().for_each(|input| *input = self.places[*input]);
        self.places[number] = self.push(node);
    }

    /// A collective after the one before.
    fn ordered(&mut self, program: &Program, number: usize) {
        self.copy(program, number);
        self.chain(self.places[number]);
    }

    fn chain(&mut self, collective: usize) {
        self.nodes[collective].inputs.extend(self.last);
        self.last = Some(collective);
    }

    /// Several sums as one: end to end, summed, and cut again.
    fn bucket(&mut self, program: &Program, sums: &[usize]) {
        let [first, _, ..] = sums else {
            return sums.iter().for_each(|&number| self.ordered(program, number));
        };
        let like = &program.nodes[*first];
        let flat = |count: usize| Meta { dtype: like.meta.dtype, shape: vec![count] };
        let node = |op: Op, inputs: Vec<usize>, meta: Meta| ProgramNode { op, inputs, meta, location: like.location };
        let counts: Vec<usize> = sums.iter().map(|&number| element_count(&program.nodes[number].meta.shape)).collect();
        let total = counts.iter().sum();
        let mut rows = vec![];
        for (&number, &count) in sums.iter().zip(&counts) {
            let operand = self.places[program.nodes[number].inputs[0]];
            rows.push(self.push(node(Op::Reshape, vec![operand], flat(count))));
        }
        let all = self.push(node(Op::Concat(0), rows, flat(total)));
        let sum = self.push(node(like.op.clone(), vec![all], flat(total)));
        self.chain(sum);
        let mut start = 0;
        for (&number, &count) in sums.iter().zip(&counts) {
            let op = Op::Slice { start: vec![start], stop: vec![start + count], step: vec![1] };
            let row = self.push(node(op, vec![sum], flat(count)));
            self.places[number] = self.push(node(Op::Reshape, vec![row], program.nodes[number].meta.clone()));
            start += count;
        }
    }
}
