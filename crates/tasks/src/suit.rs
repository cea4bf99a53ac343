//! Settings of a method that suit an inner loop: all methods run the same one.
//!
//! A method is known here by its keys alone, so that one written elsewhere is suited like the library's.

use crate::{InnerLoop, Settings};
use serde_json::Value;

/// The defaults of every method are for so many inner steps.
const USUAL_STEPS: u64 = 100;
/// The lowest temperature of a method that is warm by default: an average over samples is all it has, so they must differ.
const WARM: f64 = 1e-3;

/// Puts the inner loop into the settings of a method, wherever it has the keys for it.
pub(crate) fn suit(method: &mut Settings, inner: &InnerLoop) {
    let number = |method: &Settings, key: &str| method.get(key).and_then(Value::as_f64);
    let whole = |method: &Settings, key: &str| method.get(key).and_then(Value::as_u64);
    method.set("step", inner.step);
    method.set("steps", inner.steps as u64);
    // A chain is burned in and sampled in the proportions of its defaults.
    if let (Some(burn_in), Some(samples)) = (whole(method, "burn_in"), whole(method, "samples")) {
        let scaled = |steps: u64| steps * inner.steps as u64 / USUAL_STEPS;
        method.set("burn_in", scaled(burn_in));
        method.set("samples", (scaled(burn_in + samples) - scaled(burn_in)).max(1));
    }
    // A method that is cold by default takes gradient steps without noise.
    match number(method, "temperature") {
        Some(usual) if usual >= WARM => method.set("temperature", inner.temperature.max(WARM)),
        Some(usual) if usual > 0.0 => method.set("temperature", inner.temperature),
        _ => {}
    }
    for key in ["alpha", "beta"] {
        method.set(key, 1.0 / inner.curvature);
    }
}
