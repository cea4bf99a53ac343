//! Jobs that have nothing to do with each other, on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Cores of this machine.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Does all jobs, this many at a time, and answers in their order.
pub fn side_by_side<J: Sync, R: Send>(jobs: &[J], at_a_time: usize, work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(vec![]);
    let worker = || {
        while let Some((number, job)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, jobs.get(n)?)))
        {
            let result = work(job);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..at_a_time.clamp(1, jobs.len().max(1)) {
            scope.spawn(worker);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn answers_come_in_the_order_of_the_jobs_whoever_is_done_first() {
        let jobs: Vec<u64> = (0..20).collect();
        for at_a_time in [0, 1, 3, 50] {
            let wait = |n: &u64| {
                std::thread::sleep(std::time::Duration::from_micros(20 - n));
                n * n
            };
            let expected: Vec<u64> = jobs.iter().map(|n| n * n).collect();
            assert_eq!(super::side_by_side(&jobs, at_a_time, wait), expected);
        }
        assert!(super::side_by_side(&[] as &[u64], 2, |n| *n).is_empty());
    }
}
