//! Methods that move θ, the linear system and λ together, against closed forms and against the method they are a case of.

mod quadratic;

use bilevel::{
    AnyMethod, AnyProblem, Checkpoints, Cpu, Driver, Error, Hypergradient, LangevinAdjoint, MaSoba, Method, Oracles,
    Soba, State,
};
use quadratic::*;

/// So many hypergradients in a row at the same λ and with the same draws: the last one, and the state it left.
fn settled(method: &dyn Method, problem: &AnyProblem, calls: usize) -> (State, Hypergradient) {
    let mut state = State::initial(problem, &Cpu::with_threads(1), key()).unwrap();
    let mut estimator = method.prepare(problem, &Cpu::with_threads(1)).unwrap();
    let found = (0..calls).map(|_| estimator.estimate(&mut state, key()).unwrap()).last().unwrap();
    (state, found)
}

fn oracles(inner: u64, outer: u64, hessian: u64, mixed: u64) -> Oracles {
    Oracles {
        inner_gradients: inner,
        outer_gradients: outer,
        hessian_products: hessian,
        mixed_products: mixed,
        losses: 0,
    }
}

#[test]
fn at_a_lambda_that_does_not_move_single_loops_settle_at_the_exact_hypergradient() {
    for (diagonal, direct) in [(false, false), (true, true)] {
        let quadratic = Quadratic { diagonal, direct, ..Quadratic::default() };
        let truth = quadratic.hypergradient(&LAMBDA, 0.0);
        for (method, calls) in [
            (&Soba { step: 0.4, steps: 1 } as &dyn Method, 400),
            (&Soba { step: 0.4, steps: 40 }, 10),
            (&MaSoba { step: 0.4, steps: 1, weight: 0.2 }, 500),
        ] {
            let (state, found) = settled(method, &quadratic.problem(), calls);
            assert!(distance(&numbers(&found.value), &truth) < 1e-13, "{method:?}");
            let minimum = quadratic.minimum(&LAMBDA, 0.0);
            let v = solve(quadratic.hessian(&LAMBDA), quadratic.f_theta(&LAMBDA, &minimum));
            assert!(distance(&numbers(&state.theta), &minimum) < 1e-13, "{method:?}");
            assert!(distance(&numbers(&state.memory)[..N], &v) < 1e-13, "{method:?}");
            assert!((found.outer_loss - quadratic.outer(&LAMBDA, &minimum)).abs() < 1e-13);
        }
    }
}

#[test]
fn soba_has_the_bits_of_the_langevin_adjoint_without_noise_that_keeps_its_last_step() {
    let problem = Quadratic::default().problem();
    for steps in [1, 7] {
        let adjoint = LangevinAdjoint {
            burn_in: steps - 1,
            samples: 1,
            step: 0.2,
            temperature: 0.0,
            ..LangevinAdjoint::default()
        };
        let (a, b) = (settled(&adjoint, &problem, 5), settled(&Soba { step: 0.2, steps }, &problem, 5));
        assert_eq!(a.1.value.arrays().unwrap(), b.1.value.arrays().unwrap());
        assert_eq!(a.0.snapshot().unwrap(), b.0.snapshot().unwrap());
    }
}

#[test]
fn a_moving_average_of_weight_one_is_soba_and_another_is_the_average_of_sobas_directions() {
    let problem = Quadratic::default().problem();
    let h = |method: &dyn Method, calls| numbers(&settled(method, &problem, calls).1.value);
    assert_eq!(h(&MaSoba { step: 0.2, steps: 2, weight: 1.0 }, 3), h(&Soba { step: 0.2, steps: 2 }, 3));
    let mut average = [0.0; N];
    for call in 1..6 {
        let newest = h(&Soba { step: 0.2, steps: 2 }, call);
        average = std::array::from_fn(|i| 0.75 * average[i] + 0.25 * newest[i]);
        assert!(distance(&h(&MaSoba { step: 0.2, steps: 2, weight: 0.25 }, call), &average) < 1e-15, "{call}");
    }
}

#[test]
fn single_loops_count_what_they_compute() {
    let problem = Quadratic::default().problem();
    for method in [&Soba { step: 0.1, steps: 7 } as &dyn Method, &MaSoba { step: 0.1, steps: 7, weight: 0.5 }] {
        assert_eq!(settled(method, &problem, 1).1.oracles, oracles(7, 7, 7, 1), "{}", method.name());
        assert!(method.shares_passes());
    }
}

fn refused(method: &dyn Method) -> &'static str {
    let error = method.prepare(&Quadratic::default().problem(), &Cpu::with_threads(1)).err().unwrap();
    let Error::Setting { name, .. } = error else { panic!("{error}") };
    name
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    assert_eq!(refused(&Soba { step: 0.0, ..Soba::default() }), "step");
    assert_eq!(refused(&Soba { steps: 0, ..Soba::default() }), "steps");
    assert_eq!(refused(&MaSoba { weight: 0.0, ..MaSoba::default() }), "weight");
    assert_eq!(refused(&MaSoba { weight: 1.1, ..MaSoba::default() }), "weight");
}

#[test]
fn what_another_method_kept_warm_is_refused() {
    let problem = Quadratic::default().problem();
    let (mut state, _) = settled(&MaSoba::default(), &problem, 1);
    let error = Soba::default().compile_alone(&problem).estimate(&mut state, key()).unwrap_err();
    assert!(error.to_string().contains("begin with State::initial"), "{error}");
}

/// Prepared without the diagnosis.
trait CompileAlone {
    fn compile_alone(&self, problem: &AnyProblem) -> Box<dyn bilevel::Estimator>;
}

impl<M: Method> CompileAlone for M {
    fn compile_alone(&self, problem: &AnyProblem) -> Box<dyn bilevel::Estimator> {
        self.compile(&bilevel::Session::new(problem, &Cpu::with_threads(1)).unwrap()).unwrap()
    }
}

/// Every method on one of two problems, one with λ in the start.
#[test]
fn a_run_of_any_method_that_is_resumed_has_the_bits_of_one_in_one_piece() {
    let mut seen = 0;
    for start in [false, true] {
        let problem = Quadratic { b: if start { identity(1.0) } else { B }, start, ..Quadratic::default() }.problem();
        for info in bilevel::methods() {
            let mut method = AnyMethod::named(info.name).unwrap();
            method.suit(&bilevel::Suited { step: 0.05, steps: 4, temperature: 0.01, curvature: 5.0 });
            if method.applies(&problem).is_err() {
                continue;
            }
            let folder = std::env::temp_dir().join(format!("bilevel-resumed-{}-{}", info.name, std::process::id()));
            let driver = |iterations| {
                Driver::new(&problem, method.clone())
                    .executor(Cpu::with_threads(1))
                    .rate(0.01)
                    .iterations(iterations)
                    .seed(3)
            };
            let saving = || Checkpoints::new(&folder).resume(true);
            driver(4).checkpoints(saving()).run().unwrap();
            let resumed = driver(9).checkpoints(saving()).run().unwrap();
            std::fs::remove_dir_all(&folder).unwrap();
            let whole = driver(9).run().unwrap();
            assert_eq!(whole.iterations, 9, "{}: {}", info.name, whole.reason);
            assert_eq!(resumed.state.snapshot().unwrap(), whole.state.snapshot().unwrap(), "{}", info.name);
            seen += 1;
        }
    }
    assert!(seen >= 24, "only {seen} methods apply to the two problems");
}
