//! A run so large that nothing may be held twice: stopped, resumed, and compared with one that was left alone.

use crate::error::Result;
use crate::long::wide_run::{Report, Run};
use std::path::Path;

/// Goal for the memory of each process, in bytes.
const GOAL: u64 = 16 << 30;

/// Prints a line for each of three runs, then whether they agree; false if they do not.
pub fn run(count: usize, iterations: u32, threads: usize, folder: &Path) -> Result<bool> {
    let alone = Run { count, iterations, stop: None, folder: None, bare: false, threads };
    let resumed = Run { folder: Some(folder.to_path_buf()), ..alone.clone() };
    let stopped = Run { stop: Some(iterations.div_ceil(2)), ..resumed.clone() };
    let reports = [alone.in_a_child()?, stopped.in_a_child()?, resumed.in_a_child()?];
    // The checkpoints are as large as the state.
    let _ = std::fs::remove_dir_all(folder);
    let (same, peak) = judge(&reports);
    let within = peak.map(|peak| peak <= GOAL);
    say!(
        "{}",
        serde_json::json!({
            "case": "large", "count": count, "iterations": iterations, "same_bits": same, "peak_bytes": peak,
            "goal_bytes": GOAL, "met": same && within.unwrap_or(true),
        })
    );
    Ok(same && within.unwrap_or(true))
}

/// Whether the first and the last have the same bits after the same iterations, with one that stopped between them; and the
/// most memory of all.
fn judge([alone, stopped, resumed]: &[Report; 3]) -> (bool, Option<u64>) {
    let interrupted = stopped.iterations < alone.iterations && stopped.hash != alone.hash;
    let same = interrupted && (&alone.hash, alone.iterations) == (&resumed.hash, resumed.iterations);
    let peaks = [alone, stopped, resumed].map(|report| report.peak_bytes);
    (same, peaks.into_iter().flatten().max())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_was_interrupted_and_ends_alike_is_the_same() {
        let report =
            |iterations, hash: &str, peak_bytes| Report { iterations, ms: None, hash: hash.into(), peak_bytes };
        let [alone, half, other] = [report(10, "a", Some(5)), report(5, "b", Some(7)), report(10, "c", None)];
        assert_eq!(judge(&[alone.clone(), half.clone(), alone.clone()]), (true, Some(7)));
        assert!(!judge(&[alone.clone(), half, other]).0);
        assert!(!judge(&[alone.clone(), alone.clone(), alone]).0);
    }
}
