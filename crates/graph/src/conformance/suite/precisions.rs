//! Products that round: every kind of product on inputs with known bits, and random programs.

use crate::conformance::Case;
use crate::conformance::suite::attention::{attentions, exact_strips};
use crate::conformance::suite::heads::heads;
use crate::conformance::suite::learned::learned_weights;
use crate::conformance::suite::primitives::primitives;
use crate::conformance::suite::readers::readers;
use crate::{Array, DType, Op, Precision, Result};

/// Units that results may be off by. Hardware that drops the digits of a tf32 operand instead of rounding it is off by
/// two units for each of two operands, of all terms of a sum.
pub(crate) const UNITS: f64 = 8.0;

const COARSEST: Precision = Precision::Bf16;

impl Case {
    /// The same case with its products and convolutions in this precision. Results that are not exact to the bit may
    /// differ by the rounding of the coarsest precision, plus the change of the results by it, which is large if
    /// derivatives amplify it. An operand that another executor computes one bit differently may be rounded the other
    /// way, and truncation causes errors of one sign, which add up. [`rounded_products`] have tighter limits.
    ///
    /// ```
    /// use bilevel_graph::conformance::{Size, random_program};
    /// use bilevel_graph::{DType, Graph, Precision, Reference};
    /// let case = random_program(1, &Graph::new(), DType::F32, Size::small)?.in_precision(Precision::Bf16)?;
    /// case.check(&Reference)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_precision(self, precision: Precision) -> Result<Case> {
        if precision == Precision::Full {
            return Ok(self.rounded(precision, 0.0));
        }
        let full = self.expected()?;
        let coarsest = self.clone().rounded(COARSEST, 0.0).expected()?;
        let mut case = self.rounded(precision, UNITS * COARSEST.unit());
        for ((tolerance, full), coarsest) in case.tolerances.iter_mut().zip(&full).zip(&coarsest) {
            if *tolerance > 0.0 {
                *tolerance += moved(full, coarsest);
            }
        }
        Ok(case)
    }

    pub(crate) fn rounded(self, precision: Precision, near: f64) -> Case {
        Case {
            name: format!("{}, products in {precision}", self.name),
            program: self.program.with_precision(precision),
            tolerances: self.tolerances.iter().map(|&t| if t == 0.0 { t } else { t.max(near) }).collect(),
            ..self
        }
    }

    fn has_products(&self) -> bool {
        self.program.nodes.iter().any(|node| matches!(node.op, Op::Dot(..) | Op::Conv(..)))
    }
}

/// The largest difference of two arrays, relative to the largest number of the second (at least 1), as tolerances are.
fn moved(from: &Array, to: &Array) -> f64 {
    let (from, to) = (from.to_f64(), to.to_f64());
    let largest = |numbers: &mut dyn Iterator<Item = f64>| numbers.filter(|x| x.is_finite()).fold(0.0, f64::max);
    let apart = largest(&mut from.iter().zip(&to).map(|(a, b)| (a - b).abs()));
    apart / largest(&mut to.iter().map(|x| x.abs())).max(1.0)
}

/// Every kind of product and convolution of inputs in this precision, and products of many small matrices. For `Tf32`
/// there is room for hardware that truncates. Inputs for `Bf16` have one digit more than it keeps, and all sums of
/// their products are exact in 32 bits, in any order, so the resulting bits are also known. There all other operations
/// read such results.
///
/// ```
/// use bilevel_graph::{Precision, Reference, conformance};
/// for case in conformance::rounded_products(Precision::Bf16)? {
///     case.check(&Reference)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rounded_products(precision: Precision) -> Result<Vec<Case>> {
    let near = if precision == Precision::Tf32 { UNITS * precision.unit() } else { 0.0 };
    let mut cases = primitives(DType::F32)?;
    cases.retain(Case::has_products);
    cases.extend(heads(DType::F32)?);
    if !precision.rounds_results() {
        cases.extend(attentions()?);
        return Ok(cases.into_iter().map(|case| case.rounded(precision, near)).collect());
    }
    cases.extend(exact_strips()?);
    cases.extend(learned_weights()?);
    cases.iter_mut().for_each(|case| case.tolerances.fill(0.0));
    cases.extend(readers()?);
    cases.into_iter().map(|case| case.rounded(precision, near).on_a_grid()).collect()
}

/// Steps of the grid between whole numbers: a number below 1 has nine digits at most, and a sum of products below 64 has 24.
const GRID: f64 = 512.0;

impl Case {
    /// The same case for inputs on a grid of nine digits, the products of which are known to the bit.
    fn on_a_grid(mut self) -> Result<Case> {
        for (_, input) in self.inputs.iter_mut().filter(|(_, input)| input.dtype() == DType::F32) {
            let values: Vec<f64> = input.to_f64().iter().map(|x| (x * GRID).round() / GRID).collect();
            *input = Array::from_values(input.shape(), &values, DType::F32)?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::agree;

    #[test]
    fn an_executor_that_does_not_round_operands_or_results_is_found_out() {
        let rounded = |array: &Array| {
            let values: Vec<f64> = array.to_f64().iter().map(|&x| f64::from(COARSEST.round(x as f32))).collect();
            Array::from_values(array.shape(), &values, DType::F32).unwrap()
        };
        for case in rounded_products(Precision::Bf16).unwrap() {
            let right = case.expected().unwrap();
            let is_wrong = |found: &[Array]| agree(found, &right, &case.tolerances).is_err();
            let mut exact = Case { program: case.program.clone().with_precision(Precision::Full), ..case.clone() };
            let found = exact.expected().unwrap();
            assert!(is_wrong(&found), "{}", case.name);
            let found: Vec<Array> = found.iter().map(rounded).collect();
            assert!(is_wrong(&found), "{}: operands are not rounded", case.name);
            let floats = exact.inputs.iter_mut().filter(|(_, input)| input.dtype() == DType::F32);
            floats.for_each(|(_, input)| *input = rounded(input));
            assert!(is_wrong(&exact.expected().unwrap()), "{}: results are not rounded", case.name);
        }
    }
}
