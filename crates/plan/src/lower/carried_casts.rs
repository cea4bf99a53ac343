//! Carried casts: low-precision copies of carried inputs, carried along with them.
//!
//!   r₀ = round(x₀),   then in every step x ← next(x), r ← round(next(x))
//!
//! If products of a step read the next value of a carried input, they already have its cast, which the next step needs
//! first. An executor computes it only before the first step ([`InitialCast`]). If no product reads the next value, the
//! cast is not carried: it could be overwritten only after its last reader, while the input itself may be updated
//! sooner.

use crate::ir::lowered_graph::LoweredGraph;
use crate::ir::node::{CastForm, Kind, Operand};
use crate::ir::storage_type::StorageType;
use crate::ir::view::View;
use crate::lower::Copies;
use crate::schedule::in_place::Carry;
use bilevel_graph::Precision;

/// A cast to be computed before the first step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialCast {
    /// The node of the cast, a [`Kind::CarriedCast`].
    pub cast: usize,
    /// The node of the carried input.
    pub input: usize,
    /// For scaled fp16, the carried amax of the input, which is computed first.
    pub amax: Option<usize>,
}

impl InitialCast {
    /// Renumbers the nodes.
    pub(crate) fn moved(&self, mut to: impl FnMut(usize) -> Option<usize>) -> Option<Self> {
        let amax = match self.amax {
            Some(amax) => Some(to(amax)?),
            None => None,
        };
        Some(InitialCast { cast: to(self.cast)?, input: to(self.input)?, amax })
    }
}

/// Carries the bf16 and fp16 casts of carried inputs, and their amax exponents.
pub(crate) fn carry_casts(low: &mut LoweredGraph, copies: &Copies) {
    for (input, next) in low.carries.clone() {
        let Some((made, view)) = next.at() else { continue };
        let computed = !matches!(low.nodes[made].kind, Kind::Input | Kind::Table(_));
        if !computed
            || low.nodes[made].invariant
            || low.nodes[made].storage.is_reduced()
            || !low.nodes[made].is_whole(view)
        {
            continue;
        }
        let rounded = [input, made].map(|node| copies.rounded.get(&(node, Precision::Bf16)).copied());
        if let [Some(copy), Some(next)] = rounded
            && [copy, next].iter().all(|&copy| low.nodes[copy].storage == StorageType::Bf16)
        {
            low.carries.push((copy, dense(low, next)));
            low.becomes_carried_cast(CastForm::Bf16, InitialCast { cast: copy, input, amax: None });
        }
        let exponents = [input, made].map(|node| copies.scaled_f16.amax_exponents.get(&node).copied());
        let [Some(amax), Some(next_amax)] = exponents else { continue };
        low.carries.push((amax, dense(low, next_amax)));
        low.becomes_carried_cast(CastForm::AmaxExponent, InitialCast { cast: amax, input, amax: None });
        let scaled = [input, made].map(|node| copies.scaled_f16.scaled_by_own_amax(node));
        if let [Some(copy), Some(next)] = scaled {
            low.carries.push((copy, dense(low, next)));
            low.becomes_carried_cast(CastForm::ScaledF16, InitialCast { cast: copy, input, amax: Some(amax) });
        }
    }
}

impl LoweredGraph {
    fn becomes_carried_cast(&mut self, form: CastForm, initial_cast: InitialCast) {
        let node = &mut self.nodes[initial_cast.cast];
        (node.kind, node.operands) = (Kind::CarriedCast(form), vec![]);
        self.initial_casts.push(initial_cast);
    }
}

fn dense(low: &LoweredGraph, node: usize) -> Operand {
    Operand::At { node, view: View::contiguous(&low.nodes[node].shape) }
}

/// Returns true if no cast of an array has to be copied at the end of a step: a copy would take as long as computing
/// it.
pub(crate) fn are_written_in_place(low: &LoweredGraph, carries: &[Carry]) -> bool {
    let is_array =
        |node: usize| matches!(low.nodes[node].kind, Kind::CarriedCast(CastForm::Bf16 | CastForm::ScaledF16));
    carries.iter().all(|carry| carry.in_place || !is_array(carry.input))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Region;
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::{DType, Graph, Program, Tensor, nn};

    /// A target that reads two bytes per element in `Bf16`, and prefers fp16 for `Tf32`.
    fn machine() -> Target {
        Target::PLAIN.with(|target| {
            (target.can.rounds_operands, target.can.gemm_reads_bf16) = (true, true);
            (target.costs.min_scaled_side, target.costs.load_bytes) = (Some(1), 2);
        })
    }

    /// A step of weights, and whether a product reads the new ones.
    fn schedule(precision: Precision, again: bool) -> Schedule {
        let g = Graph::new();
        let [x, w] = ["x", "w"].map(|name| g.input(name, [8, 8], DType::F32));
        let next = w - x.matmul(w) * 0.1;
        let read = if again { next } else { x };
        let program = Program::builder(&g).carry(w, next).output("y", x.matmul(read)).build().unwrap();
        Schedule::new(&program.with_precision(precision), &machine()).unwrap()
    }

    fn forms(schedule: &Schedule) -> Vec<CastForm> {
        let form = |initial_cast: &InitialCast| match schedule.nodes[initial_cast.cast].kind {
            Kind::CarriedCast(form) => form,
            _ => panic!("an initial cast"),
        };
        schedule.initial_casts.iter().map(form).collect()
    }

    #[test]
    fn the_cast_of_a_carried_input_is_computed_with_its_update_in_place() {
        let schedule = schedule(Precision::Bf16, true);
        assert_eq!(forms(&schedule), [CastForm::Bf16]);
        let [of_w, of_copy] = &schedule.carries[..] else { panic!("the weights, and their copy") };
        assert!(of_w.in_place && of_copy.in_place);
        let (next, next_copy) = (of_w.next.at().unwrap().0, of_copy.next.at().unwrap().0);
        assert_eq!(schedule.group_of(next), schedule.group_of(next_copy));
        let map = schedule.lay_out(&vec![0; schedule.groups().len()]).unwrap();
        let place = map.nodes[schedule.initial_casts[0].cast].unwrap();
        assert_eq!((place.region, map.nodes[next_copy]), (Region::Arena, Some(place)));
    }

    #[test]
    fn the_amax_of_a_scaled_fp16_cast_is_carried_with_it() {
        let schedule = schedule(Precision::Tf32, true);
        assert_eq!(forms(&schedule), [CastForm::AmaxExponent, CastForm::ScaledF16]);
        assert_eq!(schedule.initial_casts[1].amax, Some(schedule.initial_casts[0].cast));
        // The exponent is known only after all elements, so it is copied.
        assert_eq!(schedule.carries.iter().map(|carry| carry.in_place).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn the_amax_of_a_bias_is_carried_if_it_bounds_operands_of_products() {
        let g = Graph::new();
        // More elements than a bias may have.
        let x = g.input("x", [96, 104], DType::F32);
        let (w, b) = (g.input("w", [104, 104], DType::F32), g.input("b", [104], DType::F32));
        let layer = |b: Tensor| nn::relu(x.matmul(w) + b.broadcast([1], [96, 104])).matmul(w);
        let next = b - layer(b).sum([0]) * 0.1;
        let program = Program::builder(&g).carry(b, next).output("y", layer(next)).build().unwrap();
        let schedule = Schedule::new(&program.with_precision(Precision::Tf32), &machine()).unwrap();
        assert_eq!(forms(&schedule), [CastForm::AmaxExponent]);
        // The loop that updates the bias also computes its amax.
        let [of_b, of_largest] = &schedule.carries[..] else { panic!("the bias and its amax") };
        let [next, exponents] = [of_b, of_largest].map(|carry| schedule.group_of(carry.next.at().unwrap().0));
        assert!(next.is_some() && next == exponents);
    }

    #[test]
    fn a_copy_that_is_read_after_the_update_is_made_in_every_step() {
        // The old weights are read once the new ones are known.
        let g = Graph::new();
        let [x, w] = ["x", "w"].map(|name| g.input(name, [8, 8], DType::F32));
        let next = w - x.matmul(w) * 0.1;
        let program = Program::builder(&g).carry(w, next).output("y", next.matmul(x).matmul(w)).build().unwrap();
        let schedule = Schedule::new(&program.with_precision(Precision::Bf16), &machine()).unwrap();
        assert!(schedule.initial_casts.is_empty());
    }

    #[test]
    fn without_a_loop_rounding_or_readers_of_the_next_value_no_cast_is_carried() {
        assert!(schedule(Precision::Full, true).initial_casts.is_empty());
        assert!(
            schedule(Precision::Bf16, false).initial_casts.is_empty()
                && schedule(Precision::Tf32, false).initial_casts.is_empty()
        );
        let g = Graph::new();
        let [x, w] = ["x", "w"].map(|name| g.input(name, [8, 8], DType::F32));
        let program = Program::builder(&g).output("y", x.matmul(w)).build().unwrap().with_precision(Precision::Bf16);
        assert!(Schedule::new(&program, &machine()).unwrap().initial_casts.is_empty());
    }
}
