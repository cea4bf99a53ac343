//! Selects the fastest of several algorithms by running them.
//!
//! One call may take less time than its launch by the host, so each algorithm is captured several times in a row, as in
//! a program's graph. Rounds alternate between algorithms, and the best time of each counts, because clocks rise and
//! other threads load kernels meanwhile. Algorithms that fall far behind in a round are dropped, so that the many
//! products of a network take little time in all.

use crate::autotune::bench::Trial;
use crate::runtime::capture::Captured;
use bilevel_graph::Result;

/// The maximum number of calls per capture.
const MAX_CALLS: u32 = 10;
/// The seconds that suffice for a measurement: no more calls than this takes are captured.
const MIN_MEASURED_SECONDS: f64 = 3e-4;
/// The number of rounds, for short calls and for calls that suffice by themselves.
const ROUNDS: [usize; 2] = [3, 1];
/// The maximum time of a first call relative to the best, for short and long calls; host overhead dominates the short
/// ones.
const MAX_FIRST_CALL_RATIO: [f64; 2] = [3.0, 1.5];
/// The maximum time relative to the best after a round: more than the noise of a round.
const MAX_ROUND_RATIO: f64 = 1.3;
/// A later algorithm must take at most this share of the time of an earlier one to be preferred.
const MAX_PREFERRED_RATIO: f64 = 0.99;

/// Returns the index of the fastest algorithm, each submitted by its index; `None` if none runs.
pub(crate) fn fastest(trial: &Trial, ways: usize, put: impl Fn(usize, usize) -> Result<()>) -> Option<usize> {
    let alone = |way: usize| -> Result<f64> {
        let in_queue = || put(way, 0);
        // The first call loads kernels.
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

/// Returns the number of calls to capture if the fastest takes this many seconds.
fn calls(seconds: f64) -> u32 {
    // The cast saturates.
    ((MIN_MEASURED_SECONDS / seconds) as u32).clamp(1, MAX_CALLS)
}

/// Returns true if an algorithm with this first time may be the fastest.
fn is_worth_it(seconds: f64, least: f64) -> bool {
    seconds.is_finite() && seconds <= least * by_length(MAX_FIRST_CALL_RATIO, least)
}

/// Selects the value for short or long calls.
fn by_length<T>([short, long]: [T; 2], seconds: f64) -> T {
    if seconds < MIN_MEASURED_SECONDS { short } else { long }
}

/// Returns the first of the fastest: a later one must be clearly faster, so that noise does not decide. `None` if none
/// ran.
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
        // Compared with the best so far, not with the previous one.
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
