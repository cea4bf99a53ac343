//! Shared parts of the studies of networks.

use bilevel::Precision;
use bilevel_run::Device;

/// Products are rounded on devices on which that makes them faster.
pub(super) fn precision_on(device: Device) -> Precision {
    if device == Device::Cpu { Precision::Full } else { Precision::Tf32 }
}
