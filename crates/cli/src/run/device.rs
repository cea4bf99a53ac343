//! The executor of a device, opened when the command runs.

use crate::errors::{CliError, Result};
use crate::run::{gpu, ranks};
use bilevel::Cpu;
use bilevel_graph::Executor;
use bilevel_run::Device;
use std::sync::Arc;

/// The device of `--device`, if given.
pub fn asked(argument: Option<&str>) -> Result<Option<Device>> {
    let device = argument.map(str::parse).transpose();
    device.map_err(|reason: String| CliError::Usage(format!("--device: {reason}")))
}

/// The device itself, known to be usable: `auto` is resolved, and the choice is printed to standard error. An error
/// names the missing library.
pub fn settled(device: Device, quiet: bool) -> Result<Device> {
    let (found, why) = match device {
        Device::Cpu => return Ok(device),
        Device::Cuda(number) => return gpu::executor(number).map(|_| device),
        Device::Auto => match gpu::name(0) {
            Ok(name) => (Device::Cuda(0), name),
            Err(error) => (Device::Cpu, error.to_string()),
        },
    };
    if !quiet {
        crate::complain(&format!("--device auto is {found} here: {why}"));
    }
    Ok(found)
}

/// Its executor, with this many threads on the CPU; 0 is one for each core of this rank.
pub fn executor(device: Device, threads: usize) -> Result<Arc<dyn Executor>> {
    Ok(match settled(device, true)? {
        Device::Cuda(number) => gpu::executor(number)?,
        _ if threads == 0 => Arc::new(Cpu::with_threads(ranks::threads())),
        _ => Arc::new(Cpu::with_threads(threads)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_a_device_that_can_be_used() {
        let device = settled(Device::Auto, true).unwrap();
        assert_ne!(device, Device::Auto);
        assert_eq!(device == Device::Cuda(0), gpu::executor(0).is_ok());
        executor(Device::Auto, 1).unwrap();
    }

    #[test]
    fn a_gpu_that_is_not_there_is_refused_in_one_sentence_with_code_2() {
        let Err(error) = executor(Device::Cuda(4096), 1) else { panic!("there is a GPU 4096") };
        assert_eq!(error.exit_code(), crate::errors::BAD_INPUT);
        assert!(error.to_string().starts_with("there is no "), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}
