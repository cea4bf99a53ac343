//! Products whose operands are rounded: every kind of product on inputs, where it is known which bits go in, and random
//! programs, where it is not.

use super::{Case, primitives};
use crate::{DType, Op, Precision, Result};

/// A rounded operand that another executor computes one bit otherwise may be rounded the other way, which is two units; and
/// hardware that drops digits instead of rounding is off by two units for each of two operands. Both then grow as the
/// derivatives amplify them.
const UNITS: f64 = 8.0;

impl Case {
    /// The same case with its products and convolutions in this precision, and no more exact than that where results are
    /// not exact to the bit.
    ///
    /// ```
    /// use bilevel_graph::conformance::{Size, random_program};
    /// use bilevel_graph::{DType, Graph, Precision, Reference};
    /// let case = random_program(1, &Graph::new(), DType::F32, Size::small)?.in_precision(Precision::Bf16);
    /// case.check(&Reference)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_precision(self, precision: Precision) -> Case {
        let near = UNITS * precision.unit();
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

/// Every kind of product and convolution of inputs in this precision. The bits that are multiplied are known, so what comes
/// out of a product in `Bf16` is as near to the reference as in full precision, and nearer than rounding moves it; for
/// `Tf32` there is room for hardware that drops digits.
///
/// ```
/// use bilevel_graph::{Precision, Reference, conformance};
/// for case in conformance::rounded_products(Precision::Bf16)? {
///     case.check(&Reference)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rounded_products(precision: Precision) -> Result<Vec<Case>> {
    let cases = primitives(DType::F32)?.into_iter().filter(Case::has_products);
    let rounded = cases.map(|case| {
        let tolerances = case.tolerances.clone();
        let rounded = case.in_precision(precision);
        if precision == Precision::Tf32 { rounded } else { Case { tolerances, ..rounded } }
    });
    Ok(rounded.collect())
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
