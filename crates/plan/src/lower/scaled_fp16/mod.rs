//! Products in `Tf32` of operands in halves.
//!
//! `Tf32` multiplies numbers of 11 digits, and so does a product of IEEE halves, in half the time and of half the bytes; but the exponents of
//! halves have 5 bits instead of 8. So every operand is first multiplied by a power of two of its own, which loses nothing:
//!
//! A·B = (A·2¹⁴/a)·(B·2¹⁴/b) · (a/2¹⁴)·(b/2¹⁴),   |A| ≤ 2a,  |B| ≤ 2b
//!
//! With a = 2^⌊log₂ max |A|⌋, elements down to 2⁻²⁸ of the largest of their array keep all 11 digits, as in `Tf32`; smaller ones are off by at
//! most 2⁻³⁹ of the largest, which is 2⁻²⁷ times what the largest itself is rounded by. But that is known only when all of the array is.
//! Where its elements are bounded by numbers known before ([`Bound`]), a follows from these, and the loop that computes the array writes it in
//! halves at once. Where the bound is 2ˢ times the largest, both limits are 2ˢ times as high: 2^(s−28) and 2^(s−39).

pub(crate) mod range;
pub(crate) mod range_analysis;
pub(crate) mod range_patterns;
pub(crate) mod scale;

use crate::ir::node::{Elementwise, Kind, Operand};
use crate::ir::view::View;
use crate::lower::scaled_fp16::range::Bound;
use crate::lower::scaled_fp16::scale::Pow2Scale;
use crate::lower::{Line, Lowering};
use bilevel_graph::DType;
use std::collections::{HashMap, HashSet};

/// What products of halves have asked for, by node.
#[derive(Default)]
pub(crate) struct ScaledF16Operands {
    /// Scaled copies.
    pub operands: HashMap<usize, ScaledF16>,
    /// The largest elements.
    pub amax_exponents: HashMap<usize, usize>,
    /// How large elements can be, as far as that is known.
    pub bounds: HashMap<usize, Option<Bound>>,
    /// The inputs, and what loops make of those that are carried.
    pub parameters: HashSet<usize>,
}

impl ScaledF16Operands {
    /// The halved copy of a node, where its own largest element alone decides what it is multiplied by.
    pub fn scaled_by_own_amax(&self, node: usize) -> Option<usize> {
        let (halved, &largest) = (self.operands.get(&node)?, self.amax_exponents.get(&node)?);
        (halved.power == Pow2Scale::AMAX && halved.factors == [largest]).then_some(halved.node)
    }
}

/// An array in halves.
#[derive(Clone)]
pub(crate) struct ScaledF16 {
    /// The node of the halved copy.
    node: usize,
    /// Its power of two, and the nodes that are the factors of it.
    power: Pow2Scale,
    factors: Vec<usize>,
    /// What the array itself is not beyond.
    bound: Bound,
}

impl Lowering {
    /// The operands of a product in halves, and their arrays; `None` unless both are all of an array.
    pub fn scaled_to_f16(&mut self, operands: [&Operand; 2], like: Line) -> Option<([Operand; 2], [ScaledF16; 2])> {
        let whole = |operand: &Operand| {
            let (node, view) = operand.at()?;
            (view.count() == self.nodes[node].count() && view.strides.iter().all(|&stride| stride > 0))
                .then(|| (node, view.clone()))
        };
        let [Some(a), Some(b)] = operands.map(whole) else { return None };
        let [(a, of_a), (b, of_b)] = [a, b].map(|(node, view)| {
            let halved = self.scaled_node(node, like);
            // Whatever the view does with the elements, it does with their halved copies.
            (Operand::At { node: halved.node, view }, halved)
        });
        Some(([a, b], [of_a, of_b]))
    }

    /// The halved copy of a node: once for all products that read it.
    fn scaled_node(&mut self, node: usize, like: Line) -> ScaledF16 {
        if let Some(known) = self.scaled_f16.operands.get(&node) {
            return known.clone();
        }
        // What a carried input becomes is carried in halves itself (`states.rs`), with its largest.
        let bound = if self.scaled_f16.parameters.contains(&node) { None } else { self.bound(node) };
        let known = bound.and_then(|bound| bound.power().map(|power| (bound, power)));
        let (bound, (power, nodes)) = known.unwrap_or_else(|| (Bound::of(node), (Pow2Scale::AMAX, vec![node])));
        let factors: Vec<usize> = nodes.into_iter().map(|node| self.amax_exponent_of(node, like)).collect();
        let shape = self.nodes[node].shape.clone();
        let operands = [vec![self.dense(node)], everywhere(&factors, &shape)].concat();
        let half = self.push(Kind::Elementwise(Elementwise::ScaleToF16(power)), operands, &shape, DType::F32, like);
        self.nodes[half].narrow = true;
        let halved = ScaledF16 { node: half, power, factors, bound };
        self.scaled_f16.operands.insert(node, halved.clone());
        halved
    }

    /// The largest of a node: once for all who ask.
    fn amax_exponent_of(&mut self, node: usize, like: Line) -> usize {
        if let Some(&known) = self.scaled_f16.amax_exponents.get(&node) {
            return known;
        }
        let largest = self.push(Kind::AmaxExponent, vec![self.dense(node)], &[], DType::F32, like);
        self.scaled_f16.amax_exponents.insert(node, largest);
        largest
    }

    /// The result of a product of halved arrays, a view of all its elements, with their powers of two taken out again. Each element is a sum
    /// of so many terms.
    pub fn unscaled(&mut self, made: Operand, [a, b]: [ScaledF16; 2], terms: usize, like: Line) -> Operand {
        let Operand::At { node, view } = made else { return made };
        let shape = self.nodes[node].shape.clone();
        let factors = [&a.factors[..], &b.factors].concat();
        let operands = [vec![self.dense(node)], everywhere(&factors, &shape)].concat();
        let kind = Kind::Elementwise(Elementwise::Unscale([a.power, b.power]));
        let restored = self.push(kind, operands, &shape, DType::F32, like);
        self.scaled_f16.bounds.insert(restored, a.bound.summed(&b.bound, terms));
        Operand::At { node: restored, view }
    }
}

/// Numbers, each for all elements of this shape.
fn everywhere(nodes: &[usize], shape: &[usize]) -> Vec<Operand> {
    let view = View::contiguous(&[]).broadcast(&[], shape);
    nodes.iter().map(|&node| Operand::At { node, view: view.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::dot_layout::DotLayout;
    use crate::schedule::Schedule;
    use crate::target::{LIMITS, Limits, Target};
    use bilevel_graph::{Graph, Precision, Program, Tensor};

    /// One for which halves pay from so many rows on.
    struct Machine(usize);
    impl Target for Machine {
        fn limits(&self) -> Limits {
            LIMITS
        }

        fn has_native(&self, _: Precision) -> bool {
            true
        }

        fn scales_to_f16(&self, product: &DotLayout) -> bool {
            product.m >= self.0
        }
    }

    fn schedule(g: &Graph, results: &[Tensor], precision: Precision) -> Schedule {
        let mut builder = Program::builder(g);
        for (number, result) in results.iter().enumerate() {
            builder = builder.output(number.to_string(), *result);
        }
        Schedule::new(&builder.build().unwrap().with_precision(precision), &Machine(8)).unwrap()
    }

    /// How many halved arrays, powers of two and restored products there are.
    fn counts(schedule: &Schedule) -> [usize; 3] {
        let count = |of: fn(&Kind) -> bool| {
            let live = schedule.nodes.iter().enumerate().filter(|(id, _)| schedule.group_of(*id).is_some());
            live.filter(|(_, node)| of(&node.kind)).count()
        };
        [
            count(|kind| matches!(kind, Kind::Elementwise(Elementwise::ScaleToF16(_)))),
            count(|kind| matches!(kind, Kind::AmaxExponent)),
            count(|kind| matches!(kind, Kind::Elementwise(Elementwise::Unscale(_)))),
        ]
    }

    #[test]
    fn an_array_is_halved_once_for_all_products_that_read_all_of_it_in_whatever_order() {
        let g = Graph::new();
        let [x, w] = ["x", "w"].map(|name| g.input(name, [8, 8], DType::F32));
        let results = [x.matmul(w), x.t().matmul(w), w.t().matmul(x.t())];
        assert_eq!(counts(&schedule(&g, &results, Precision::Tf32)), [2, 2, 3]);
        for exact in [Precision::Full, Precision::Bf16] {
            assert_eq!(counts(&schedule(&g, &results, exact)), [0, 0, 0]);
        }
        let part = [x.slice(1, 0, 4).matmul(w.slice(0, 0, 4))];
        assert_eq!(counts(&schedule(&g, &part, Precision::Tf32)), [0, 0, 0], "parts of an array");
        let short = [x.slice(0, 0, 4).matmul(w)];
        assert_eq!(counts(&schedule(&g, &short, Precision::Tf32)), [0, 0, 0], "what the machine does not want");
    }

    #[test]
    fn a_power_of_two_is_found_where_the_array_is_computed_and_all_are_cleared_at_once() {
        let g = Graph::new();
        let [x, w] = ["x", "w"].map(|name| g.input(name, [8, 8], DType::F32));
        let next = (x.tanh().matmul(w) * 0.5).sin();
        let program = Program::builder(&g).carry(x, next.matmul(next)).build().unwrap();
        let schedule = Schedule::new(&program.with_precision(Precision::Tf32), &Machine(8)).unwrap();
        assert_eq!(counts(&schedule), [3, 3, 2]);
        let members = |kind: fn(&Kind) -> bool| {
            let found =
                schedule.groups().iter().filter(|group| group.members.iter().any(|&id| kind(&schedule.nodes[id].kind)));
            found.map(|group| group.members.len()).collect::<Vec<_>>()
        };
        // Of the weights, which stay as they are, alone and before the first step; of a tangent, and of a sine with all that it is made of.
        assert_eq!(members(|kind| matches!(kind, Kind::AmaxExponent)), [1, 2, 4]);
        let map = schedule.lay_out(&vec![0; schedule.groups().len()]).unwrap();
        let [once, in_steps] = map.amax_words.map(|amax_words| amax_words.unwrap());
        assert_eq!((once.1, in_steps.1), (4, 8));
        for (id, node) in schedule.nodes.iter().enumerate().filter(|(_, node)| matches!(node.kind, Kind::AmaxExponent))
        {
            let (place, bytes) = if node.invariant { once } else { in_steps };
            let at = map.nodes[id].unwrap();
            assert!(at.region == place.region && (place.offset..place.offset + bytes).contains(&at.offset));
        }
    }
}
