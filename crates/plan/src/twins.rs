//! Twins: operations of a program that do the same to two sets of data. Where the gradients of a training loss and of a validation loss
//! are taken at the same weights, whole networks are twins, and can be computed as one with an axis of two in front ([`crate::stack`]).
//!
//! Twins are found by numbering. Two values that are to be stacked, a *meeting*, have the same number and are in the lanes 0 and 1. An
//! operation on values of one lane, and on others that depend on neither lane, is in that lane too, and its number is that of
//!
//!   (operation, type and shape, numbers of its operands).
//!
//! Two operations in different lanes with the same number are twins. What depends on both lanes is in none.
//!
//! Values meet where two products, or convolutions, have the same weights: a factor that depends on something carried, and on no lane. At
//! first the other factors depend on nothing carried, that is, they are data; later on one lane each, as the slopes of two losses do,
//! which may be scaled differently. As a lane never depends on the other, twins can be computed at the same time. Something that only
//! the outputs of a run need, and that its last step computes alone, is no twin of what every step computes.

use crate::stack::can_stack;
use bilevel_graph::shape::element_count;
use bilevel_graph::{BinaryOp, Meta, Op, Program, ProgramNode};
use std::collections::HashMap;

/// Most bytes of a value that is copied to meet another: data that are the same in every step would be held twice.
const MOST_BYTES: usize = 64 << 20;
/// Most meetings. Where more are needed, two computations are not very alike.
const MOST_MEETINGS: usize = 16;
/// Most axes of a twin: stacked, it has one more.
const MOST_AXES: usize = 7;

/// The twins of a program.
pub(crate) struct Twins {
    /// By node: the node it is stacked with, and its own lane.
    pub of: Vec<Option<(usize, usize)>>,
    /// By node: it is copied to be stacked, because what computes the two differs.
    pub meets: Vec<bool>,
}

/// The nodes of lane 0 and of lane 1 that meet.
type Meeting = [usize; 2];

/// The twins of a program; none where no products have the same weights.
pub(crate) fn twins(program: &Program) -> Option<Twins> {
    let ties = Ties::new(program);
    let (mut meetings, mut refused): (Vec<Meeting>, Vec<Meeting>) = (vec![], vec![]);
    let numbered = loop {
        let numbered = Numbered::new(program, &ties, &meetings);
        if let Some(wrong) = numbered.wrong {
            refused.push(meetings.remove(wrong));
            continue;
        }
        let enough = meetings.len() + refused.len() >= MOST_MEETINGS;
        match numbered.meeting(program, &ties, &refused).filter(|_| !enough) {
            Some(meeting) => meetings.push(meeting),
            None => break numbered,
        }
    };
    let is_product = |node: usize| matches!(program.nodes[node].op, Op::Dot(..) | Op::Conv(..));
    let gains = numbered.twin.iter().enumerate().any(|(node, twin)| twin.is_some() && is_product(node));
    let lane = |node: usize| numbered.lane[node].unwrap_or_default();
    gains.then(|| Twins {
        of: (0..program.nodes.len()).map(|node| numbered.twin[node].map(|twin| (twin, lane(node)))).collect(),
        meets: numbered.meets,
    })
}

/// How nodes are tied to what a loop carries.
struct Ties {
    /// By node: it depends on something that is carried.
    to_before: Vec<bool>,
    /// By node: what is carried depends on it, so that every step computes it.
    to_after: Vec<bool>,
}

impl Ties {
    fn new(program: &Program) -> Self {
        let (mut to_before, mut to_after) = (vec![false; program.nodes.len()], vec![false; program.nodes.len()]);
        for carry in &program.carries {
            program.inputs[carry.input].node.into_iter().for_each(|node| to_before[node] = true);
            to_after[carry.next] = true;
        }
        for (id, node) in program.nodes.iter().enumerate() {
            to_before[id] |= node.inputs.iter().any(|&operand| to_before[operand]);
        }
        for (id, node) in program.nodes.iter().enumerate().rev() {
            node.inputs.iter().for_each(|&operand| to_after[operand] |= to_after[id]);
        }
        Ties { to_before, to_after }
    }
}

/// All nodes with their lanes and twins, given what meets.
struct Numbered {
    lane: Vec<Option<usize>>,
    /// By node: bit l is set where it depends on lane l.
    touched: Vec<u8>,
    twin: Vec<Option<usize>>,
    meets: Vec<bool>,
    /// The place of a meeting that cannot be: one lane would depend on the other.
    wrong: Option<usize>,
}

impl Numbered {
    fn new(program: &Program, ties: &Ties, meetings: &[Meeting]) -> Self {
        let count = program.nodes.len();
        let (lane, twin, meets) = (vec![None; count], vec![None; count], vec![false; count]);
        let mut made = Numbered { lane, touched: vec![0; count], twin, meets, wrong: None };
        if meetings.is_empty() {
            return made;
        }
        let places = |(place, &[zero, one]): (usize, &Meeting)| [(zero, (place, 0, one)), (one, (place, 1, zero))];
        let met: HashMap<usize, (usize, usize, usize)> = meetings.iter().enumerate().flat_map(places).collect();
        let mut number: Vec<usize> = (0..count).collect();
        let mut known: HashMap<(&Op, &Meta, bool, Vec<usize>), usize> = HashMap::new();
        for (id, node) in program.nodes.iter().enumerate() {
            let mut touched = node.inputs.iter().fold(0, |all, &operand| all | made.touched[operand]);
            let stacked: Vec<bool> = node.inputs.iter().map(|&operand| made.lane[operand].is_some()).collect();
            let fits = stacked.contains(&true) && node.meta.shape.len() <= MOST_AXES && can_stack(&node.op, &stacked);
            if let Some(lane) = only(touched).filter(|_| fits) {
                let mut operands: Vec<usize> = node.inputs.iter().map(|&operand| number[operand]).collect();
                if is_commutative(&node.op) {
                    operands.sort_unstable();
                }
                number[id] = *known.entry((&node.op, &node.meta, ties.to_after[id], operands)).or_insert(id);
                made.lane[id] = Some(lane);
            }
            if let Some(&(place, lane, other)) = met.get(&id) {
                touched |= 1 << lane;
                if only(touched).is_none() {
                    made.wrong = Some(place);
                    return made;
                }
                made.lane[id] = Some(lane);
                if other < id && number[other] != number[id] {
                    number[id] = number[other];
                    (made.meets[id], made.meets[other]) = (true, true);
                }
            }
            made.touched[id] = touched;
        }
        made.match_lanes(program, &number);
        made
    }

    /// Finds the twins: those of one number in both lanes whose operands are the same or twins themselves.
    fn match_lanes(&mut self, program: &Program, number: &[usize]) {
        let mut first: HashMap<(usize, usize), usize> = HashMap::new();
        for (id, node) in program.nodes.iter().enumerate() {
            let Some(lane) = self.lane[id] else { continue };
            first.entry((number[id], lane)).or_insert(id);
            let Some(&other) = first.get(&(number[id], 1 - lane)) else { continue };
            let alike = in_pairs([node, &program.nodes[other]], |own| self.twin[own]).is_some();
            if self.twin[other].is_none() && (self.meets[id] || alike) {
                (self.twin[id], self.twin[other]) = (Some(other), Some(id));
            }
        }
    }

    /// The first two values that can meet.
    fn meeting(&self, program: &Program, ties: &Ties, refused: &[Meeting]) -> Option<Meeting> {
        let mut waiting: HashMap<(&Op, &Meta, bool, usize, usize), Vec<usize>> = HashMap::new();
        for (id, node) in program.nodes.iter().enumerate().filter(|(id, _)| self.twin[*id].is_none()) {
            // The places of a factor that may differ and of the weights.
            let places: &[[usize; 2]] = match node.op {
                Op::Dot(..) => &[[0, 1], [1, 0]],
                Op::Conv(..) => &[[0, 1]],
                _ => continue,
            };
            for &[place, of_weights] in places {
                let (value, weights) = (node.inputs[place], node.inputs[of_weights]);
                let meta = &program.nodes[value].meta;
                let fits = element_count(&meta.shape).saturating_mul(meta.dtype.size()) <= MOST_BYTES
                    && meta.shape.len() <= MOST_AXES
                    && self.twin[value].is_none();
                let is_free = self.touched[value] == 0 && !ties.to_before[value];
                if !fits || !ties.to_before[weights] || self.touched[weights] != 0 {
                    continue;
                }
                if !is_free && only(self.touched[value]).is_none() {
                    continue;
                }
                let others = waiting.entry((&node.op, &node.meta, ties.to_after[id], place, weights)).or_default();
                for &other in others.iter().filter(|&&other| program.nodes[other].meta == *meta) {
                    let pair = match (only(self.touched[other]), only(self.touched[value])) {
                        (None, None) | (Some(0), Some(1)) => [other, value],
                        (Some(1), Some(0)) => [value, other],
                        _ => continue,
                    };
                    if !refused.contains(&pair) {
                        return Some(pair);
                    }
                }
                others.push(value);
            }
        }
        None
    }
}

/// True where the operands of an operation may change places. Those of a sum lie in the order in which they were made, which may differ
/// from one lane to the other.
fn is_commutative(op: &Op) -> bool {
    matches!(op, Op::Binary(BinaryOp::Add | BinaryOp::Mul | BinaryOp::Eq | BinaryOp::Ne))
}

/// The operands of two nodes, each with what it is in the other: itself, or its twin. None where an operand is neither.
pub(crate) fn in_pairs(
    [one, other]: [&ProgramNode; 2],
    twin: impl Fn(usize) -> Option<usize>,
) -> Option<Vec<[usize; 2]>> {
    let alike = |&[a, b]: &[usize; 2]| a == b || twin(a) == Some(b);
    let paired = |others: &mut dyn Iterator<Item = &usize>| -> Option<Vec<[usize; 2]>> {
        let pairs: Vec<[usize; 2]> = one.inputs.iter().zip(others).map(|(&a, &b)| [a, b]).collect();
        pairs.iter().all(alike).then_some(pairs)
    };
    let swapped = || is_commutative(&one.op).then(|| paired(&mut other.inputs.iter().rev())).flatten();
    paired(&mut other.inputs.iter()).or_else(swapped)
}

/// The only lane of these.
fn only(touched: u8) -> Option<usize> {
    match touched {
        1 => Some(0),
        2 => Some(1),
        _ => None,
    }
}
