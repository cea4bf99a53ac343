//! Data lie in an executor's memory once, whatever is compiled for them.

use crate::counting::HELD;
use crate::with::{Usual, With};
use bilevel::methods::{Chains, LangevinAdjoint, Rmd};
use bilevel::{Array, Cpu, InnerLoop, Key, Leaf, Problem, Session, Variable};
use std::sync::atomic::Ordering::SeqCst;

const ROWS: usize = 2_000_000;
const DATA: usize = 8 * ROWS;

fn problem() -> Problem {
    Problem::builder(Leaf(Variable::constant([], 0.5)), Leaf(Variable::constant([], 0.0)))
        .data("x", Array::from_f64([ROWS], (0..ROWS).map(|i| (i as f64).sin()).collect()).unwrap())
        .inner(|s, l, t| (t.0 - s.data("x")).square().mean_all() + (t.0 - l.0).square())
        .outer(|s, _, t| (t.0 * s.data("x") - 1.0).square().mean_all())
        .measure("mean", |s, _, t| (s.data("x") * t.0).mean_all())
        .build()
        .unwrap()
        .erase()
}

/// Bytes held after a call that were not held before, with what it gives back still alive.
fn growth<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.load(SeqCst);
    let made = make();
    (made, HELD.load(SeqCst).saturating_sub(before))
}

#[test]
fn the_data_of_a_session_are_held_once_for_all_chains_routines_and_evaluators() {
    let _alone = crate::ALONE.lock();
    let (problem, cpu) = (problem(), Cpu::with_threads(1));
    let (session, brought) = growth(|| Session::new(&problem, &cpu).unwrap());
    // A large block begins at a huge page and ends at one, of 2 MiB each.
    assert!((DATA..DATA + (5 << 20)).contains(&brought), "{brought} bytes for {DATA} of data");

    let adjoint = With(LangevinAdjoint::default(), InnerLoop::new(0.01, 2).at_temperature(1e-6));
    let used = |chains: usize| {
        growth(|| {
            let mut estimator = Chains::new(adjoint, chains).prepared(&session).unwrap();
            let mut state = session.state(Key::from_seed(1)).unwrap();
            let found = estimator.estimate(&mut state, Key::from_seed(2)).unwrap();
            (estimator, state, found)
        })
        .1
    };
    let (few, many) = (used(2), used(32));
    // A chain more brings its programs, and no data.
    let a_chain = many.saturating_sub(few) / 30;
    assert!(few < DATA / 10 && a_chain < DATA / 100, "{few} bytes for 2 chains, {many} for 32, {DATA} of data");

    let (_, others) = growth(|| {
        let methods: Vec<_> = (0..10).map(|_| Rmd::default().prepared(&session).unwrap()).collect();
        let evaluators: Vec<_> = (0..10)
            .map(|_| {
                let mut evaluator = session.evaluator().unwrap();
                evaluator.at(&session.state(Key::from_seed(1)).unwrap(), Key::from_seed(3)).unwrap();
                evaluator
            })
            .collect();
        (methods, evaluators)
    });
    assert!(others < DATA / 10, "{others} bytes for ten methods and ten evaluators, {DATA} of data");
}
