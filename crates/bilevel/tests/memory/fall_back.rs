//! What the state that a run falls back on costs, and that a run without one does not hold it.

use crate::counting::{HELD, PEAK};
use crate::with::With;
use bilevel::prelude::*;
use std::sync::atomic::Ordering::SeqCst;

/// Numbers of λ and of θ: 32 MiB each, beside which it matters little that a large block begins and ends at huge pages.
const SIZE: usize = 1 << 22;

/// Copies of θ that two iterations hold at once.
fn copies(fall_back: bool) -> f64 {
    let problem = Problem::builder(Leaf(Variable::constant([SIZE], 0.5)), Leaf(Variable::constant([SIZE], 0.0)))
        .inner(|_, l, t| (t.0 - l.0).square().mean_all())
        .outer(|_, _, t| (t.0 - 1.0).square().mean_all())
        .build()
        .unwrap();
    let method = With(HpoSgld::default(), InnerLoop { burn_in: 1, ..InnerLoop::new(0.01, 3) });
    let driver = Driver::new(&problem, method).executor(Cpu::with_threads(1)).iterations(2).fall_back(fall_back);
    // What is made of the outcome at the end is not counted: the last iteration has the most that a run holds.
    let (before, seen) = (HELD.load(SeqCst), std::sync::Arc::new(std::sync::Mutex::new(0)));
    PEAK.store(before, SeqCst);
    let peak = seen.clone();
    driver.on_iteration(move |_, _| *peak.lock().unwrap() = PEAK.load(SeqCst)).run().unwrap();
    let peak = *seen.lock().unwrap();
    (peak - before) as f64 / (8 * SIZE) as f64
}

#[test]
fn a_run_without_a_state_to_fall_back_on_holds_one_lambda_and_one_theta_less() {
    let _alone = crate::ALONE.lock();
    let (with, without) = (copies(true), copies(false));
    assert!((2.0..2.5).contains(&(with - without)), "{with} copies of θ with the state, {without} without");
}
