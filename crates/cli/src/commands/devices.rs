//! `bilevel devices`: lists the usable devices, and the missing libraries of the others.

use crate::arguments::Devices;
use crate::errors::Result;
use crate::run::study::side_by_side::cores;
use crate::terminal::readable::{bytes, counted, escaped};
use bilevel::Cpu;
use bilevel_cuda::{Cuda, DeviceInfo, Missing, found_libraries};
use bilevel_graph::Executor;
use serde_json::{Value, json};
use std::io::Write;

/// The devices of this machine.
struct DeviceFound {
    threads: usize,
    free_bytes: Option<u64>,
    libraries: [(Missing, bool); 4],
    /// Its GPUs, or why they cannot be known.
    gpus: std::result::Result<Vec<DeviceInfo>, String>,
}

/// Runs the command.
pub fn devices(arguments: &Devices, out: &mut dyn Write) -> Result<()> {
    let found = DeviceFound {
        threads: cores(),
        free_bytes: Cpu::with_threads(1).free_bytes(),
        libraries: found_libraries(),
        gpus: Cuda::devices().map_err(|error| error.to_string()),
    };
    if arguments.json {
        writeln!(out, "{:#}", found.json())?;
    } else {
        write!(out, "{}", found.text())?;
    }
    Ok(())
}

impl DeviceFound {
    /// The list as text, with one line for each device and library.
    fn text(&self) -> String {
        let free = self.free_bytes.map_or(String::new(), |free| format!(", {} of memory free", bytes(free)));
        let mut lines = vec![("cpu".to_string(), format!("{}{free}", counted(self.threads as u64, "thread")))];
        match &self.gpus {
            Ok(gpus) => lines.extend(gpus.iter().map(|gpu| {
                let DeviceInfo { ordinal, name, architecture, total_bytes } = gpu;
                (
                    format!("cuda:{ordinal}"),
                    format!("{}, sm_{architecture}, {} of memory", escaped(name), bytes(*total_bytes)),
                )
            })),
            // A missing driver is reported below.
            Err(_) if !self.has(Missing::Driver) => {}
            Err(why) => lines.push(("cuda".into(), why.clone())),
        }
        let width =
            ["NVIDIA driver".len()].into_iter().chain(lines.iter().map(|(name, _)| name.len())).max().unwrap_or(0);
        let mut text = String::from("Devices (--device NAME):\n\n");
        for (name, what) in lines {
            text += &format!("  {name:width$}  {what}\n");
        }
        text += "\nRequirements of a GPU:\n\n";
        for (library, found) in self.libraries {
            let what = if found { "found".into() } else { format!("missing: {}", library.sentence()) };
            text += &format!("  {:width$}  {what}\n", name(library));
        }
        let ranks = crate::run::ranks::described().map_or(String::new(), |ranks| format!("{ranks}\n"));
        text + "\n" + &self.verdict() + "\n" + &ranks
    }

    fn has(&self, library: Missing) -> bool {
        self.libraries.contains(&(library, true))
    }

    /// Whether a GPU can be used.
    fn verdict(&self) -> String {
        let missing = self.libraries.iter().filter(|(library, found)| library.is_needed() && !found).count();
        match &self.gpus {
            Ok(gpus) if !gpus.is_empty() && missing == 0 => "A GPU can be used: --device auto uses cuda:0.".into(),
            Ok(gpus) if gpus.is_empty() => "The driver finds no GPU: --device auto uses the CPU.".into(),
            _ => "No GPU can be used: --device auto uses the CPU.".into(),
        }
    }

    fn json(&self) -> Value {
        let library = |(library, found): &(Missing, bool)| {
            let missing = (!found).then(|| library.sentence());
            json!({ "name": name(*library), "found": found, "missing": missing })
        };
        let gpu = |gpu: &DeviceInfo| {
            let DeviceInfo { ordinal, name, architecture, total_bytes } = gpu;
            json!({ "device": format!("cuda:{ordinal}"), "name": name, "kind": format!("sm_{architecture}"), "bytes": total_bytes })
        };
        json!({
            "cpu": { "threads": self.threads, "free_bytes": self.free_bytes },
            "ranks": crate::run::ranks::launch().map(|launch| launch.size),
            "libraries": self.libraries.iter().map(library).collect::<Vec<_>>(),
            "gpus": self.gpus.iter().flatten().map(gpu).collect::<Vec<_>>(),
        })
    }
}

/// The name of a library in the list.
fn name(library: Missing) -> &'static str {
    match library {
        Missing::Driver => "NVIDIA driver",
        Missing::Nvrtc => "NVRTC",
        Missing::CublasLt => "cuBLASLt",
        Missing::Cudnn => "cuDNN",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> DeviceFound {
        let gpu = |ordinal| DeviceInfo {
            ordinal,
            name: "NVIDIA H200".into(),
            architecture: 90,
            total_bytes: 150_000_000_000,
        };
        DeviceFound {
            threads: 16,
            free_bytes: Some(96 << 30),
            libraries: found_libraries().map(|(library, _)| (library, true)),
            gpus: Ok(vec![gpu(0), gpu(1)]),
        }
    }

    #[test]
    fn a_machine_with_two_gpus_has_a_line_for_each() {
        assert_eq!(
            machine().text(),
            "Devices (--device NAME):\n\n  \
               cpu            16 threads, 96.0 GiB of memory free\n  \
               cuda:0         NVIDIA H200, sm_90, 139.7 GiB of memory\n  \
               cuda:1         NVIDIA H200, sm_90, 139.7 GiB of memory\n\n\
             Requirements of a GPU:\n\n  \
               NVIDIA driver  found\n  \
               NVRTC          found\n  \
               cuBLASLt       found\n  cuDNN          found\n\n\
             A GPU can be used: --device auto uses cuda:0.\n"
        );
        assert_eq!(machine().json()["gpus"][1]["device"], "cuda:1");
    }

    #[test]
    fn a_gpu_without_its_libraries_is_listed_with_what_is_missing() {
        let mut found = machine();
        found.libraries[1].1 = false;
        let text = found.text();
        assert!(text.contains("  cuda:0 ") && text.contains("  NVRTC          missing: NVRTC (libnvrtc.so"), "{text}");
        assert!(text.ends_with("\nNo GPU can be used: --device auto uses the CPU.\n"), "{text}");
        found.gpus = Ok(vec![]);
        assert!(found.text().ends_with("\nThe driver finds no GPU: --device auto uses the CPU.\n"));
        found.gpus = Err("the GPU could not be used: unknown error".into());
        assert!(
            found.text().contains("  cuda           the GPU could not be used: unknown error\n"),
            "{}",
            found.text()
        );
    }
}
