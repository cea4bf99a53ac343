//! How long a piece of work takes, found by running it on memory of its own, in turn with the programs of the GPU.

use crate::runtime::capture::Captured;
use crate::runtime::device::{BRANCH, Device, DeviceMemory, Scratch, failed};
use crate::runtime::events::Events;
use crate::target::ALIGN;
use bilevel_graph::Result;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

/// Every byte of the memory at first. GPUs run faster on zeros than on what programs compute with; these bytes are
/// small ordinary numbers in any type of operands: 0.0115 in 32 bits and in their upper 16, and 1.5e-18 in 64.
const FILL_BYTE: u8 = 0x3c;

/// How many of what is on trial run side by side, as in a program with branches: what takes all of a GPU to be done
/// soon may take more of its time than what leaves some of it to others.
const PARALLEL_TRIALS: usize = 3;
/// Bytes beyond which one of them fills the GPU.
const MAX_PARALLEL_BYTES: usize = 128 << 20;

/// The right to put work in the queue, and memory for two operands, a result and a workspace.
pub(crate) struct Trial<'a> {
    device: &'a Arc<Device>,
    /// Where the four begin, for each of the streams; every byte is [`FILL_BYTE`] at first.
    places: Vec<[u64; 4]>,
    // Given back before the turn is.
    _memory: DeviceMemory,
    _turn: MutexGuard<'a, Scratch>,
}

impl<'a> Trial<'a> {
    /// With this many bytes for each of the four.
    pub fn new(device: &'a Arc<Device>, sizes: [usize; 4]) -> Result<Self> {
        let mut ends = sizes.map(|size| size.next_multiple_of(ALIGN));
        (1..4).for_each(|i| ends[i] += ends[i - 1]);
        let at_once = if ends[3] <= MAX_PARALLEL_BYTES { PARALLEL_TRIALS } else { 1 };
        // Who holds the scratch memory may put work in the queue.
        let turn = device.scratch();
        let memory = DeviceMemory::new(device, ends[3] * at_once)?;
        let place =
            |set: usize| [0, ends[0], ends[1], ends[2]].map(|offset| memory.start + (set * ends[3] + offset) as u64);
        let places = (0..at_once).map(place).collect();
        // SAFETY: the memory was just had and is as long as is said.
        unsafe { cudarc::driver::result::memset_d8_async(memory.start, FILL_BYTE, ends[3] * at_once, device.queue()) }
            .map_err(|e| failed("fill memory", e))?;
        Ok(Trial { device, places, _memory: memory, _turn: turn })
    }

    /// The places of what is put in the stream of a branch, or in the queue.
    pub fn places(&self, branch: usize) -> [u64; 4] {
        self.places[branch.saturating_sub(BRANCH)]
    }

    /// Seconds that the host waits for something which is put in the queue this many times.
    pub fn seconds(&self, times: u32, put: impl Fn() -> Result<()>) -> Result<f64> {
        self.device.wait()?;
        let start = Instant::now();
        (0..times).try_for_each(|_| put())?;
        self.device.wait()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Records something which is put in the streams of some branches, this many times in each: as part of a graph it
    /// takes the time it takes in a program, without what the host needs to start it.
    pub fn record(&self, times: u32, put: impl Fn(usize) -> Result<()>) -> Result<Captured> {
        let wrong = |e| failed("record a trial", e);
        let mut events = Events::new();
        // SAFETY: the stream is the device's; who has the turn alone puts work in it, and all that join it join it
        // again.
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

    /// Seconds that the GPU takes for each of what was recorded. They run one after the other, so that the GPU is busy
    /// with one while the host starts the next; the first runs once more before all, where it does not count, for the
    /// same reason.
    pub fn seconds_of(&self, recorded: &[&Captured]) -> Result<Vec<f64>> {
        let (queue, mut events) = (self.device.queue(), Events::timed());
        let wrong = |e| failed("tell the time", e);
        // SAFETY: the queue is the device's; what was recorded uses the memory of the trial, which is there as long as
        // the turn.
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
