//! Products in `Tf32` of operands in halves.
//!
//! `Tf32` multiplies numbers of 11 digits, and so does a product of IEEE halves, in half the time and of half the bytes; but the exponents of
//! halves have 5 bits instead of 8. So every operand is first multiplied by a power of two of its own, which loses nothing:
//!
//! A·B = (A·2¹⁴/a)·(B·2¹⁴/b) · (a/2¹⁴)·(b/2¹⁴),   a = 2^⌊log₂ max |A|⌋,  b = 2^⌊log₂ max |B|⌋
//!
//! Elements down to 2⁻²⁸ of the largest of their array keep all 11 digits, as in `Tf32`; smaller ones are off by at most 2⁻³⁹ of the largest,
//! which is 2⁻²⁷ times what the largest itself is rounded by.

use crate::lower::{Line, Lowering};
use crate::node::{Elementwise, Kind, Operand};
use crate::view::View;
use bilevel_graph::DType;

impl Lowering {
    /// The operands of a product in halves, and the nodes of their powers of two; `None` unless both are all of an array.
    pub fn halved(&mut self, operands: [&Operand; 2], like: Line) -> Option<([Operand; 2], [usize; 2])> {
        let whole = |operand: &Operand| {
            let (node, view) = operand.at()?;
            (view.count() == self.nodes[node].count() && view.strides.iter().all(|&stride| stride > 0))
                .then(|| (node, view.clone()))
        };
        let [Some(a), Some(b)] = operands.map(whole) else { return None };
        let [(a, a_power), (b, b_power)] = [a, b].map(|(node, view)| {
            let [half, power] = self.halved_node(node, like);
            // Whatever the view does with the elements, it does with their halved copies.
            (Operand::At { node: half, view }, power)
        });
        Some(([a, b], [a_power, b_power]))
    }

    /// The halved copy of a node, and its power of two: once for all products that read it.
    fn halved_node(&mut self, node: usize, like: Line) -> [usize; 2] {
        if let Some(&known) = self.halved.get(&node) {
            return known;
        }
        let (dense, shape) = (self.dense(node), self.nodes[node].shape.clone());
        let power = self.push(Kind::Largest, vec![dense.clone()], &[], DType::F32, like);
        let operands = vec![dense, everywhere(power, &shape)];
        let half = self.push(Kind::Elementwise(Elementwise::Halve), operands, &shape, DType::F32, like);
        self.nodes[half].narrow = true;
        self.halved.insert(node, [half, power]);
        [half, power]
    }

    /// The result of a product of halved operands, a view of all its elements, with their powers of two taken out again.
    pub fn restored(&mut self, made: Operand, powers: [usize; 2], like: Line) -> Operand {
        let Operand::At { node, view } = made else { return made };
        let shape = self.nodes[node].shape.clone();
        let operands = [vec![self.dense(node)], powers.map(|power| everywhere(power, &shape)).to_vec()].concat();
        let restored = self.push(Kind::Elementwise(Elementwise::Restore), operands, &shape, DType::F32, like);
        Operand::At { node: restored, view }
    }
}

/// One number for all elements of this shape.
fn everywhere(node: usize, shape: &[usize]) -> Operand {
    Operand::At { node, view: View::contiguous(&[]).broadcast(&[], shape) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower_dot::DotLayout;
    use crate::schedule::Schedule;
    use crate::target::{LIMITS, Limits, Target};
    use bilevel_graph::{Graph, Precision, Program, Tensor};

    /// One for which halves pay from so many rows on.
    struct Machine(usize);
    impl Target for Machine {
        fn limits(&self) -> Limits {
            LIMITS
        }

        fn multiplies(&self, _: Precision) -> bool {
            true
        }

        fn halves(&self, product: &DotLayout) -> bool {
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
            count(|kind| matches!(kind, Kind::Elementwise(Elementwise::Halve))),
            count(|kind| matches!(kind, Kind::Largest)),
            count(|kind| matches!(kind, Kind::Elementwise(Elementwise::Restore))),
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
        assert_eq!(members(|kind| matches!(kind, Kind::Largest)), [1, 2, 4]);
        let map = schedule.lay_out(&vec![0; schedule.groups().len()]).unwrap();
        let [once, in_steps] = map.raised.map(|raised| raised.unwrap());
        assert_eq!((once.1, in_steps.1), (4, 8));
        for (id, node) in schedule.nodes.iter().enumerate().filter(|(_, node)| matches!(node.kind, Kind::Largest)) {
            let (place, bytes) = if node.invariant { once } else { in_steps };
            let at = map.nodes[id].unwrap();
            assert!(at.region == place.region && (place.offset..place.offset + bytes).contains(&at.offset));
        }
    }
}
