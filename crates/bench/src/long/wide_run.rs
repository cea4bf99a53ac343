//! One run of the case wide in a separate process, so that its memory can be measured.

use crate::cases::timed::key;
use crate::cases::wide;
use crate::error::{BenchError, Result};
use crate::timing::peers;
use crate::timing::statistics::median;
use bilevel::checkpoints::Checkpoints;
use bilevel::observers::{Iteration, Observer, Recorder, StopSignal};
use bilevel::{Cpu, State};
use bilevel_graph::Buffer;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hasher};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// Bytes of a state that are hashed at once.
const CHUNK: usize = 16 << 20;

/// The settings of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Numbers of λ, and of θ.
    pub count: usize,
    /// Outer iterations in all.
    pub iterations: u32,
    /// Stops in this one, as Ctrl-C does.
    pub stop: Option<u32>,
    /// Checkpoints go here every fourth iteration and at the end, and the run resumes from an existing one.
    pub folder: Option<PathBuf>,
    /// By hand instead of through the library.
    pub bare: bool,
    /// Threads.
    pub threads: usize,
}

/// The results of a run.
struct Done {
    iterations: u32,
    /// Seconds of each iteration but the first.
    times: Vec<f64>,
    norm: f64,
    /// Before the hash was computed, which takes some memory too.
    peak: Option<u64>,
    hash: u64,
}

/// The report of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Iterations done, those before a resumption included.
    pub iterations: u64,
    /// Milliseconds of an iteration, the first left out; the median. `None` if there was only one.
    pub ms: Option<f64>,
    /// The hash of all bits of λ and θ.
    pub hash: String,
    /// The most memory the process held; `None` if the system does not report it.
    pub peak_bytes: Option<u64>,
}

impl Run {
    /// The run in this process, as one JSON line.
    pub fn print(&self) -> Result<()> {
        let cpu = Cpu::with_threads(self.threads);
        let Done { iterations, mut times, norm, peak, hash } =
            if self.bare { self.by_hand(&cpu)? } else { self.driven(&cpu)? };
        let ms = (!times.is_empty()).then(|| 1e3 * median(&mut times));
        let line = json!({
            "case": "wide", "way": if self.bare { "bare" } else { "bilevel" }, "count": self.count,
            "iterations": iterations, "ms": ms, "norm": norm, "hash": format!("{hash:016x}"), "peak_bytes": peak,
            "peak_arrays": peak.map(|bytes| bytes as f64 / (4 * self.count) as f64),
        });
        say!("{line}");
        Ok(())
    }

    /// The run in another process, with its output.
    pub fn in_a_child(&self) -> Result<Report> {
        let own = std::env::current_exe().map_err(|error| failed(format!("has no name ({error})")))?;
        let mut command = Command::new(own);
        command.args(["wide", "--count", &self.count.to_string(), "--iterations", &self.iterations.to_string()]);
        command.args(["--threads", &self.threads.to_string()]);
        if let Some(stop) = self.stop {
            command.args(["--stop", &stop.to_string()]);
        }
        if let Some(folder) = &self.folder {
            command.arg("--folder").arg(folder);
        }
        if self.bare {
            command.arg("--bare");
        }
        let output = peers::output(&mut command)?;
        if !output.status.success() {
            return Err(peers::failed("a run of its own", &output));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        say!("{}", text.trim_end());
        Report::parse(&text).ok_or_else(|| failed(format!("printed '{}'", text.trim_end())))
    }

    fn by_hand(&self, cpu: &Cpu) -> Result<Done> {
        let mut bare = wide::Bare::new(cpu, self.count)?;
        let (mut times, mut norm) = (vec![], f64::NAN);
        for iteration in 0..self.iterations {
            let start = Instant::now();
            norm = bare.iterate(&key(iteration.into())?)?;
            times.push(start.elapsed().as_secs_f64());
        }
        times.drain(..times.len().min(1));
        Ok(Done { iterations: self.iterations, times, norm, peak: peak_bytes(), hash: hash(bare.state.iter())? })
    }

    fn driven(&self, cpu: &Cpu) -> Result<Done> {
        let (recorder, signal) = (Recorder::new(), StopSignal::new());
        let mut driver = wide::driver(self.count, cpu)?.iterations(self.iterations).observe(recorder.clone());
        if let Some(folder) = &self.folder {
            driver = driver.checkpoints(Checkpoints::new(folder).every(4).resume(true));
        }
        if let Some(stop) = self.stop {
            driver = driver.observe(StopAt(stop, signal.clone()));
        }
        let outcome = driver.stop_signal(signal).run()?;
        let ends: Vec<f64> = recorder.iterations().iter().map(|i| i.elapsed.as_secs_f64()).collect();
        let times = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let norm = outcome.last.map_or(f64::NAN, |last| last.hypergradient_norm);
        let state = outcome.state.lambda.iter().chain(outcome.state.theta.iter());
        Ok(Done { iterations: outcome.iterations, times, norm, peak: peak_bytes(), hash: hash(state)? })
    }
}

impl Report {
    fn parse(text: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(text.trim()).ok()?;
        Some(Report {
            iterations: line["iterations"].as_u64()?,
            ms: line["ms"].as_f64(),
            hash: line["hash"].as_str()?.into(),
            peak_bytes: line["peak_bytes"].as_u64(),
        })
    }
}

/// Requests a stop in an iteration, as Ctrl-C does.
struct StopAt(u32, StopSignal);

impl Observer for StopAt {
    fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
        if iteration.number == self.0 {
            self.1.stop();
        }
        ControlFlow::Continue(())
    }
}

/// The hash of all bits of these buffers, chunk by chunk.
fn hash<'b>(buffers: impl Iterator<Item = &'b Buffer>) -> Result<u64> {
    let (mut hasher, mut chunk) = (DefaultHasher::new(), vec![0; CHUNK]);
    for buffer in buffers {
        let bytes = buffer.byte_count();
        for first in (0..bytes).step_by(CHUNK) {
            let part = &mut chunk[..CHUNK.min(bytes - first)];
            buffer.read_part(first, part)?;
            hasher.write(part);
        }
    }
    Ok(hasher.finish())
}

/// The peak memory of this process so far, if the system reports it.
pub fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn failed(what: String) -> BenchError {
    BenchError::Wrong { case: "wide".into(), what: format!("a run in a process of its own {what}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_a_run_prints_reads_back() {
        let line = r#"{"case":"wide","iterations":5,"ms":1.5,"hash":"00ff","peak_bytes":null,"peak_arrays":null}"#;
        let expected = Report { iterations: 5, ms: Some(1.5), hash: "00ff".into(), peak_bytes: None };
        assert_eq!(Report::parse(line), Some(expected));
        assert_eq!(Report::parse("no"), None);
    }

    #[test]
    fn a_run_by_hand_and_one_that_is_resumed_do_their_work() {
        let folder = std::env::temp_dir().join(format!("bilevel-bench-wide-{}", std::process::id()));
        let cpu = Cpu::with_threads(1);
        let run = Run { count: 1000, iterations: 6, stop: None, folder: None, bare: false, threads: 1 };
        let alone = run.driven(&cpu).unwrap();
        assert!(alone.iterations == 6 && alone.times.len() == 5 && alone.norm > 0.0);
        let stopped = Run { stop: Some(3), folder: Some(folder.clone()), ..run.clone() };
        assert_eq!(stopped.driven(&cpu).unwrap().iterations, 3);
        let resumed = Run { folder: Some(folder.clone()), ..run.clone() };
        assert_eq!(resumed.driven(&cpu).unwrap().hash, alone.hash);
        std::fs::remove_dir_all(folder).unwrap();
        // Other draws, the same problem.
        let by_hand = Run { bare: true, ..run }.by_hand(&cpu).unwrap();
        assert!((by_hand.norm / alone.norm - 1.0).abs() < 1e-3, "{} and {}", by_hand.norm, alone.norm);
    }
}
