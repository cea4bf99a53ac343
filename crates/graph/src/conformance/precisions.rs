//! Products whose operands are rounded: every kind of product on inputs, where it is known which bits go in, and random
//! programs, where it is not.

use super::heads::heads;
use super::{Case, primitives};
use crate::{Array, DType, Op, Precision, Result};

/// Units that results may be off by. Hardware that drops the digits of a tf32 operand instead of rounding it is off by
/// two units for each of two operands, of all terms of a sum.
const UNITS: f64 = 8.0;

const COARSEST: Precision = Precision::Bf16;

impl Case {
    /// The same case with its products and convolutions in this precision. Results that are not exact to the bit may be
    /// off by what the coarsest precision is off by, and as much again as it moves them, which is much where
    /// derivatives amplify it: an operand that another executor computes one bit otherwise may be rounded the other
    /// way, and digits that are dropped make errors of one sign, which add up. [`rounded_products`] are held to more.
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

    fn rounded(self, precision: Precision, near: f64) -> Case {
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

/// Every kind of product and convolution of inputs in this precision, and products of many small matrices. The bits that are multiplied are known, so what
/// comes out of a product in `Bf16` is as near to the reference as in full precision, and nearer than rounding moves
/// it; for `Tf32` there is room for hardware that drops digits.
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
    let cases = primitives(DType::F32)?.into_iter().filter(Case::has_products).chain(heads(DType::F32)?);
    Ok(cases.map(|case| case.rounded(precision, near)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::agree;

    #[test]
    fn an_executor_that_does_not_round_is_found_out() {
        for case in rounded_products(Precision::Bf16).unwrap() {
            let exact = Case { program: case.program.clone().with_precision(Precision::Full), ..case.clone() };
            let found = exact.expected().unwrap();
            assert!(agree(&found, &case.expected().unwrap(), &case.tolerances).is_err(), "{}", case.name);
        }
    }
}
