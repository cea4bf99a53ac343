//! Where a run happens: on the processor or on a GPU, chosen when the command runs.

use crate::errors::{CliError, Result};
use bilevel::Cpu;
use bilevel_cuda::Cuda;
use bilevel_graph::{Buffer, Executor, Meta, Program, Runnable};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// A device, as `--device` and the key `device` name it.
///
/// ```
/// use bilevel_cli::device::Device;
/// assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
/// assert_eq!(Device::Cuda(1).to_string(), "cuda:1");
/// let error = "gpu".parse::<Device>().unwrap_err();
/// assert_eq!(error, "'gpu' is no device; it is cpu, cuda, cuda:N for the GPU with number N, or auto");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// The NVIDIA GPU with this number.
    Cuda(usize),
    /// The first GPU where it can be used, else the processor.
    Auto,
}

/// What a schema allows.
pub const PATTERN: &str = "^(cpu|cuda|cuda:[0-9]{1,4}|auto)$";

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(number) => write!(f, "cuda:{number}"),
            Device::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        // At most four digits and no sign, as the schema has it.
        let number = |digits: &str| match digits.len() {
            1..=4 if digits.bytes().all(|digit| digit.is_ascii_digit()) => digits.parse().ok(),
            _ => None,
        };
        let known = match name {
            "cpu" => Some(Device::Cpu),
            "cuda" => Some(Device::Cuda(0)),
            "auto" => Some(Device::Auto),
            _ => name.strip_prefix("cuda:").and_then(number).map(Device::Cuda),
        };
        known
            .ok_or_else(|| format!("'{name}' is no device; it is cpu, cuda, cuda:N for the GPU with number N, or auto"))
    }
}

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Device {
    /// What `--device` says, where it was given.
    pub fn asked(argument: Option<&str>) -> Result<Option<Self>> {
        let device = argument.map(str::parse).transpose();
        device.map_err(|reason: String| CliError::Usage(format!("--device: {reason}")))
    }

    /// The device itself, known to be usable: `auto` is decided, and what was decided is said on the error output. An error
    /// says what is missing.
    pub fn settled(self, quiet: bool) -> Result<Self> {
        let (device, why) = match self {
            Device::Cpu => return Ok(self),
            Device::Cuda(number) => return gpu(number).map(|_| self),
            Device::Auto => match gpu(0) {
                Ok(gpu) => (Device::Cuda(0), gpu.info().name),
                Err(error) => (Device::Cpu, error.to_string()),
            },
        };
        if !quiet {
            crate::complain(&format!("--device auto is {device} here: {why}"));
        }
        Ok(device)
    }

    /// Its executor; so many threads on the processor, 0 for one for each core.
    pub fn executor(self, threads: usize) -> Result<AnyExecutor> {
        match self.settled(true)? {
            Device::Cuda(number) => gpu(number).map(AnyExecutor::Cuda),
            _ if threads == 0 => Ok(AnyExecutor::Cpu(Cpu::new())),
            _ => Ok(AnyExecutor::Cpu(Cpu::with_threads(threads))),
        }
    }
}

/// The GPU with this number. It is opened once and stays open, so that kernels that were loaded can be used again.
fn gpu(number: usize) -> Result<Cuda> {
    static OPEN: Mutex<Option<HashMap<usize, Cuda>>> = Mutex::new(None);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_default();
    if let Some(gpu) = open.get(&number) {
        return Ok(gpu.clone());
    }
    let gpu = Cuda::new(number)?;
    open.insert(number, gpu.clone());
    Ok(gpu)
}

/// The executor of a device.
#[derive(Clone)]
pub enum AnyExecutor {
    /// The processor's.
    Cpu(Cpu),
    /// A GPU's.
    Cuda(Cuda),
}

impl AnyExecutor {
    fn inner(&self) -> &dyn Executor {
        match self {
            AnyExecutor::Cpu(cpu) => cpu,
            AnyExecutor::Cuda(cuda) => cuda,
        }
    }
}

impl Executor for AnyExecutor {
    fn compile(&self, program: &Program) -> bilevel_graph::Result<Box<dyn Runnable>> {
        self.inner().compile(program)
    }

    fn buffer(&self, meta: &Meta) -> bilevel_graph::Result<Buffer> {
        self.inner().buffer(meta)
    }

    fn share(&self) -> Arc<dyn Executor> {
        self.inner().share()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner().free_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_read_as_it_is_written_and_nothing_else_is_one() {
        for device in [Device::Cpu, Device::Cuda(0), Device::Cuda(9999), Device::Auto] {
            assert_eq!(device.to_string().parse(), Ok(device));
            let json = serde_json::to_string(&device).unwrap();
            assert_eq!(json, format!("\"{device}\""));
            assert_eq!(serde_json::from_str::<Device>(&json).unwrap(), device);
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        assert_eq!("cuda:007".parse(), Ok(Device::Cuda(7)));
        for other in
            ["", "gpu", "CPU", " cpu", "cuda:", "cuda:-1", "cuda:+1", "cuda:1.0", "cuda:10000", "cuda0", "cuda:x"]
        {
            let error = other.parse::<Device>().unwrap_err();
            assert!(error.starts_with(&format!("'{other}' is no device; ")), "{error}");
        }
    }

    #[test]
    fn auto_is_a_device_that_can_be_used() {
        let device = Device::Auto.settled(true).unwrap();
        assert_ne!(device, Device::Auto);
        assert_eq!(device == Device::Cuda(0), Cuda::new(0).is_ok());
        Device::Auto.executor(1).unwrap();
    }

    #[test]
    fn a_gpu_that_is_not_there_is_refused_in_one_sentence_with_code_2() {
        let Err(error) = Device::Cuda(4096).executor(1) else { panic!("there is a GPU 4096") };
        assert_eq!(error.exit_code(), crate::errors::BAD_INPUT);
        assert!(error.to_string().starts_with("there is no "), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}
