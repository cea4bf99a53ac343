//! The fastest of several ways to compute a product or a convolution, by running them.
//!
//! Either may take less time than the host needs to start it, so each way is recorded some times in a row, as it will
//! be in a program's graph. Rounds go over all of them in turn, and the best of each counts: clocks rise, and other
//! threads load kernels meanwhile. Ways that a round leaves far behind are not measured again, so that a network's many
//! products take little time in all.

use crate::autotune::bench::Trial;
use crate::runtime::capture::Captured;
use bilevel_graph::Result;

/// Most times a way is recorded in a row.
const MAX_CALLS: u32 = 10;
/// Seconds that are long enough to be measured: no more calls than take so long are recorded.
const MIN_MEASURED_SECONDS: f64 = 3e-4;
/// Times each recording is measured, where calls are short and where one alone is long enough.
const ROUNDS: [usize; 2] = [3, 1];
/// How much slower than the best a single call may be for its way to be measured at all: likewise, as the host takes
/// most of the time of a short one.
const MAX_FIRST_CALL_RATIO: [f64; 2] = [3.0, 1.5];
/// How much slower than the best a way may be after a round to be measured in the next: more than a round is off by.
const MAX_ROUND_RATIO: f64 = 1.3;
/// What a later way must take of the time of an earlier one to be preferred.
const MAX_PREFERRED_RATIO: f64 = 0.99;

/// The number of the fastest of this many ways, which are put in the stream of a branch by their number; none if none
/// can be run.
pub(crate) fn fastest(trial: &Trial, ways: usize, put: impl Fn(usize, usize) -> Result<()>) -> Option<usize> {
    let alone = |way: usize| -> Result<f64> {
        let in_queue = || put(way, 0);
        // The first time loads kernels.
        trial.seconds(1, in_queue)?;
        trial.seconds(1, in_queue)
    };
    let mut least = f64::INFINITY;
    let mut alone_seconds = vec![];
    for way in 0..ways {
        let seconds = alone(way).unwrap_or(f64::INFINITY);
        least = least.min(seconds);
        alone_seconds.push(seconds);
    }
    let calls = calls(least);
    let recorded: Vec<Option<Captured>> = (0..ways)
        .map(|way| {
            let worth_it = is_worth_it(alone_seconds[way], least);
            worth_it.then(|| trial.record(calls, |branch| put(way, branch)).ok()).flatten()
        })
        .collect();
    let mut running: Vec<(usize, &Captured)> =
        recorded.iter().enumerate().filter_map(|(way, recorded)| Some((way, recorded.as_ref()?))).collect();
    let mut seconds = vec![f64::INFINITY; ways];
    for _ in 0..by_length(ROUNDS, least) {
        let round: Vec<&Captured> = running.iter().map(|&(_, recorded)| recorded).collect();
        let Ok(taken) = trial.seconds_of(&round) else { break };
        for (&(way, _), taken) in running.iter().zip(taken) {
            seconds[way] = seconds[way].min(taken);
        }
        let best = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        running.retain(|&(way, _)| seconds[way] <= best * MAX_ROUND_RATIO);
    }
    preferred(&seconds)
}

/// Calls to record where the fastest takes this many seconds by itself.
fn calls(seconds: f64) -> u32 {
    // A float that is too large becomes the largest number.
    ((MIN_MEASURED_SECONDS / seconds) as u32).clamp(1, MAX_CALLS)
}

/// True if a way that took this many seconds by itself may be the fastest, where the least was this many.
fn is_worth_it(seconds: f64, least: f64) -> bool {
    seconds.is_finite() && seconds <= least * by_length(MAX_FIRST_CALL_RATIO, least)
}

/// What holds for calls of this many seconds.
fn by_length<T>([short, long]: [T; 2], seconds: f64) -> T {
    if seconds < MIN_MEASURED_SECONDS { short } else { long }
}

/// The first of the fastest: a later one must be clearly faster, so that noise does not decide. None where none could
/// be run.
fn preferred(seconds: &[f64]) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (way, &taken) in seconds.iter().enumerate() {
        if taken.is_finite() && best.is_none_or(|best| taken <= seconds[best] * MAX_PREFERRED_RATIO) {
            best = Some(way);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_way_is_preferred_unless_a_later_one_is_clearly_faster() {
        let none = f64::INFINITY;
        assert_eq!(preferred(&[]), None);
        assert_eq!(preferred(&[none, none]), None);
        assert_eq!(preferred(&[none, 5.0, none]), Some(1));
        assert_eq!(preferred(&[10.0, 9.95]), Some(0));
        assert_eq!(preferred(&[10.0, 9.8]), Some(1));
        // Against the best so far, not against the one before.
        assert_eq!(preferred(&[10.0, 9.95, 9.85]), Some(2));
        assert_eq!(preferred(&[10.0, 5.0, 4.96, 7.0]), Some(1));
    }

    #[test]
    fn short_calls_are_repeated_and_long_ones_are_not() {
        assert_eq!([1e-6, 2e-5, 9e-5, 2e-4, 1.0, f64::INFINITY].map(calls), [10, 10, 3, 1, 1, 1]);
    }

    #[test]
    fn slow_ways_are_not_measured() {
        assert!(is_worth_it(2.9e-5, 1e-5) && !is_worth_it(3.1e-5, 1e-5));
        assert!(is_worth_it(1.4e-2, 1e-2) && !is_worth_it(1.6e-2, 1e-2));
        assert!(!is_worth_it(f64::INFINITY, f64::INFINITY));
    }
}
