//! Medians and minima of repeated calls.

use crate::error::Result;
use std::time::Instant;

/// Median and best seconds of a call.
#[derive(Clone, Copy, Debug)]
pub struct Seconds {
    /// Median over repetitions.
    pub median: f64,
    /// Best repetition.
    pub best: f64,
}

impl Seconds {
    /// The statistics of repetitions with these times.
    pub fn of(times: &mut [f64]) -> Self {
        Seconds { best: times.iter().copied().fold(f64::INFINITY, f64::min), median: median(times) }
    }

    /// The statistics of repetitions that ended at these times, without the first.
    pub fn between(ends: &[f64]) -> Self {
        Self::of(&mut ends.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<f64>>())
    }

    /// The same for one of `parts` equal parts of the call.
    pub fn divided(self, parts: f64) -> Self {
        Seconds { median: self.median / parts, best: self.best / parts }
    }
}

/// Times `call`: one call to warm up, then `reps` repetitions of `inner` calls.
pub fn timed(reps: usize, inner: usize, mut call: impl FnMut() -> Result<()>) -> Result<Seconds> {
    call()?;
    let mut times = Vec::with_capacity(reps);
    for _ in 0..reps.max(1) {
        let start = Instant::now();
        for _ in 0..inner {
            call()?;
        }
        times.push(start.elapsed().as_secs_f64() / inner as f64);
    }
    Ok(Seconds::of(&mut times))
}

/// The middle one, or the mean of the two in the middle; NaN for none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => 0.5 * (values[n / 2 - 1] + values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&mut []).is_nan());
    }

    #[test]
    fn repetitions_are_what_lies_between_their_ends() {
        let seconds = Seconds::between(&[9.0, 10.0, 13.0, 15.0]);
        assert_eq!((seconds.median, seconds.best), (2.0, 1.0));
        assert!(Seconds::between(&[9.0]).median.is_nan());
    }

    #[test]
    fn the_warm_up_is_not_timed_and_errors_come_back() {
        let mut calls = 0;
        let seconds = timed(3, 4, || {
            calls += 1;
            Ok(())
        });
        assert_eq!(calls, 13);
        assert!(seconds.unwrap().best >= 0.0);
        assert!(timed(1, 1, || Err(crate::error::BenchError::Peer("no".into()))).is_err());
    }
}
