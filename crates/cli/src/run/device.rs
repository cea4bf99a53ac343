//! The executor of a device, opened when the command runs.

use crate::errors::{CliError, Result};
use bilevel::Cpu;
use bilevel_cuda::Cuda;
use bilevel_graph::Executor;
use bilevel_tasks::Device;
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

/// What `--device` says, where it was given.
pub fn asked(argument: Option<&str>) -> Result<Option<Device>> {
    let device = argument.map(str::parse).transpose();
    device.map_err(|reason: String| CliError::Usage(format!("--device: {reason}")))
}

/// The device itself, known to be usable: `auto` is resolved, and the choice is printed to standard error. An error
/// says what is missing.
pub fn settled(device: Device, quiet: bool) -> Result<Device> {
    let (found, why) = match device {
        Device::Cpu => return Ok(device),
        Device::Cuda(number) => return gpu(number).map(|_| device),
        Device::Auto => match gpu(0) {
            Ok(gpu) => (Device::Cuda(0), gpu.info().name),
            Err(error) => (Device::Cpu, error.to_string()),
        },
    };
    if !quiet {
        crate::complain(&format!("--device auto is {found} here: {why}"));
    }
    Ok(found)
}

/// Its executor; this many threads on the processor, 0 for one for each core.
pub fn executor(device: Device, threads: usize) -> Result<Arc<dyn Executor>> {
    Ok(match settled(device, true)? {
        Device::Cuda(number) => Arc::new(gpu(number)?),
        _ if threads == 0 => Arc::new(Cpu::new()),
        _ => Arc::new(Cpu::with_threads(threads)),
    })
}

/// GPUs that were opened and that no thread has now. They stay open, so that kernels that were loaded can be used again.
static IDLE: Mutex<Vec<(usize, Cuda)>> = Mutex::new(vec![]);

/// The GPUs of one thread, which go back to [`IDLE`] when it ends.
#[derive(Default)]
struct Held(HashMap<usize, Cuda>);

impl Drop for Held {
    fn drop(&mut self) {
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).extend(self.0.drain());
    }
}

thread_local! {
    static HELD: RefCell<Held> = RefCell::default();
}

/// The GPU with this number, in a queue of this thread's own: what several threads ask of it runs side by side.
fn gpu(number: usize) -> Result<Cuda> {
    let idle = || {
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = idle.iter().position(|(other, _)| *other == number)?;
        Some(idle.swap_remove(place).1)
    };
    HELD.with_borrow_mut(|held| match held.0.entry(number) {
        Entry::Occupied(held) => Ok(held.get().clone()),
        Entry::Vacant(place) => Ok(place.insert(idle().map_or_else(|| Cuda::new(number), Ok)?).clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_a_device_that_can_be_used() {
        let device = settled(Device::Auto, true).unwrap();
        assert_ne!(device, Device::Auto);
        assert_eq!(device == Device::Cuda(0), Cuda::new(0).is_ok());
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
