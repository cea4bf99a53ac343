//! The paper's synthetic 1-D problem, protocol and numbers of the design.

use crate::with::{Usual, With};
use bilevel::methods::{HpoSgld, LangevinAdjoint};
use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, State, Variable};

fn synthetic() -> Problem {
    Problem::builder(Leaf(Variable::constant([], 0.1)), Leaf(Variable::constant([], 0.1)))
        .inner(|_, l, t| t.0 * t.0 * t.0 / 3.0 - (1.0 - l.0 * l.0) * t.0)
        .outer(|_, l, t| (l.0 - t.0).square() + (t.0 - 0.5).square())
        .build()
        .unwrap()
        .erase()
}

/// Plain SGD on λ with θ warm; the last λ and the θ from before the last update.
fn descend(method: &dyn Method, outers: u32, seed: u64) -> (f64, f64) {
    let problem = synthetic();
    let mut estimator = method.prepared_on(&problem, &Cpu::with_threads(1)).unwrap();
    let key = Key::from_seed(seed);
    let mut state = State::initial(&problem, &Cpu::with_threads(1), key).unwrap();
    for outer in 0..outers {
        let h = estimator.estimate(&mut state, key.fold_in(10 + outer)).unwrap();
        let lambda = state.lambda[0].item().unwrap() - 0.005 * h.value[0].item().unwrap();
        state.lambda[0].set_item(lambda).unwrap();
    }
    (state.lambda[0].item().unwrap(), state.theta[0].item().unwrap())
}

#[test]
fn hpo_sgld_as_printed_lands_where_the_design_measured() {
    let method = With(HpoSgld::default(), InnerLoop { burn_in: 50, ..InnerLoop::new(0.005, 100).at_temperature(1e-6) });
    let (lambda, theta) = descend(&method, 200, 1);
    assert!((lambda - 0.7369).abs() < 5e-4 && (theta - 0.6756).abs() < 1.5e-3, "{lambda} {theta}");
    let (lambda, _) = descend(&With(method.0, InnerLoop { step: 0.01, ..method.1 }), 200, 1);
    assert!((lambda - 0.7489).abs() < 5e-4, "{lambda}");
}

#[test]
fn the_langevin_adjoint_finds_the_optimum() {
    for step in [0.001, 0.005, 0.05] {
        let method = With(LangevinAdjoint::default(), InnerLoop::new(step, 100));
        let (lambda, _) = descend(&method, 3000, 1);
        assert!((lambda - 0.74894).abs() < 3e-5, "γ = {step}: {lambda}");
    }
}
