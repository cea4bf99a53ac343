//! Long loops divided into stretches, between which a stop signal is checked.
//!
//! A hypergradient may take many thousand steps in one call, too long to wait for after Ctrl-C. A stretch becomes
//! longer while it takes less than [`STRETCH`], or than [`SHARES`] times the fixed cost of a call. So a program whose
//! calls fit into one stretch only pays for checking a flag. The results are the same to the bit, because carried
//! values stay in their buffers between calls.
//!
//! Ranks that compute the program together take the same stretches: all stop if one has to, and the slowest sets the pace.

use crate::outer::stopping::StopSignal;
use bilevel_graph::{Error, ErrorKind, Link, Result, Runnable};
use std::ops::Range;
use std::time::{Duration, Instant};

/// A stretch that takes less than this may become longer.
const STRETCH: Duration = Duration::from_millis(100);
/// A stretch may also take this many times the fixed cost of a call before its first step.
const SHARES: u32 = 5;

/// The measured pace of a stretch.
#[derive(Clone, Copy)]
enum StretchPace {
    /// Nothing: the first call touches memory for the first time.
    Cold,
    /// The second step is about to be timed.
    Warm,
    /// One step took this.
    One(Duration),
    /// A stretch should take this.
    Goal(Duration),
}

/// The number of steps of a program between checks of the signal.
pub(crate) struct Stretches {
    signal: StopSignal,
    /// The ranks that take these stretches together.
    link: Option<Link>,
    length: u32,
    pace: StretchPace,
}

impl Stretches {
    pub fn new(signal: StopSignal, link: Option<Link>) -> Self {
        Stretches { signal, link, length: 1, pace: StretchPace::Cold }
    }

    /// Runs these steps, with the outputs of the last if they are `shown`, or ends with [`ErrorKind::Stopped`] when the
    /// signal is set.
    pub fn run(&mut self, program: &mut dyn Runnable, steps: Range<u32>, shown: bool) -> Result<()> {
        let mut from = steps.start;
        while steps.end.saturating_sub(from) > self.length {
            let to = from + self.length;
            let began = Instant::now();
            self.unless_stopped(|| program.advance(from..to))?;
            from = to;
            self.learn(self.slowest(began.elapsed())?);
        }
        let last = from..steps.end;
        self.unless_stopped(|| if shown { program.run(last) } else { program.advance(last) })
    }

    fn unless_stopped(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let is_set = self.signal.is_set();
        let stops = match &self.link {
            Some(link) => link.largest(is_set.into())? > 0,
            None => is_set,
        };
        if stops { Err(Error::new(ErrorKind::Stopped)) } else { work() }
    }

    /// The time of the slowest rank.
    fn slowest(&self, took: Duration) -> Result<Duration> {
        let Some(link) = &self.link else { return Ok(took) };
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        link.largest(nanoseconds).map(Duration::from_nanos)
    }

    /// Chooses the length of the next stretch from the time of the last one.
    fn learn(&mut self, took: Duration) {
        self.pace = match self.pace {
            StretchPace::Cold => StretchPace::Warm,
            StretchPace::Warm => {
                self.length = 2;
                StretchPace::One(took)
            }
            // Two calls with a step each pay the fixed cost twice.
            StretchPace::One(one) => StretchPace::Goal(STRETCH.max((2 * one).saturating_sub(took) * SHARES)),
            goal => goal,
        };
        if let StretchPace::Goal(goal) = self.pace {
            if took < goal {
                self.length = self.length.saturating_mul(2);
            } else if took > 4 * goal {
                self.length = (self.length / 2).max(1);
            }
        }
    }
}
