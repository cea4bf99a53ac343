//! Where the time goes before programs first run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What was spent on getting programs ready on a GPU, since it was opened. Threads of several programs work at the same
/// time, so only the last two are times that somebody waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// From programs to steps, by all threads.
    pub planning: Duration,
    /// Kernels compiled, or found in the cache, and loaded, by all threads.
    pub kernels: Duration,
    /// Ways to compute products chosen, by all threads.
    pub products: Duration,
    /// First runs that waited for their planning.
    pub waiting: Duration,
    /// Steps recorded as graphs.
    pub recording: Duration,
}

/// One of the numbers of [`Spent`].
#[derive(Clone, Copy)]
pub(crate) enum Phase {
    Planning,
    Kernels,
    Products,
    Waiting,
    Recording,
}

/// Nanoseconds by part, added up by all threads.
#[derive(Default)]
pub(crate) struct Clock([AtomicU64; 5]);

impl Clock {
    /// Does something, and counts its time.
    pub fn time<T>(&self, part: Phase, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        let spent = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0[part as usize].fetch_add(spent, Ordering::Relaxed);
        result
    }

    /// What was counted so far.
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
