//! Benchmarks of candidates on separate memory, serialised with the programs of the GPU.

use crate::runtime::capture::Captured;
use crate::runtime::device::{BRANCH, Device, DeviceMemory, Scratch, failed};
use crate::runtime::events::Events;
use crate::target::ALIGN;
use bilevel_graph::Result;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

/// The initial value of every byte. GPUs run faster on zeros than on real data; these bytes are small normal numbers in
/// every type: 0.0115 in f32 and bf16, and 1.5e-18 in f64.
const FILL_BYTE: u8 = 0x3c;

/// The number of candidates run concurrently, as in a program with several streams: a candidate that finishes early by
/// using the whole GPU may cost more GPU time than one that leaves room for others.
const PARALLEL_TRIALS: usize = 3;
/// Above this many bytes, one candidate fills the GPU.
const MAX_PARALLEL_BYTES: usize = 128 << 20;

/// The lock of the main stream, and memory for two operands, a result and a workspace.
pub(crate) struct Trial<'a> {
    device: &'a Arc<Device>,
    /// The addresses of the four, for each stream; every byte is [`FILL_BYTE`] at first.
    places: Vec<[u64; 4]>,
    // Freed before the lock is released.
    _memory: DeviceMemory,
    _turn: MutexGuard<'a, Scratch>,
}

impl<'a> Trial<'a> {
    /// Allocates this many bytes for each of the four.
    pub fn new(device: &'a Arc<Device>, sizes: [usize; 4]) -> Result<Self> {
        let mut ends = sizes.map(|size| size.next_multiple_of(ALIGN));
        (1..4).for_each(|i| ends[i] += ends[i - 1]);
        let at_once = if ends[3] <= MAX_PARALLEL_BYTES { PARALLEL_TRIALS } else { 1 };
        // The holder of the scratch memory may submit to the main stream.
        let turn = device.scratch();
        let memory = DeviceMemory::new(device, ends[3] * at_once)?;
        let place =
            |set: usize| [0, ends[0], ends[1], ends[2]].map(|offset| memory.start + (set * ends[3] + offset) as u64);
        let places = (0..at_once).map(place).collect();
        // SAFETY: the memory was just allocated with this length.
        unsafe { cudarc::driver::result::memset_d8_async(memory.start, FILL_BYTE, ends[3] * at_once, device.queue()) }
            .map_err(|e| failed("fill memory", e))?;
        Ok(Trial { device, places, _memory: memory, _turn: turn })
    }

    /// Returns the addresses for a stream.
    pub fn places(&self, branch: usize) -> [u64; 4] {
        self.places[branch.saturating_sub(BRANCH)]
    }

    /// Returns the wall-clock seconds of submitting and running something this many times.
    pub fn seconds(&self, times: u32, put: impl Fn() -> Result<()>) -> Result<f64> {
        self.device.wait()?;
        let start = Instant::now();
        (0..times).try_for_each(|_| put())?;
        self.device.wait()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Captures something, this many times in each of several streams: in a graph it takes the same time as in a
    /// program, without launch overhead of the host.
    pub fn record(&self, times: u32, put: impl Fn(usize) -> Result<()>) -> Result<Captured> {
        let wrong = |e| failed("capture a trial", e);
        let mut events = Events::new();
        // SAFETY: the stream is the device's; only the holder of the lock submits to it, and all forked streams join
        // it.
        unsafe {
            let first = self.device.stream(BRANCH);
            Captured::new(first, || {
                let start = events.after(first).map_err(wrong)?;
                for branch in BRANCH..BRANCH + self.places.len() {
                    let stream = self.device.stream(branch);
                    let joins = branch > BRANCH;
                    if joins {
                        Events::wait(stream, start).map_err(wrong)?;
                    }
                    (0..times).try_for_each(|_| put(branch))?;
                    if joins {
                        Events::wait(first, events.after(stream).map_err(wrong)?).map_err(wrong)?;
                    }
                }
                Ok(())
            })
        }
    }

    /// Returns the GPU seconds of each graph. They run back to back, so that the GPU is busy while the host launches
    /// the next; for the same reason the first one also runs once before, uncounted.
    pub fn seconds_of(&self, recorded: &[&Captured]) -> Result<Vec<f64>> {
        let (queue, mut events) = (self.device.queue(), Events::timed());
        let wrong = |e| failed("read the time of an event", e);
        // SAFETY: the stream is the device's; the graphs use the memory of the trial, which lives as long as the lock.
        unsafe {
            recorded.first().map_or(Ok(()), |first| first.start(queue))?;
            events.after(queue).map_err(wrong)?;
            for one in recorded {
                one.start(queue)?;
                events.after(queue).map_err(wrong)?;
            }
        }
        self.device.wait()?;
        events.seconds().map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_on_trial_are_small_ordinary_numbers_in_any_type() {
        let single = f32::from_ne_bytes([FILL_BYTE; 4]);
        let short = f32::from_bits(u32::from(u16::from_ne_bytes([FILL_BYTE; 2])) << 16);
        let double = f64::from_ne_bytes([FILL_BYTE; 8]);
        assert!((0.0114..0.0116).contains(&single) && (0.0114..0.0116).contains(&short), "{single} {short}");
        assert!(double.is_normal() && (1e-18..2e-18).contains(&double), "{double}");
    }
}
