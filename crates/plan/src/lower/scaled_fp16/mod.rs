//! `Tf32` products computed in fp16, with a power-of-two scale per array.
//!
//! Both formats have 11 significant bits, but fp16 products take half the time and half the bytes. The exponent of fp16
//! has only 5 bits instead of 8, so every operand is first multiplied by a power of two, which is exact:
//!
//! A·B = (A·2¹⁴/a)·(B·2¹⁴/b) · (a/2¹⁴)·(b/2¹⁴),   |A| ≤ 2a,  |B| ≤ 2b
//!
//! With a = 2^⌊log₂ max |A|⌋, elements down to 2⁻²⁸ of the array's amax keep all 11 bits, as in `Tf32`. The error of
//! smaller ones is at most 2⁻³⁹ of the amax, which is 2⁻²⁷ times the rounding error of the amax itself. But the amax is
//! known only when the whole array is. If range analysis bounds the elements beforehand ([`Bound`]), a follows from the
//! bound, and the loop that computes the array writes fp16 directly. If the bound is 2ˢ times the amax, both limits
//! grow to 2^(s−28) and 2^(s−39).

pub(crate) mod range;
pub(crate) mod range_analysis;
pub(crate) mod range_patterns;
pub(crate) mod scale;

use crate::ir::node::{Elementwise, Kind, Operand};
use crate::ir::storage_type::StorageType;
use crate::ir::view::View;
use crate::lower::Lowering;
use crate::lower::scaled_fp16::range::Bound;
use crate::lower::scaled_fp16::scale::Pow2Scale;
use bilevel_graph::{DType, Line};
use std::collections::{HashMap, HashSet};

/// The fp16 operands of a program, by node.
#[derive(Default)]
pub(crate) struct ScaledF16Operands {
    /// The scaled copies.
    pub operands: HashMap<usize, ScaledF16>,
    /// The amax exponents.
    pub amax_exponents: HashMap<usize, usize>,
    /// The known bounds of elements.
    pub bounds: HashMap<usize, Option<Bound>>,
    /// The inputs, and the next values of carried inputs that loops compute.
    pub parameters: HashSet<usize>,
}

impl ScaledF16Operands {
    /// Returns the scaled copy of a node if its own amax alone determines the scale.
    pub fn scaled_by_own_amax(&self, node: usize) -> Option<usize> {
        let (scaled, &amax) = (self.operands.get(&node)?, self.amax_exponents.get(&node)?);
        (scaled.scale == Pow2Scale::AMAX && scaled.factors == [amax]).then_some(scaled.node)
    }
}

/// An array scaled to fp16.
#[derive(Clone)]
pub(crate) struct ScaledF16 {
    /// The node of the scaled copy.
    node: usize,
    /// Its scale, and the nodes that are the factors of the scale.
    scale: Pow2Scale,
    factors: Vec<usize>,
    /// The bound of the unscaled array.
    bound: Bound,
}

impl Lowering {
    /// Returns the scaled operands of a product, and their arrays; `None` unless both views cover a whole array.
    pub fn scaled_to_f16(&mut self, operands: [&Operand; 2], like: Line) -> Option<([Operand; 2], [ScaledF16; 2])> {
        let whole = |operand: &Operand| {
            let (node, view) = operand.at()?;
            (view.count() == self.nodes[node].count() && view.strides.iter().all(|&stride| stride > 0))
                .then(|| (node, view.clone()))
        };
        let [Some(a), Some(b)] = operands.map(whole) else { return None };
        let [(a, of_a), (b, of_b)] = [a, b].map(|(node, view)| {
            let scaled = self.scaled_node(node, like);
            // The view applies to the scaled copy as well.
            (Operand::At { node: scaled.node, view }, scaled)
        });
        Some(([a, b], [of_a, of_b]))
    }

    /// Returns the scaled copy of a node, shared by all products that read it.
    fn scaled_node(&mut self, node: usize, like: Line) -> ScaledF16 {
        if let Some(known) = self.copies.scaled_f16.operands.get(&node) {
            return known.clone();
        }
        // The next value of a carried input is carried as fp16 (`carried_casts.rs`), with its amax.
        let bound = if self.copies.scaled_f16.parameters.contains(&node) { None } else { self.bound(node) };
        let known = bound.and_then(|bound| bound.scale().map(|scale| (bound, scale)));
        let (bound, (scale, nodes)) = known.unwrap_or_else(|| (Bound::of(node), (Pow2Scale::AMAX, vec![node])));
        let factors: Vec<usize> = nodes.into_iter().map(|node| self.amax_exponent_of(node, like)).collect();
        let shape = self.nodes[node].shape.clone();
        let operands = [vec![self.dense(node)], everywhere(&factors, &shape)].concat();
        let scaled_copy =
            self.push(Kind::Elementwise(Elementwise::ScaleToF16(scale)), operands, &shape, DType::F32, like);
        self.nodes[scaled_copy].storage = StorageType::F16;
        let scaled = ScaledF16 { node: scaled_copy, scale, factors, bound };
        self.copies.scaled_f16.operands.insert(node, scaled.clone());
        scaled
    }

    /// Returns the amax exponent of a node, shared by all readers.
    fn amax_exponent_of(&mut self, node: usize, like: Line) -> usize {
        if let Some(&known) = self.copies.scaled_f16.amax_exponents.get(&node) {
            return known;
        }
        let amax = self.push(Kind::AmaxExponent, vec![self.dense(node)], &[], DType::F32, like);
        self.copies.scaled_f16.amax_exponents.insert(node, amax);
        amax
    }

    /// Returns the result of a product of scaled arrays with both scales removed. Each element is a sum of this many
    /// terms.
    pub fn unscaled(&mut self, made: Operand, [a, b]: [ScaledF16; 2], terms: usize, like: Line) -> Operand {
        let Operand::At { node, view } = made else { return made };
        let shape = self.nodes[node].shape.clone();
        let factors = [&a.factors[..], &b.factors].concat();
        let operands = [vec![self.dense(node)], everywhere(&factors, &shape)].concat();
        let kind = Kind::Elementwise(Elementwise::Unscale([a.scale, b.scale]));
        let restored = self.push(kind, operands, &shape, DType::F32, like);
        self.copies.scaled_f16.bounds.insert(restored, a.bound.summed(&b.bound, terms));
        Operand::At { node: restored, view }
    }
}

/// Scalars broadcast to this shape.
fn everywhere(nodes: &[usize], shape: &[usize]) -> Vec<Operand> {
    let view = View::contiguous(&[]).broadcast(&[], shape);
    nodes.iter().map(|&node| Operand::At { node, view: view.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::{Graph, Precision, Program, Tensor};

    /// A target that prefers fp16 from this many rows on.
    fn machine(side: usize) -> Target {
        Target::PLAIN.with(|target| {
            target.can.rounds_operands = true;
            (target.costs.min_scaled_side, target.costs.load_bytes) = (Some(side), 2);
        })
    }

    fn schedule(g: &Graph, results: &[Tensor], precision: Precision) -> Schedule {
        let builder = Program::builder(g).outputs("", results.iter().copied());
        Schedule::new(&builder.build().unwrap().with_precision(precision), &machine(8)).unwrap()
    }

    /// Counts the scaled arrays, amax exponents and unscaled products.
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
    fn an_array_is_scaled_to_fp16_once_for_all_products_that_read_it_whole() {
        let g = Graph::new();
        let [x, w] = ["x", "w"].map(|name| g.input(name, [8, 8], DType::F32));
        let results = [x.matmul(w), x.t().matmul(w), w.t().matmul(x.t())];
        assert_eq!(counts(&schedule(&g, &results, Precision::Tf32)), [2, 2, 3]);
        for exact in [Precision::Full, Precision::Bf16] {
            assert_eq!(counts(&schedule(&g, &results, exact)), [0, 0, 0]);
        }
        let large = g.input("large", [16, 16], DType::F32);
        let part = [large.slice(1, 0, 8).matmul(large.slice(0, 0, 8))];
        assert_eq!(counts(&schedule(&g, &part, Precision::Tf32)), [0, 0, 0], "parts of an array");
        let short = [x.slice(0, 0, 4).matmul(w)];
        assert_eq!(counts(&schedule(&g, &short, Precision::Tf32)), [0, 0, 0], "what the machine does not want");
    }

    #[test]
    fn an_amax_is_computed_with_its_array_and_all_are_cleared_at_once() {
        let g = Graph::new();
        let [x, w] = ["x", "w"].map(|name| g.input(name, [8, 8], DType::F32));
        let next = (x.tanh().matmul(w) * 0.5).sin();
        let program = Program::builder(&g).carry(x, next.matmul(next)).build().unwrap();
        let schedule = Schedule::new(&program.with_precision(Precision::Tf32), &machine(8)).unwrap();
        assert_eq!(counts(&schedule), [3, 3, 2]);
        let members = |kind: fn(&Kind) -> bool| {
            let found =
                schedule.groups().iter().filter(|group| group.members.iter().any(|&id| kind(&schedule.nodes[id].kind)));
            found.map(|group| group.members.len()).collect::<Vec<_>>()
        };
        // The weights alone, before the first step; a tanh; and a sine together with the operations it is computed
        // from.
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
