//! The device library: the functions that kernels call, in the C++ that GPU languages share.
//!
//! A language defines the following before it, as macros or functions:
//!
//!   `DEVICE`, `DEVICE_CALL`          before a function on the GPU that is inlined, or called
//!   `SHARED`, `BARRIER()`            memory of a block, and the barrier of its threads
//!   `THREAD`                         the index of a thread in its block
//!   `SHUFFLE_XOR(x, d)`              x of the thread of the same warp whose index differs by the bits d
//!   `ATOMIC_MIN(p, x)`               the atomic minimum of 64-bit words
//!   `bits_of(x)`, `float_of_bits(u)`, `double_of_bits(u)`   the bits of a float, and back
//!   `mul_rn` and the like            arithmetic that is never contracted
//!   `UPPER_PRODUCT(a, b)`            the upper 32 bits of a product
//!   `int_toward_zero(x)`             the nearest integer toward zero, saturating
//!   `exp2_approx(x)`                 2ˣ to about 2 units in the last place
//!   `NATIVE_MAX`, `NATIVE_BF16_PAIR` optional: instructions for a maximum that keeps NaN, and for rounding to bf16

use crate::codegen::parts::Part;
use crate::compile::failure_record;
use bilevel_graph::random::{KEY_STEPS, MULTIPLIERS, ROUNDS, double, single};

/// The types and functions that every kernel may use.
pub const BASE: &str = include_str!("library/base.h");

/// Returns the definitions of a part; `None` if only the language can define it.
pub fn definitions(part: Part) -> Option<String> {
    Some(match part {
        Part::Reduce => include_str!("library/reduce.h").into(),
        Part::Argmax => include_str!("library/argmax.h").into(),
        Part::Random => random_constants() + include_str!("library/random.h"),
        Part::Erf => include_str!("library/erf.h").into(),
        Part::Gamma => include_str!("library/gamma.h").into(),
        Part::BlockOps => include_str!("library/block_ops.h").into(),
        Part::InlineGather => include_str!("library/inline_gather.h").into(),
        Part::FailureRecord => failure_record::constants() + include_str!("library/failure_record.h"),
        Part::Bf16 => include_str!("library/bf16.h").into(),
        Part::ScaledF16 | Part::BatchedMma | Part::FusedAttention => return None,
    })
}

/// Returns the constants of the specified random generator.
fn random_constants() -> String {
    let singles = |values: &[f32]| list(values.iter().map(|&v| f32_literal(v)));
    let doubles = |values: &[f64]| list(values.iter().map(|&v| f64_literal(v)));
    let constants = [
        ("ROUNDS", ROUNDS.to_string()),
        ("MULTIPLIER_0", format!("{}u", MULTIPLIERS[0])),
        ("MULTIPLIER_1", format!("{}u", MULTIPLIERS[1])),
        ("KEY_STEP_0", format!("{}u", KEY_STEPS[0])),
        ("KEY_STEP_1", format!("{}u", KEY_STEPS[1])),
        ("LOG_F", singles(&single::LOG)),
        ("SIN_F", singles(&single::SIN)),
        ("COS_F", singles(&single::COS)),
        ("LN2_HEAD_F", f32_literal(single::LN2[0])),
        ("LN2_TAIL_F", f32_literal(single::LN2[1])),
        ("BORDER_F", format!("{}u", std::f32::consts::FRAC_1_SQRT_2.to_bits())),
        ("LOG_D", doubles(&double::LOG)),
        ("SIN_D", doubles(&double::SIN)),
        ("COS_D", doubles(&double::COS)),
        ("LN2_HEAD_D", f64_literal(double::LN2[0])),
        ("LN2_TAIL_D", f64_literal(double::LN2[1])),
        ("BORDER_D", format!("{}ull", std::f64::consts::FRAC_1_SQRT_2.to_bits())),
    ];
    constants.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect()
}

fn list(values: impl Iterator<Item = String>) -> String {
    format!("{{{}}}", values.collect::<Vec<_>>().join(", "))
}

/// Enough digits for the same bits.
fn f32_literal(value: f32) -> String {
    format!("{value:e}f")
}

fn f64_literal(value: f64) -> String {
    format!("{value:e}")
}
