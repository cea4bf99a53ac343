//! Elementwise functions as C expressions.

use crate::codegen::kernel::c_type;
use bilevel_graph::{BinaryOp, Precision, UnaryOp};
use bilevel_plan::{Elementwise, Pow2Scale, ScaleTerm};

/// Returns the type and expression of the part of a function that is the same for all elements; `None` if there is
/// none.
pub(crate) fn once(function: Elementwise, x: &[String]) -> Option<(&'static str, String)> {
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
pub(crate) fn formula(function: Elementwise, x: &[String]) -> String {
    match function {
        Elementwise::Copy => x[0].clone(),
        Elementwise::Unary(op) => format!("{}({})", unary(op), x[0]),
        Elementwise::Binary(op) => format!("{}({}, {})", binary(op), x[0], x[1]),
        Elementwise::Select => format!("{} != 0 ? {} : {}", x[0], x[1], x[2]),
        Elementwise::Convert(to) => format!("To<{}>::of({})", c_type(to), x[0]),
        Elementwise::Round(precision) => rounded(precision, &x[0]),
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
pub(crate) fn rounded(precision: Precision, x: &str) -> String {
    match precision {
        Precision::Full => x.to_string(),
        Precision::Tf32 => format!("rounded<13>({x})"),
        Precision::Bf16 => format!("rounded<16>({x})"),
    }
}

fn unary(op: UnaryOp) -> &'static str {
    match op {
        UnaryOp::Neg => "op_neg",
        UnaryOp::Abs => "op_abs",
        UnaryOp::Sign => "op_sign",
        UnaryOp::Floor => "op_floor",
        UnaryOp::Recip => "op_recip",
        UnaryOp::Sqrt => "op_sqrt",
        UnaryOp::Exp => "op_exp",
        UnaryOp::Expm1 => "op_expm1",
        UnaryOp::Log => "op_log",
        UnaryOp::Log1p => "op_log1p",
        UnaryOp::Sin => "op_sin",
        UnaryOp::Cos => "op_cos",
        UnaryOp::Tanh => "op_tanh",
        UnaryOp::Sigmoid => "op_sigmoid",
        UnaryOp::Erf => "op_erf",
    }
}

fn binary(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "op_add",
        BinaryOp::Sub => "op_sub",
        BinaryOp::Mul => "op_mul",
        BinaryOp::Div => "op_div",
        BinaryOp::Max => "op_max",
        BinaryOp::Min => "op_min",
        BinaryOp::Pow => "op_pow",
        BinaryOp::Eq => "op_eq",
        BinaryOp::Ne => "op_ne",
        BinaryOp::Lt => "op_lt",
        BinaryOp::Le => "op_le",
    }
}
