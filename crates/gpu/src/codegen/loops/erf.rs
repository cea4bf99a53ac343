//! 1 + erf(x) as one function: erf takes half of a GELU's instructions.
//!
//! The sum equals erfc(−x), but the primitive erfc is no substitute. It is accurate relative to results near 0, where a
//! GELU needs 1 + erf(x) only to the rounding of a sum. As PTX of NVRTC 13.5 without moves, this function has about 12
//! instructions, erff(x) + 1 has 24, and erfcf(−x) has 45.
//!
//! The pattern applies if the erf is computed in the same loop, whatever else the loop contains.

use crate::codegen::body::Members;
use crate::codegen::parts::Part;
use bilevel_graph::{BinaryOp, DType, Result, UnaryOp};
use bilevel_plan::{Access, Elementwise, Kind, Operand};

impl Members<'_, '_> {
    /// Returns the expression of a member that is 1 + erf(x), if the erf is in this loop.
    pub fn one_plus_erf(&mut self, member: usize) -> Result<Option<String>> {
        let schedule = self.context.schedule;
        let node = &schedule.nodes[member];
        let is_sum =
            node.dtype == DType::F32 && matches!(node.kind, Kind::Elementwise(Elementwise::Binary(BinaryOp::Add)));
        let (erf, read) = match &node.operands[..] {
            [operand @ Operand::At { node, .. }, Operand::Constant(1.0)]
            | [Operand::Constant(1.0), operand @ Operand::At { node, .. }]
                if is_sum && schedule.access(member, operand) == Some(Access::Register) =>
            {
                (&schedule.nodes[*node], *node)
            }
            _ => return Ok(None),
        };
        let is_erf = matches!(erf.kind, Kind::Elementwise(Elementwise::Unary(UnaryOp::Erf)));
        if !is_erf || self.is_row(read) != self.is_row(member) {
            return Ok(None);
        }
        let x = self.operand(read, &erf.operands[0], DType::F32)?;
        self.code.uses(Part::Erf);
        Ok(Some(format!("one_plus_erf({x})")))
    }
}

#[cfg(test)]
mod tests {
    use bilevel_graph::{Array, DType, Graph, Reference};

    /// The polynomial of the kernels.
    fn coefficients() -> Vec<f32> {
        let text = include_str!("../library/erf.h");
        let inner = text.split_once("P[8] = {").and_then(|(_, rest)| rest.split_once('}')).unwrap().0;
        inner.split(", ").map(|number| number.trim_end_matches('f').parse().unwrap()).collect()
    }

    /// Evaluates the kernel's formula, with an exponential that is off by this many units in the last place.
    fn one_plus_erf(x: f32, coefficients: &[f32], off: i32) -> f32 {
        let t = x.abs();
        let (last, others) = coefficients.split_last().unwrap();
        let p = others.iter().rev().fold(*last, |p, c| p.mul_add(t, *c));
        let tail = (-t * p).exp2();
        let tail =
            if tail == 0.0 || tail == 1.0 { tail } else { f32::from_bits(tail.to_bits().wrapping_add_signed(off)) };
        if x < 0.0 { tail } else { 2.0 - tail }
    }

    #[test]
    fn it_is_off_by_no_more_than_a_sum_that_is_rounded_twice() {
        let coefficients = coefficients();
        assert_eq!(coefficients.len(), 8);
        let points: Vec<f32> = (-60_000..=60_000).map(|i| i as f32 * 1e-4).collect();
        let g = Graph::new();
        let x = g.input("x", [points.len()], DType::F64);
        let wide: Vec<f64> = points.iter().map(|&x| x.into()).collect();
        let wide = Array::from_f64([points.len()], wide).unwrap();
        let exact = Reference::evaluate(&g, &[(x, wide)], &[x.erf() + 1.0]).unwrap()[0].to_f64();
        let unit = f64::from(f32::EPSILON);
        for off in [-2, 0, 2] {
            let most = if off == 0 { 1.25 } else { 2.5 };
            for (&x, exact) in points.iter().zip(&exact) {
                let found = one_plus_erf(x, &coefficients, off);
                assert!((f64::from(found) - exact).abs() <= most * unit, "{x}: {found} for {exact}");
            }
        }
    }

    #[test]
    fn far_away_it_is_0_or_2_and_of_nothing_it_is_1() {
        let coefficients = coefficients();
        let of = |x: f32| one_plus_erf(x, &coefficients, 0);
        assert_eq!([of(0.0), of(-0.0), of(12.0), of(1e30), of(f32::INFINITY)], [1.0, 1.0, 2.0, 2.0, 2.0]);
        assert_eq!([of(-12.0), of(-1e30), of(f32::NEG_INFINITY)], [0.0; 3]);
        assert!(of(f32::NAN).is_nan());
        let tails: Vec<f32> = (0..2000).map(|i| of(i as f32 * -0.01)).collect();
        assert!(tails.is_sorted_by(|a, b| a >= b), "the polynomial rises");
    }
}
