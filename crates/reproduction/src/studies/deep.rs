//! What the studies of networks share.

use bilevel::Precision;
use bilevel_run::Device;

/// Products are rounded where that makes them faster.
pub(super) fn precision_on(device: Device) -> Precision {
    if device == Device::Cpu { Precision::Full } else { Precision::Tf32 }
}
