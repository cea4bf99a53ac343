//! Memory of the estimators that unroll the inner loop.

use crate::counting::peak_here;
use crate::with::{Usual, With};
use bilevel::methods::{Covariance, Es, Fmd, HpoSgld, LangevinAdjoint, Rmd, RmdFo, Storage};
use bilevel::{Cpu, Estimator, InnerLoop, Key, Leaf, Method, Problem, Session, State, Variable};

/// A θ of 1000 numbers.
fn wide() -> Problem {
    Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([1000], 0.0)))
        .inner(|_, l, t| (t.0 - l.0).square().sum_all() / 2.0)
        .outer(|_, l, t| t.0.square().sum_all() + l.0)
        .build()
        .unwrap()
        .erase()
}

#[test]
fn checkpoints_keep_the_square_root_of_what_reverse_mode_keeps() {
    let _alone = crate::ALONE.lock();
    let problem = wide();
    let theta = 8000;
    let measure = |steps, storage| {
        let method = With(Rmd { storage }, InnerLoop::new(0.01, steps));
        let mut rmd = method.0.prepare_rmd(&Session::new(&problem, &Cpu::with_threads(1)).unwrap(), &method.1).unwrap();
        let mut state = State::initial(&problem, &Cpu::with_threads(1), Key::from([0, 0])).unwrap();
        assert_eq!(rmd.stored_bytes(), 0);
        let held = peak_here(|| drop(rmd.estimate(&mut state, Key::from([0, 0]), 0.01).unwrap()));
        let again = peak_here(|| drop(rmd.estimate(&mut state, Key::from([0, 0]), 0.01).unwrap()));
        assert!(again < 20 * theta as isize, "the second estimate takes new memory: {again}");
        (rmd.stored_bytes() / theta, held / theta as isize)
    };
    for (steps, most) in [(100, 20), (2500, 100)] {
        let (stored, held) = measure(steps, Storage::Checkpoints);
        assert_eq!(stored, most, "{steps} steps");
        assert!(held < most as isize + 20, "{held} times θ were allocated for {steps} steps");
        assert_eq!(measure(steps, Storage::All).0, steps + 1);
        assert_eq!(measure(steps, Storage::Truncated(10)).0, 11);
    }
}

#[test]
fn memory_of_the_chain_estimators_does_not_grow_with_the_steps() {
    let _alone = crate::ALONE.lock();
    let problem = wide();
    let measure = |method: &dyn Method| {
        let mut state = State::initial(&problem, &Cpu::with_threads(1), Key::from([0, 0])).unwrap();
        peak_here(|| {
            drop(
                method
                    .prepared_on(&problem, &Cpu::with_threads(1))
                    .unwrap()
                    .estimate(&mut state, Key::from([0, 0]))
                    .unwrap(),
            )
        })
    };
    let flat = |method: &dyn Fn(usize) -> Box<dyn Method>| {
        // With fewer than 20 samples a chain does not count what they are worth, and has a smaller program.
        let (short, long) = (measure(&*method(20)), measure(&*method(2000)));
        let name = method(1).name();
        assert!((long - short).abs() < 2000, "{name}: {short} bytes for 40 steps, {long} for 4000");
    };
    flat(&|n| {
        Box::new(With(HpoSgld::default(), InnerLoop { burn_in: n, ..InnerLoop::new(0.01, 2 * n).at_temperature(1e-6) }))
    });
    flat(&|n| {
        Box::new(With(
            LangevinAdjoint::default(),
            InnerLoop { burn_in: n, ..InnerLoop::new(0.01, 2 * n).at_temperature(1e-6) },
        ))
    });
    flat(&|n| {
        Box::new(With(
            Covariance::default(),
            InnerLoop { burn_in: n, ..InnerLoop::new(0.01, n + 2 * n).at_temperature(0.1) },
        ))
    });
    flat(&|n| Box::new(With(Fmd::default(), InnerLoop::new(0.01, 2 * n))));
    flat(&|n| Box::new(With(RmdFo::default(), InnerLoop::new(0.01, 2 * n))));
    flat(&|n| Box::new(With(Es { directions: 2, ..Es::default() }, InnerLoop::new(0.01, 2 * n))));
}

// ---- Refusals ----
