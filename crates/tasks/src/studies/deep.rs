//! What the studies of networks share.

use crate::Device;
use crate::statistics::median;
use bilevel::{Iteration, Precision};

/// Products are rounded where that makes them faster.
pub(super) fn precision_on(device: Device) -> Precision {
    if device == Device::Cpu { Precision::Full } else { Precision::Tf32 }
}

/// The median time of an iteration in milliseconds, those in which something was measured aside; nothing for fewer than two.
pub(super) fn milliseconds(iterations: &[Iteration]) -> Option<f64> {
    let pairs = iterations.windows(2).filter(|pair| pair[1].measures.is_empty() && pair[0].measures.is_empty());
    let times: Vec<f64> = pairs.map(|pair| 1e3 * (pair[1].elapsed - pair[0].elapsed).as_secs_f64()).collect();
    (!times.is_empty()).then(|| median(&times))
}
