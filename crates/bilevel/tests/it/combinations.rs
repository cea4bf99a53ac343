//! Implicit methods as combinations of a solver, a warm start, a tolerance and a curvature.

use crate::quadratic::*;
use bilevel::methods::{
    AmigoCg, AmigoSgd, Combination, CurvatureProduct, Fall, Hoag, IftNeumann, Imaml, NamedCombination, Nystrom, Solver,
    StocBio, Tolerance,
};
use bilevel::prelude::*;
use bilevel::{AnyProblem, Session};

const GRADIENTS: Solver = Solver::ConjugateGradients { iterations: 8, regularisation: 0.0 };
const INNER: InnerLoop = InnerLoop::new(0.4, 400);

/// The bits of three hypergradients, one after the other.
fn three(method: &dyn Method, problem: &AnyProblem) -> Vec<Vec<u64>> {
    let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
    let mut estimator = method.compile(&session, &INNER).unwrap();
    let mut state = session.state(Key::from_seed(2)).unwrap();
    let bits = |call| {
        let found = estimator.estimate(&mut state, Key::from_seed(call), INNER.step).unwrap();
        [found.value.numbers(), state.memory.numbers()].into_iter().flat_map(Result::unwrap).map(f64::to_bits).collect()
    };
    (0..3).map(bits).collect()
}

#[test]
fn a_name_gives_the_bits_of_its_combination() {
    fn check(method: impl NamedCombination, problem: &AnyProblem) {
        assert_eq!(three(&method, problem), three(&method.combination(), problem), "{method:?}");
    }
    let problem = Quadratic::default().problem();
    check(IftCg::default(), &problem);
    check(AmigoCg::default(), &problem);
    check(AmigoSgd { beta: 0.4, ..AmigoSgd::default() }, &problem);
    check(Hoag { fall: Fall::Cubic, ..Hoag::default() }, &problem);
    check(IftNeumann::default(), &problem);
    check(StocBio::default(), &problem);
    check(Nystrom { columns: 2, ..Nystrom::default() }, &problem);
    let started = Problem::builder(fixed(&LAMBDA), fixed(&[0.0; N]))
        .inner(|_, _, t| (t.0 - 1.0).square().sum_all())
        .outer(|_, _, t| t.0.square().sum_all())
        .start(|_, l| *l)
        .build()
        .unwrap();
    check(Imaml { rho: 0.3, ..Imaml::default() }, &started);
}

#[test]
fn combinations_without_a_name_agree_with_a_dense_solve() {
    let quadratic = Quadratic::default();
    let (problem, truth) = (quadratic.problem(), quadratic.hypergradient(&LAMBDA, 0.0));
    let tolerance = Some(Tolerance { first: 1e-12, fall: Fall::Exponential });
    let gauss_newton = CurvatureProduct::GaussNewton;
    let cold = Combination { tolerance, ..Combination::new(GRADIENTS) };
    let richardson = Combination::new(Solver::Richardson { beta: 0.4, iterations: 600 });
    for combination in [
        cold,
        Combination { warm_start: true, curvature: gauss_newton, ..cold },
        richardson,
        Combination { curvature: gauss_newton, ..richardson },
        Combination {
            curvature: gauss_newton,
            ..Combination::new(Solver::StochasticNeumann { alpha: 0.4, terms: 600 })
        },
        Combination {
            curvature: gauss_newton,
            ..Combination::new(Solver::Nystrom { columns: N, regularisation: 1e-6 })
        },
    ] {
        let last = three(&combination, &problem).pop().unwrap();
        let value: Vec<f64> = last[..N].iter().map(|bits| f64::from_bits(*bits)).collect();
        // The Nyström solve is biased by ρ over the least curvature, 0.3; all others have converged.
        let near = if matches!(combination.solver, Solver::Nystrom { .. }) { 3e-5 } else { 1e-10 };
        assert!(distance(&value, &truth) < near, "{combination:?}: {value:?} {truth:?}");
    }
}

#[test]
fn what_cannot_be_combined_is_refused() {
    let refused = |combination: Combination| {
        let problem = Quadratic::default().problem();
        let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
        combination.compile(&session, &INNER).err().expect("a refusal").to_string()
    };
    let series = Combination::new(Solver::Neumann { alpha: 0.1, terms: 3, final_alpha: true });
    let tolerance = Some(Tolerance { first: 0.1, fall: Fall::Quadratic });
    for (combination, sentence) in [
        (
            Combination { warm_start: true, ..series },
            "warm_start is true but must be false with a solver that does not iterate",
        ),
        (
            Combination { tolerance, ..series },
            "tolerance is 0.1 but must be absent with a solver other than conjugate gradients",
        ),
        (
            Combination { proximal: Some(2.0), ..series },
            "rho is 2 but must be absent with a solver other than conjugate gradients",
        ),
        (Combination::new(Solver::Nystrom { columns: 0, regularisation: 1.0 }), "columns is 0 but must be at least 1"),
        (Combination { proximal: Some(0.0), ..Combination::new(GRADIENTS) }, "rho is 0 but must be above 0"),
    ] {
        assert_eq!(refused(combination), sentence);
    }
    // λ is not where this training starts.
    let apart = refused(Combination { proximal: Some(1.0), ..Combination::new(GRADIENTS) });
    assert!(apart.starts_with("combination ") && apart.contains("it needs θ⁰ = λ"), "{apart}");
}
