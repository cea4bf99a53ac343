//! The prelude of kernels: the parts of the common device code that they use.

use crate::compile::failure_record;
use bilevel_graph::random::{KEY_STEPS, MULTIPLIERS, ROUNDS, double, single};

/// Parts of the prelude, each with words that identify kernels that use it. A part may use earlier ones.
const PARTS: [(&[&str], &str); 10] = [
    (&["::first<", "::join(", "across<"], include_str!("cu/reduce.cu")),
    (&["argmax_join(", "Placed<"], include_str!("cu/argmax.cu")),
    (&["draw<", "draw_block<"], include_str!("cu/random.cu")),
    (&["one_plus_erf("], include_str!("cu/erf.cu")),
    (&["gather_row<"], include_str!("cu/inline_gather.cu")),
    (&["report(", "has_failed("], include_str!("cu/failure_record.cu")),
    (&["rounded<", "round_to_bf16(", "bf16", "multiply<"], include_str!("cu/bf16.cu")),
    (&["scaled_to_f16(", "unscaled(", "atomic_amax(", "half* "], include_str!("cu/scaled_fp16.cu")),
    (&["multiply<"], include_str!("cu/batched_mma.cu")),
    (&["u32 smem[]"], include_str!("cu/fused_attention.cu")),
];

/// Returns the complete text of some kernels, named `kernel_0`, `kernel_1` and so on. Unused parts are omitted:
/// compiling them takes longer than most kernels.
pub(crate) fn whole(kernels: &[&str]) -> String {
    let mut text = include_str!("cu/base.cu").to_string();
    for (words, part) in PARTS {
        if kernels.iter().any(|kernel| words.iter().any(|word| kernel.contains(word))) {
            if part.contains("ROUNDS") {
                text += &constants();
            }
            if part.contains("NO_ERROR") {
                text += &failure_record::constants();
            }
            text += part;
        }
    }
    for (number, kernel) in kernels.iter().enumerate() {
        let kernel = kernel.replacen(" kernel(", &format!(" kernel_{number}("), 1);
        text += &format!("namespace unit_{number} {{\n{kernel}}}\n");
    }
    text
}

/// Returns the constants of the specified random generator.
fn constants() -> String {
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
