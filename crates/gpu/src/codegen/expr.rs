//! Elementwise functions as C expressions.

use crate::codegen::kernel::{Code, c_type};
use crate::codegen::parts::Part;
use bilevel_graph::{BinaryOp, Precision, UnaryOp};
use bilevel_plan::{Elementwise, Pow2Scale, ScaleTerm};

/// Returns the type and expression of the part of a function that is the same for all elements; `None` if there is
/// none.
pub fn once(code: &mut Code, function: Elementwise, x: &[String]) -> Option<(&'static str, String)> {
    if matches!(function, Elementwise::ScaleToF16(_) | Elementwise::Unscale(_)) {
        code.uses(Part::ScaledF16);
    }
    match function {
        Elementwise::ScaleToF16(power) => Some(("float", format!("f16_scale({})", exponent(power, &x[1..])))),
        Elementwise::Unscale([a, b]) => {
            let (of_a, of_b) = x[1..].split_at(a.factors());
            Some(("UnscaleFactors", format!("unscale_factors({}, {})", exponent(a, of_a), exponent(b, of_b))))
        }
        _ => None,
    }
}

/// Returns the C expression of a function of one element, and of its invariant part if there is one.
pub fn formula(code: &mut Code, function: Elementwise, x: &[String]) -> String {
    if matches!(function, Elementwise::Unary(UnaryOp::Digamma) | Elementwise::Binary(BinaryOp::Polygamma)) {
        code.uses(Part::Gamma);
    }
    match function {
        Elementwise::Copy => x[0].clone(),
        Elementwise::Unary(op) => format!("op_{}({})", op.name(), x[0]),
        Elementwise::Binary(op) => format!("op_{}({}, {})", op.name(), x[0], x[1]),
        Elementwise::Select => format!("{} != 0 ? {} : {}", x[0], x[1], x[2]),
        Elementwise::Convert(to) => format!("To<{}>::of({})", c_type(to), x[0]),
        Elementwise::Round(precision) => rounded(code, precision, &x[0]),
        Elementwise::ScaleToF16(_) => format!("scaled_to_f16({}, {})", x[0], x[1]),
        Elementwise::Unscale(_) => format!("unscaled({}, {})", x[0], x[1]),
        Elementwise::Random(..) => String::new(),
    }
}

/// Returns the expression of a scale's exponent from its factors.
fn exponent(power: Pow2Scale, mut factors: &[String]) -> String {
    let terms = power.terms().map(|ScaleTerm { shift, factors: count }| {
        let (own, others) = factors.split_at(count);
        factors = others;
        let exponents = own.iter().map(|factor| format!("exponent({factor})"));
        let shift = (shift != 0 || own.is_empty()).then(|| shift.to_string());
        exponents.chain(shift).collect::<Vec<_>>().join(" + ")
    });
    terms.reduce(|most, term| format!("max({most}, {term})")).unwrap_or_default()
}

/// Returns the expression of a number rounded to this precision.
pub fn rounded(code: &mut Code, precision: Precision, x: &str) -> String {
    if precision != Precision::Full {
        code.uses(Part::Bf16);
    }
    match precision {
        Precision::Full => x.to_string(),
        Precision::Tf32 => format!("rounded<13>({x})"),
        Precision::Bf16 => format!("rounded<16>({x})"),
    }
}
