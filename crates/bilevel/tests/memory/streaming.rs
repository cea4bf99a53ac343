//! A checkpoint of a large state passes through the host in small parts, when it is saved and when it is read.

use crate::counting::{HELD, PEAK};
use crate::with::With;
use bilevel::checkpoints::Checkpoints;
use bilevel::methods::HpoSgld;
use bilevel::observers::{Beginning, Iteration, Observer};
use bilevel::{Cpu, DType, Driver, InnerLoop, Leaf, Outcome, Problem, State, Variable};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const COUNT: usize = 16_000_000;
/// Bytes of λ, and of θ.
const LEAF: usize = 4 * COUNT;
/// What a file may take of the host.
const CHUNK: usize = 16 << 20;
/// What a block takes beside its bytes: a large one begins at a huge page and ends at one, of 2 MiB each.
const PAGES: usize = 5 << 20;

/// What the run before the first iteration needs, what is held in the last one, and what saving it takes beside that.
#[derive(Clone, Default)]
struct Measured {
    start: Arc<AtomicUsize>,
    held: Arc<AtomicUsize>,
    save: Arc<AtomicUsize>,
}

impl Observer for Measured {
    fn on_start(&mut self, _: &Beginning) -> ControlFlow<String> {
        self.start.store(PEAK.load(SeqCst), SeqCst);
        ControlFlow::Continue(())
    }

    fn on_iteration(&mut self, _: &Iteration, _: &State) -> ControlFlow<String> {
        self.held.store(HELD.load(SeqCst), SeqCst);
        PEAK.store(HELD.load(SeqCst), SeqCst);
        ControlFlow::Continue(())
    }

    // The outcome's own copy of λ and θ takes the place of what the run fell back on.
    fn on_end(&mut self, _: &Outcome) {
        self.save.store(PEAK.load(SeqCst) - self.held.load(SeqCst), SeqCst);
    }
}

#[test]
fn neither_saving_nor_resuming_holds_the_state_on_the_host() {
    let _alone = crate::ALONE.lock();
    let problem = Problem::builder(Leaf(Variable::constant([COUNT], 0.01)), Leaf(Variable::constant([COUNT], 0.5)))
        .dtype(DType::F32)
        .inner(|_, l, t| (t.0 - 1.0).square().sum_all() * 0.5 + (l.0 * t.0.abs()).sum_all())
        .outer(|_, _, t| (t.0 - 0.8).square().sum_all())
        .build()
        .unwrap();
    let folder = std::env::temp_dir().join(format!("bilevel-streaming-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let method = With(HpoSgld::default(), InnerLoop::new(0.01, 1).at_temperature(1e-6));
    for iterations in [1, 2] {
        let before = HELD.load(SeqCst);
        PEAK.store(before, SeqCst);
        let measured = Measured::default();
        let driver = Driver::new(&problem, method).executor(Cpu::with_threads(1)).iterations(iterations);
        let checkpoints = Checkpoints::new(&folder).every(100).resume(true);
        let outcome = driver.checkpoints(checkpoints).observe(measured.clone()).run().unwrap();
        assert_eq!(outcome.iterations, iterations, "{}", outcome.reason);
        let (start, save) = (measured.start.load(SeqCst) - before, measured.save.load(SeqCst));
        assert!(save <= CHUNK + PAGES, "{save} bytes to save {} of state", 2 * LEAF);
        // λ and θ twice, as they are and as they were when last found good, and the scratch memory of the programs.
        assert!(start <= 5 * (LEAF + PAGES) + CHUNK, "{start} bytes to begin with {} of state", 2 * LEAF);
        println!("{iterations}: {start} bytes to begin, {save} to save");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
