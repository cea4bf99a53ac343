//! Compile-time statistics: the parts of the time before a first run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time spent on compiling programs on a GPU since it was opened. Programs compile concurrently, so only the last
/// two fields are wall-clock time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Planning, summed over all threads.
    pub planning: Duration,
    /// Compiling or loading kernels, summed over all threads.
    pub kernels: Duration,
    /// Selecting algorithms for matrix products, summed over all threads.
    pub products: Duration,
    /// First runs waiting for compilation.
    pub waiting: Duration,
    /// Recording steps as graphs.
    pub recording: Duration,
}

/// A field of [`Spent`].
#[derive(Clone, Copy)]
pub(crate) enum Phase {
    Planning,
    Kernels,
    Products,
    Waiting,
    Recording,
}

/// Nanoseconds by phase, summed over all threads.
#[derive(Default)]
pub(crate) struct Clock([AtomicU64; 5]);

impl Clock {
    /// Runs a closure and counts its time.
    pub fn time<T>(&self, part: Phase, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        let spent = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0[part as usize].fetch_add(spent, Ordering::Relaxed);
        result
    }

    /// Returns the time so far.
    pub fn spent(&self) -> Spent {
        let of = |part: Phase| Duration::from_nanos(self.0[part as usize].load(Ordering::Relaxed));
        Spent {
            planning: of(Phase::Planning),
            kernels: of(Phase::Kernels),
            products: of(Phase::Products),
            waiting: of(Phase::Waiting),
            recording: of(Phase::Recording),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_counted_by_itself() {
        let clock = Clock::default();
        assert_eq!(clock.time(Phase::Kernels, || std::thread::sleep(Duration::from_millis(2))), ());
        let spent = clock.spent();
        assert!(spent.kernels >= Duration::from_millis(2));
        assert_eq!(spent, Spent { kernels: spent.kernels, ..Spent::default() });
    }
}
