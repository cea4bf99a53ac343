//! The device of a run, by name: no executor is opened here.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// A device, as `--device` and the key `device` name it.
///
/// ```
/// use bilevel_run::Device;
/// assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
/// assert_eq!(Device::Cuda(1).to_string(), "cuda:1");
/// let error = "gpu".parse::<Device>().unwrap_err();
/// assert_eq!(error, "'gpu' is not a device; use cpu, cuda, cuda:N for GPU number N, or auto");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// The NVIDIA GPU with this number.
    Cuda(usize),
    /// The first usable GPU, otherwise the CPU.
    Auto,
}

/// The pattern of a schema.
pub const DEVICE_PATTERN: &str = "^(cpu|cuda|cuda:[0-9]{1,4}|auto)$";

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
        // At most four digits and no sign, as in the schema.
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
        known.ok_or_else(|| format!("'{name}' is not a device; use cpu, cuda, cuda:N for GPU number N, or auto"))
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
            assert!(error.starts_with(&format!("'{other}' is not a device; ")), "{error}");
        }
    }
}
