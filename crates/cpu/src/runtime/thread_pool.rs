//! A tiny persistent thread pool: one call hands out numbered tasks and returns when all are done, without allocating.
//!
//! A job is open between two moments the caller controls. Workers join an open job by adding one to the count in
//! `state`; the caller closes the job once the tasks are handed out and waits only for the workers that joined. A worker
//! that is still asleep therefore never delays a call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long an idle worker looks for work before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// `state` is epoch·2³² + OPEN + the number of workers inside the job.
const OPEN: u64 = 1 << 31;
const COUNT: u64 = OPEN - 1;
const EPOCH: u64 = 1 << 32;

type Task = dyn Fn(usize, usize) + Sync;

/// The job as workers see it: written by the caller while no worker is inside, read only by workers that joined.
#[derive(Clone, Copy)]
struct Job {
    task: *const Task,
    tasks: usize,
}

/// Keeps a word on separate cache lines, so that polling it does not slow the others.
#[repr(align(128))]
struct Alone<T>(T);

struct TeamState {
    state: Alone<AtomicU64>,
    next: Alone<AtomicUsize>,
    job: std::cell::UnsafeCell<Job>,
    failed: AtomicBool,
    stop: AtomicBool,
    /// By worker: asleep, or about to be.
    asleep: Vec<AtomicBool>,
}

// SAFETY: `job` is written only by the one caller that holds `busy`, while `state` is closed and empty, and read only
// by workers that joined afterwards. The SeqCst accesses to `state` order the two.
unsafe impl Sync for TeamState {}
// SAFETY: the raw pointer in `job` is only followed while the call that set it is on its caller's stack.
unsafe impl Send for TeamState {}

impl TeamState {
    /// Takes tasks until none is left. A panic stops the hand-out and is remembered for the caller.
    fn work(&self, job: Job, worker: usize) {
        // SAFETY: the caller of `run_with` keeps the closure alive until every joined worker has left.
        let task = unsafe { &*job.task };
        loop {
            let i = self.next.0.fetch_add(1, SeqCst);
            if i >= job.tasks {
                return;
            }
            task(i, worker);
        }
    }

    fn worker(&self, id: usize) {
        let mut seen = 0;
        loop {
            let Some(state) = self.wait(id, seen) else {
                return;
            };
            if self.state.0.compare_exchange(state, state + 1, SeqCst, SeqCst).is_err() {
                continue;
            }
            seen = state / EPOCH;
            // SAFETY: this worker has joined, so the caller will not touch `job` until it leaves.
            let job = unsafe { *self.job.get() };
            if catch_unwind(AssertUnwindSafe(|| self.work(job, id))).is_err() {
                self.next.0.store(job.tasks, SeqCst);
                self.failed.store(true, SeqCst);
            }
            self.state.0.fetch_sub(1, SeqCst);
        }
    }

    /// Waits for an open job of another epoch than `seen`; none when the team is dropped.
    fn wait(&self, id: usize, seen: u64) -> Option<u64> {
        let fresh = || {
            let s = self.state.0.load(SeqCst);
            (s & OPEN != 0 && s / EPOCH != seen).then_some(s)
        };
        let mut since = Instant::now();
        let mut turns = 0u32;
        loop {
            if self.stop.load(SeqCst) {
                return None;
            }
            if let Some(s) = fresh() {
                return Some(s);
            }
            std::hint::spin_loop();
            turns += 1;
            if turns.is_multiple_of(64) && since.elapsed() > SPIN {
                // The flag is set before the last check, and the caller checks the flag after opening the job: one of
                // the two notices the other.
                self.asleep[id - 1].store(true, SeqCst);
                if fresh().is_none() && !self.stop.load(SeqCst) {
                    std::thread::park();
                }
                self.asleep[id - 1].store(false, SeqCst);
                since = Instant::now();
            }
        }
    }
}

/// A fixed set of threads that run numbered tasks together with the caller.
pub struct Team {
    shared: Arc<TeamState>,
    busy: AtomicBool,
    handles: Vec<JoinHandle<()>>,
    wakers: Vec<Thread>,
}

impl Team {
    /// A team of `threads` threads, the calling one included (0 counts as 1).
    ///
    /// If the system refuses a thread, the team is smaller than asked.
    pub fn new(threads: usize) -> Team {
        let workers = threads.saturating_sub(1);
        let shared = Arc::new(TeamState {
            state: Alone(AtomicU64::new(0)),
            next: Alone(AtomicUsize::new(0)),
            job: std::cell::UnsafeCell::new(Job { task: &|_: usize, _: usize| (), tasks: 0 }),
            failed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            asleep: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        });
        let handles: Vec<_> = (1..=workers)
            .map_while(|id| {
                let shared = shared.clone();
                std::thread::Builder::new().name(format!("team-{id}")).spawn(move || shared.worker(id)).ok()
            })
            .collect();
        let wakers = handles.iter().map(|h| h.thread().clone()).collect();
        Team { shared, busy: AtomicBool::new(false), handles, wakers }
    }

    /// Number of threads, the calling one included: worker numbers are below it.
    pub fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    /// Calls `task(i)` for every i below `tasks`, in any order, and returns when all have returned.
    ///
    /// # Panics
    /// If a task panics; other tasks may then be skipped.
    pub fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.run_with(tasks, &|i, _| task(i));
    }

    /// Like [`Team::run`], but the task also gets the number of the worker that runs it. No two tasks of one call run at
    /// the same time under one number, so the number can index scratch space.
    ///
    /// While another call is in progress (from another thread, or from inside a task) this one runs serially, as worker
    /// 0 of its own call.
    pub fn run_with(&self, tasks: usize, task: &(dyn Fn(usize, usize) + Sync)) {
        self.launch(tasks, true, task);
    }

    /// Like [`Team::run_with`], for work that takes less time than to wake a thread: those asleep are left alone.
    pub fn run_briefly(&self, tasks: usize, task: &(dyn Fn(usize, usize) + Sync)) {
        self.launch(tasks, false, task);
    }

    fn launch(&self, tasks: usize, wake: bool, task: &(dyn Fn(usize, usize) + Sync)) {
        let everybody_sleeps = || self.shared.asleep.iter().all(|asleep| asleep.load(SeqCst));
        if tasks <= 1
            || self.handles.is_empty()
            || (!wake && everybody_sleeps())
            || self.handles.is_empty()
            || self.busy.swap(true, SeqCst)
        {
            for i in 0..tasks {
                task(i, 0);
            }
            return;
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes; `Close` below waits for every worker that joined before this frame goes.
        let task: *const Task = unsafe { std::mem::transmute(task as *const (dyn Fn(usize, usize) + Sync + '_)) };
        let job = Job { task, tasks };
        // SAFETY: `busy` is held, and the last call left `state` closed and empty.
        unsafe { *shared.job.get() = job };
        shared.next.0.store(0, SeqCst);
        shared.failed.store(false, SeqCst);
        let epoch = shared.state.0.load(SeqCst) / EPOCH;
        shared.state.0.store((epoch.wrapping_add(1) % EPOCH) * EPOCH + OPEN, SeqCst);
        let close = Close(self);
        for (waker, asleep) in self.wakers.iter().zip(&shared.asleep).take(tasks - 1) {
            if wake && asleep.load(SeqCst) {
                waker.unpark();
            }
        }
        shared.work(job, 0);
        drop(close);
    }
}

/// Ends a job, also while the caller unwinds: no further task, no further worker, and all that joined have left.
struct Close<'a>(&'a Team);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        let shared = &*self.0.shared;
        if std::thread::panicking() {
            shared.next.0.store(usize::MAX / 2, SeqCst);
        }
        shared.state.0.fetch_and(!OPEN, SeqCst);
        let mut turns = 0u32;
        while shared.state.0.load(SeqCst) & COUNT != 0 {
            turns = turns.saturating_add(1);
            // A worker may have lost its core to another process; then give it ours.
            if turns > 20_000 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        let failed = shared.failed.load(SeqCst);
        self.0.busy.store(false, SeqCst);
        if failed && !std::thread::panicking() {
            panic!("a task panicked on a worker thread");
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        for handle in self.handles.drain(..) {
            handle.thread().unpark();
            // A worker catches panics of tasks, so it ends normally.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_once() {
        for threads in [0, 1, 2, 3, 5] {
            let team = Team::new(threads);
            assert_eq!(team.threads(), threads.max(1));
            for tasks in [0usize, 1, 2, 3, 17, 1000] {
                let hits: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                team.run(tasks, &|i| {
                    hits[i].fetch_add(1, SeqCst);
                });
                assert!(hits.iter().all(|h| h.load(SeqCst) == 1));
            }
        }
    }

    #[test]
    fn many_short_jobs_with_worker_scratch() {
        let team = Team::new(3);
        let mut rng = 1u32;
        for round in 0..20_000usize {
            rng = rng.wrapping_mul(1664525).wrapping_add(1013904223);
            let tasks = (rng >> 28) as usize;
            let inside: [AtomicUsize; 3] = Default::default();
            let sum = AtomicUsize::new(0);
            team.run_with(tasks, &|i, w| {
                assert_eq!(inside[w].fetch_add(1, SeqCst), 0);
                sum.fetch_add(i + 1, SeqCst);
                inside[w].fetch_sub(1, SeqCst);
            });
            assert_eq!(sum.load(SeqCst), tasks * (tasks + 1) / 2);
            if round % 4000 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn callers_at_once_and_nested() {
        let team = Team::new(3);
        let total = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..500 {
                        team.run(5, &|_| {
                            team.run(3, &|_| {
                                total.fetch_add(1, SeqCst);
                            })
                        });
                    }
                });
            }
        });
        assert_eq!(total.load(SeqCst), 4 * 500 * 15);
    }

    #[test]
    fn panic_reaches_the_caller_and_the_team_lives_on() {
        let team = Team::new(3);
        for bad in 0..50 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                team.run(50, &|i| {
                    if i == bad {
                        std::panic::resume_unwind(Box::new(()));
                    }
                })
            }));
            assert!(result.is_err());
            let count = AtomicUsize::new(0);
            team.run(50, &|_| {
                count.fetch_add(1, SeqCst);
            });
            assert_eq!(count.load(SeqCst), 50);
        }
    }
}
