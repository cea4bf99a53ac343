//! Explaining a divergence costs the run nothing: its last good state is saved before, and the memory it takes is bounded.

use crate::counting::{HELD, PEAK};
use crate::with::With;
use bilevel::checkpoints::{Checkpoint, Checkpoints};
use bilevel::diagnostics::Cause;
use bilevel::graph::{Buffer, Executor, Meta, Program, Result, Runnable};
use bilevel::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// Numbers of θ: 8 MiB.
const SIZE: usize = 1 << 20;
/// Copies of θ that the post-mortem may hold: the walk's θ, that of the run's start, θ and its copy on the host, three vectors of
/// Lanczos, and what a Hessian product works in.
const COPIES: f64 = 8.0;

/// θ follows λ, and an outer rate above 1 sends λ away.
fn problem(size: usize) -> Problem<Leaf<Variable>, Leaf<Variable>> {
    Problem::builder(Leaf(Variable::constant([], 0.5)), Leaf(Variable::constant([size], 0.0)))
        .inner(|_, l, t| (t.0 - l.0).square().sum_all() * 0.5)
        .outer(|_, _, t| (t.0 - 1.0).square().mean_all())
        .build()
        .unwrap()
}

fn method() -> With<IftCg> {
    With(IftCg { iterations: 1, regularisation: 0.0, ..IftCg::default() }, InnerLoop::new(0.5, 20))
}

/// An executor on which nothing more can be compiled once it is told so.
#[derive(Clone)]
struct Failing(Arc<dyn Executor>, Arc<AtomicBool>);

impl Executor for Failing {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        assert!(!self.1.load(SeqCst), "out of memory, say");
        self.0.compile(program)
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        self.0.buffer(meta)
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }
}

fn saved_before_the_post_mortem() {
    let folder = std::env::temp_dir().join(format!("bilevel-postmortem-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let driver = |executor: Failing| {
        // Saved at the end alone.
        let checkpoints = Checkpoints::new(&folder).every(10_000);
        Driver::new(&problem(3), method()).executor(executor).rate(5.0).iterations(1000).checkpoints(checkpoints)
    };
    let broken = Arc::new(AtomicBool::new(false));
    let (executor, armed) = (Failing(Cpu::with_threads(1).share(), broken.clone()), broken.clone());
    let seen = Arc::new(std::sync::Mutex::new(0));
    let last = seen.clone();
    let run = driver(executor).diagnose_every(0).on_iteration(move |iteration, _| {
        armed.store(true, SeqCst);
        *last.lock().unwrap() = iteration.number;
    });
    assert!(catch_unwind(AssertUnwindSafe(|| run.run())).is_err(), "the post-mortem compiles programs of its own");
    let last = *seen.lock().unwrap();
    let newest = std::fs::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| Checkpoint::read(entry.unwrap().path()).ok().map(|checkpoint| checkpoint.iteration()));
    let newest = newest.max().expect("the last good state is on the disk");
    // A few suspect iterations come before a run is given up.
    assert!(newest > 0 && newest <= last && last - newest <= 3, "{newest} of {last}");
    std::fs::remove_dir_all(&folder).unwrap();
}

fn bounded_memory() {
    let problem = problem(SIZE);
    let held = Arc::new(std::sync::Mutex::new(0));
    let at_last = held.clone();
    let driver = Driver::new(&problem, method()).executor(Cpu::with_threads(1)).rate(50.0).iterations(1000);
    let run = driver.diagnose_every(0).on_iteration(move |_, _| {
        let now = HELD.load(SeqCst);
        PEAK.store(now, SeqCst);
        *at_last.lock().unwrap() = now;
    });
    let outcome = run.run().unwrap();
    let StopReason::Diverged(diagnosis) = &outcome.reason else { panic!("{}", outcome.reason) };
    assert_eq!(diagnosis.cause, Cause::OuterStepTooLarge, "{diagnosis}");
    let copies = (PEAK.load(SeqCst) - *held.lock().unwrap()) as f64 / (8 * SIZE) as f64;
    assert!(copies < COPIES, "{copies} copies of θ");
}

#[test]
fn a_post_mortem_comes_after_the_last_good_state_is_saved_and_takes_a_bounded_amount_of_memory() {
    let _alone = crate::ALONE.lock();
    saved_before_the_post_mortem();
    bounded_memory();
}
