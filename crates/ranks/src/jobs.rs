//! Jobs that have nothing to do with each other, shared out over ranks as they become free.
//!
//! All ranks synchronise repeatedly, in beats. In a beat every rank sends the number of further jobs that it can take,
//! and all derive the same assignment of the next jobs. So no rank distributes jobs, and a rank that stops or dies is
//! noticed while the others work. After the last beat no rank has a job left.

use bilevel_graph::{Link, Result, rank_error};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{scope, sleep};
use std::time::Duration;

/// The shortest pause between beats.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
/// The longest pause between beats.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Work that consists of independent jobs, numbered from 0.
pub trait Jobs: Sync {
    /// Does a job.
    fn work(&self, job: usize);

    /// True if no further job is to be begun, on any rank.
    fn is_stopping(&self) -> bool {
        false
    }

    /// Another rank stops, or has ended: the work here must stop, too.
    fn stop(&self) {}

    /// A rank is given a job.
    fn given(&self, _job: usize, _rank: usize) {}

    /// Called between beats.
    fn between(&self) {}
}

/// Does all jobs on the ranks of a link, at most this many at a time on each; at least one rank does some. Returns when none is left or being
/// done on any rank.
///
/// ```
/// use bilevel_ranks::{Jobs, Threads, share_out};
/// use std::sync::Mutex;
/// struct Squares(Mutex<Vec<usize>>);
/// impl Jobs for Squares {
///     fn work(&self, job: usize) {
///         self.0.lock().unwrap().push(job * job);
///     }
/// }
/// let done = Threads::run(2, |link| {
///     let squares = Squares(Mutex::default());
///     share_out(&link, 5, 1, &squares).map(|()| squares.0.into_inner().unwrap())
/// });
/// let mut all = done.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
/// all.sort();
/// assert_eq!(all, [0, 1, 4, 9, 16]);
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub fn share_out(link: &Link, count: usize, at_a_time: usize, jobs: &dyn Jobs) -> Result<()> {
    let hands = at_a_time.min(count);
    let desk = Desk { state: Mutex::default(), changed: Condvar::new() };
    scope(|scope| {
        for _ in 0..hands {
            scope.spawn(|| {
                while let Some(job) = desk.next() {
                    // Also if the job panics, because the other ranks wait.
                    let _done = Done(&desk);
                    jobs.work(job);
                }
            });
        }
        let done = lead(link, count, hands, jobs, &desk);
        if done.is_err() {
            // The others cannot be asked any more.
            jobs.stop();
        }
        desk.change(|state| state.is_closed = true);
        done
    })
}

/// The jobs that this rank was given.
#[derive(Default)]
struct Given {
    waiting: VecDeque<usize>,
    /// Those that wait or are being done.
    open: usize,
    is_closed: bool,
}

struct Desk {
    state: Mutex<Given>,
    changed: Condvar,
}

/// Counts a job as done when it is dropped.
struct Done<'a>(&'a Desk);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.open -= 1);
    }
}

impl Desk {
    fn change<R>(&self, change: impl FnOnce(&mut Given) -> R) -> R {
        let changed = change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        changed
    }

    /// The next job; none once there will be none.
    fn next(&self) -> Option<usize> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut Given| state.waiting.is_empty() && !state.is_closed;
        self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner).waiting.pop_front()
    }
}

/// The beats of one rank, until there is nothing left to do.
fn lead(link: &Link, count: usize, hands: usize, jobs: &dyn Jobs, desk: &Desk) -> Result<()> {
    let (mut next, mut pause) = (0, SHORTEST_PAUSE);
    loop {
        let open = desk.change(|state| state.open);
        let said = (open as u64) << 32 | ((hands - open.min(hands)) as u64) << 1 | u64::from(jobs.is_stopping());
        let all = link.numbers(said)?;
        let stops = all.iter().any(|said| said & 1 == 1);
        if stops {
            jobs.stop();
        }
        let mut free: Vec<u64> = all.iter().map(|said| (said & 0xffff_ffff) >> 1).collect();
        let before = next;
        if next < count && all.iter().all(|said| said >> 32 == 0 && said & 0xffff_ffff == 0) {
            return Err(rank_error("no rank does a job; let at least one do some"));
        }
        // One for each, and again.
        while !stops && next < count && free.iter().any(|&free| free > 0) {
            for (rank, free) in free.iter_mut().enumerate().filter(|(_, free)| **free > 0) {
                if next == count {
                    break;
                }
                jobs.given(next, rank);
                if rank == link.rank() {
                    desk.change(|state| {
                        state.waiting.push_back(next);
                        state.open += 1;
                    });
                }
                (*free, next) = (*free - 1, next + 1);
            }
        }
        let is_over = next == before && (stops || next == count) && all.iter().all(|said| said >> 32 == 0);
        if is_over {
            return Ok(());
        }
        jobs.between();
        pause = if next > before { SHORTEST_PAUSE } else { (pause * 3 / 2).min(LONGEST_PAUSE) };
        sleep(pause);
    }
}
