//! Methods that move θ, the linear system and λ together, against closed forms and against the method they are a case of.

use crate::quadratic::*;
use crate::with::{Compiled, Usual, With};
use bilevel::checkpoints::Checkpoints;
use bilevel::methods::{AnyMethod, MaSoba, Oracles, Saba, Soba, Srba};
use bilevel::prelude::*;
use bilevel::{AnyProblem, Error, Hypergradient, Session, State};

/// This many hypergradients in a row at the same λ and with the same draws: the last one, and the state it left.
fn settled(method: &dyn Method, problem: &AnyProblem, calls: usize) -> (State, Hypergradient) {
    let mut state = State::initial(problem, &Cpu::with_threads(1), key()).unwrap();
    let mut estimator = method.prepared_on(problem, &Cpu::with_threads(1)).unwrap();
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
            (&With(Soba::default(), InnerLoop::new(0.4, 1)) as &dyn Method, 400),
            (&With(Soba::default(), InnerLoop::new(0.4, 40)), 10),
            (&With(MaSoba { weight: 0.2 }, InnerLoop::new(0.4, 1)), 500),
            (&With(Saba::default(), InnerLoop::new(0.4, 1)), 400),
            (&With(Saba::default(), InnerLoop::new(0.4, 40)), 10),
            (&With(Srba { period: 3 }, InnerLoop::new(0.4, 1)), 400),
            (&With(Srba { period: 7 }, InnerLoop::new(0.4, 40)), 10),
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
        let adjoint = With(LangevinAdjoint::default(), InnerLoop { burn_in: steps - 1, ..InnerLoop::new(0.2, steps) });
        let (a, b) =
            (settled(&adjoint, &problem, 5), settled(&With(Soba::default(), InnerLoop::new(0.2, steps)), &problem, 5));
        assert_eq!(a.1.value.arrays().unwrap(), b.1.value.arrays().unwrap());
        let (adjoint, soba) = (a.0.snapshot().unwrap(), b.0.snapshot().unwrap());
        assert_eq!((&adjoint.lambda, &adjoint.theta), (&soba.lambda, &soba.theta));
        // The adjoint also remembers how long it may be.
        assert_eq!(adjoint.memory[..soba.memory.len()], soba.memory);
    }
}

#[test]
fn a_moving_average_of_weight_one_is_soba_and_another_is_the_average_of_sobas_directions() {
    let problem = Quadratic::default().problem();
    let h = |method: &dyn Method, calls| numbers(&settled(method, &problem, calls).1.value);
    assert_eq!(
        h(&With(MaSoba { weight: 1.0 }, InnerLoop::new(0.2, 2)), 3),
        h(&With(Soba::default(), InnerLoop::new(0.2, 2)), 3)
    );
    let mut average = [0.0; N];
    for call in 1..6 {
        let newest = h(&With(Soba::default(), InnerLoop::new(0.2, 2)), call);
        average = std::array::from_fn(|i| 0.75 * average[i] + 0.25 * newest[i]);
        assert!(distance(&h(&With(MaSoba { weight: 0.25 }, InnerLoop::new(0.2, 2)), call), &average) < 1e-15, "{call}");
    }
}

#[test]
fn single_loops_count_what_they_compute() {
    let problem = Quadratic::default().problem();
    for method in [
        &With(Soba::default(), InnerLoop::new(0.1, 7)) as &dyn Method,
        &With(MaSoba { weight: 0.5 }, InnerLoop::new(0.1, 7)),
    ] {
        assert_eq!(settled(method, &problem, 1).1.oracles, oracles(7, 7, 7, 1), "{}", method.name());
        assert!(method.shares_passes());
    }
    // Without minibatches there is one to look at: for the table, and at all of them in two of seven steps.
    assert_eq!(settled(&With(Saba::default(), InnerLoop::new(0.1, 7)), &problem, 1).1.oracles, oracles(8, 8, 8, 8));
    assert_eq!(
        settled(&With(Srba { period: 4 }, InnerLoop::new(0.1, 7)), &problem, 1).1.oracles,
        oracles(12, 12, 12, 12)
    );
    // The table is filled once.
    assert_eq!(settled(&With(Saba::default(), InnerLoop::new(0.1, 7)), &problem, 2).1.oracles, oracles(7, 7, 7, 7));
}

fn refused(method: &dyn Method) -> &'static str {
    let error = method.prepared_on(&Quadratic::default().problem(), &Cpu::with_threads(1)).err().unwrap();
    let Error::Setting { name, .. } = error else { panic!("{error}") };
    name
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    assert_eq!(refused(&With(Soba::default(), InnerLoop::new(0.0, 1))), "step");
    assert_eq!(refused(&With(Soba::default(), InnerLoop::new(0.01, 0))), "steps");
    assert_eq!(refused(&MaSoba { weight: 0.0 }), "weight");
    assert_eq!(refused(&MaSoba { weight: 1.1 }), "weight");
}

#[test]
fn what_another_method_kept_warm_is_refused() {
    let problem = Quadratic::default().problem();
    let (mut state, _) = settled(&MaSoba::default(), &problem, 1);
    let error = Soba::default().compile_alone(&problem).estimate(&mut state, key()).unwrap_err();
    assert!(error.to_string().contains("start with State::initial"), "{error}");
}

/// Prepared without the diagnosis.
trait CompileAlone {
    fn compile_alone(&self, problem: &AnyProblem) -> Compiled;
}

impl<M: Method> CompileAlone for M {
    fn compile_alone(&self, problem: &AnyProblem) -> Compiled {
        self.usual(&bilevel::Session::new(problem, &Cpu::with_threads(1)).unwrap()).unwrap()
    }
}

// ---- Minibatches ----

/// Rows of x and y, of which the inner loss takes minibatches of 3 of 12 and the outer of 4 of 10.
const INNER: [f64; 24] = [
    1.0, 0.3, 0.7, -0.6, 1.4, 0.9, 0.8, -0.1, 1.9, 0.5, 0.6, 1.1, 1.2, -0.8, 0.9, 0.4, 1.1, 0.2, 1.6, -0.3, 0.5, 0.7,
    1.3, 0.0,
];
const OUTER: [f64; 20] =
    [0.9, 0.5, 1.3, -0.2, 0.4, 0.8, 1.7, 0.1, 1.0, 0.6, 0.7, -0.4, 1.1, 0.3, 0.8, 0.9, 1.5, 0.0, 0.6, 0.2];
const AT: f64 = 0.7;

/// L_T = mean of ½x·θ² − y·λ·θ + ½e^λ·θ², f = mean of ½(x·θ − y)² + y·λ·θ.
fn finite_sum(inner: fn(&Scope) -> Tensor, outer: fn(&Scope) -> Tensor) -> Problem {
    finite_sum_of(DType::F64, inner, outer)
}

fn finite_sum_of(dtype: DType, inner: fn(&Scope) -> Tensor, outer: fn(&Scope) -> Tensor) -> Problem {
    let rows = |values: &[f64]| Array::from_f64([values.len() / 2, 2], values.to_vec()).unwrap();
    let columns = |s: &Scope, name: &str, rows: Tensor| {
        let taken = s.data(name).take(rows);
        [0, 1].map(|column| taken.index(1, column))
    };
    Problem::builder(Leaf(Variable::constant([], AT)), Leaf(Variable::constant([], 0.2)))
        .dtype(dtype)
        .data("inner", rows(&INNER))
        .data("outer", rows(&OUTER))
        .inner(move |s, l, t| {
            let [x, y] = columns(s, "inner", inner(s));
            (x * t.0.square() * 0.5 - y * l.0 * t.0).mean_all() + l.0.exp() * t.0.square() * 0.5
        })
        .outer(move |s, l, t| {
            let [x, y] = columns(s, "outer", outer(s));
            ((x * t.0 - y).square() * 0.5 + y * l.0 * t.0).mean_all()
        })
        .build()
        .unwrap()
        .erase()
}

fn in_epochs() -> Problem {
    in_epochs_of(DType::F64)
}

fn in_epochs_of(dtype: DType) -> Problem {
    finite_sum_of(dtype, |s| s.epochs(12, 3), |s| s.epochs(10, 4))
}

/// The hypergradient with all rows at once, by hand.
fn of_all_rows() -> f64 {
    let mean = |rows: &[f64], term: fn(f64, f64) -> f64| {
        rows.chunks(2).map(|row| term(row[0], row[1])).sum::<f64>() / (rows.len() / 2) as f64
    };
    let curvature = mean(&INNER, |x, _| x) + AT.exp();
    let pull = mean(&INNER, |_, y| y);
    let theta = pull * AT / curvature;
    let f_theta = mean(&OUTER, |x, _| x * x) * theta - mean(&OUTER, |x, y| x * y) + mean(&OUTER, |_, y| y) * AT;
    let mixed = AT.exp() * theta - pull;
    mean(&OUTER, |_, y| y) * theta - f_theta / curvature * mixed
}

/// The hypergradients of calls with a key each.
fn calls(method: &dyn Method, problem: &AnyProblem, count: u64) -> Vec<f64> {
    let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
    let (mut estimator, mut state) = (method.usual(&session).unwrap(), session.state(key()).unwrap());
    let mut one = |call| estimator.estimate(&mut state, Key::from_seed(call)).unwrap().value[0].item().unwrap();
    (0..count).map(&mut one).collect()
}

#[test]
fn with_variance_reduction_minibatches_end_at_the_hypergradient_of_all_rows_and_without_it_they_do_not() {
    let truth = of_all_rows();
    let worst = |method: &dyn Method, from: usize| {
        let found = calls(method, &in_epochs(), 600);
        found[from..].iter().map(|h| (h - truth).abs()).fold(0.0, f64::max)
    };
    for method in [
        &With(Saba::default(), InnerLoop::new(0.1, 1)) as &dyn Method,
        &With(Srba { period: 0 }, InnerLoop::new(0.1, 1)),
    ] {
        let (early, late) = (worst(method, 20), worst(method, 500));
        assert!(early > 1e-6 && late < 1e-13, "{}: {early} and then {late}", method.name());
    }
    let late = worst(&With(Soba::default(), InnerLoop::new(0.1, 1)), 500);
    assert!(late > 1e-3, "{late}");
}

/// The five tables that SABA keeps after v, and their means.
fn tables_and_means(state: &State) -> Vec<(Vec<f64>, f64)> {
    let tables = state.memory[1..6].iter().zip(&state.memory[6..11]);
    tables.map(|(table, mean)| (table.to_array().unwrap().to_f64(), mean.item().unwrap())).collect()
}

#[test]
fn the_means_that_saba_carries_along_stay_those_of_its_tables_over_thousands_of_steps() {
    for (dtype, epsilon) in [(DType::F64, f64::EPSILON), (DType::F32, f32::EPSILON as f64)] {
        let problem = in_epochs_of(dtype);
        let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
        let mut estimator = With(Saba::default(), InnerLoop::new(0.1, 10)).usual(&session).unwrap();
        let mut state = session.state(key()).unwrap();
        // By table: the largest number it has had, and how far its mean was from it at worst.
        let (mut largest, mut worst) = ([0f64; 5], [0f64; 5]);
        for call in 0..5000 {
            // λ moves to and fro, so that the rows change in every step.
            let lambda = AT + (call as f64).sin();
            state.lambda.write(&[Array::scalar(lambda, dtype)]).unwrap();
            estimator.estimate(&mut state, Key::from_seed(call)).unwrap();
            for (i, (table, mean)) in tables_and_means(&state).into_iter().enumerate() {
                largest[i] = table.iter().fold(largest[i], |largest, row| largest.max(row.abs()));
                worst[i] = worst[i].max((mean - table.iter().sum::<f64>() / table.len() as f64).abs());
            }
        }
        // With n rows, a step rounds a mean by ε/2 of the largest number, and a row and the change of a mean by that and twice that
        // over n; the whole table is looked at, with n roundings, every 9 steps.
        for (worst, largest) in worst.iter().zip(largest) {
            assert!(
                *worst < (9.0 * 1.75 + 4.0) * epsilon / 2.0 * largest,
                "{dtype}: {worst} where rows are up to {largest}"
            );
        }
    }
}

#[test]
fn a_step_of_saba_changes_one_row_of_each_of_its_tables() {
    let session = Session::new(&in_epochs(), &Cpu::with_threads(1)).unwrap();
    let mut estimator = With(Saba::default(), InnerLoop::new(0.1, 1)).usual(&session).unwrap();
    let mut state = session.state(key()).unwrap();
    estimator.estimate(&mut state, Key::from_seed(0)).unwrap();
    for call in 1..20 {
        let before = tables_and_means(&state);
        estimator.estimate(&mut state, Key::from_seed(call)).unwrap();
        for ((before, _), (after, _)) in before.iter().zip(tables_and_means(&state)) {
            let changed = before.iter().zip(&after).filter(|(before, after)| before != after).count();
            assert!(changed <= 1, "{before:?} became {after:?}");
        }
    }
}

#[test]
fn losses_that_draw_nothing_make_variance_reduction_the_same_as_none() {
    let problem = Quadratic::default().problem();
    let soba = settled(&With(Soba::default(), InnerLoop::new(0.2, 3)), &problem, 4).1.value;
    for method in [
        &With(Saba::default(), InnerLoop::new(0.2, 3)) as &dyn Method,
        &With(Srba { period: 5 }, InnerLoop::new(0.2, 3)),
    ] {
        let found = settled(method, &problem, 4).1.value;
        assert!(distance(&numbers(&found), &numbers(&soba)) < 1e-14, "{}", method.name());
    }
}

#[test]
fn a_look_at_all_minibatches_is_counted_minibatch_by_minibatch() {
    let session = Session::new(&in_epochs(), &Cpu::with_threads(1)).unwrap();
    let counts = |method: &dyn Method| {
        let mut state = session.state(key()).unwrap();
        method.usual(&session).unwrap().estimate(&mut state, key()).unwrap().oracles
    };
    // Four minibatches inside and five outside, where two epochs make five of four rows.
    assert_eq!(counts(&With(Saba::default(), InnerLoop::new(0.1, 2))), oracles(7, 7, 7, 7));
    assert_eq!(counts(&With(Srba { period: 0 }, InnerLoop::new(0.1, 2))), oracles(6, 7, 6, 6));
}

#[test]
fn a_problem_that_is_no_mean_over_minibatches_is_refused_with_what_it_does() {
    let refused = |problem: &AnyProblem| {
        let said = ["saba", "srba"].map(|name| {
            let error = AnyMethod::named(name).unwrap().applies(problem).unwrap_err();
            assert!(matches!(error, Error::NotApplicable { .. }), "{error}");
            error.to_string()
        });
        assert!(
            said[0].starts_with("saba does not apply: it needs losses that are means")
                && said[1].contains("or use soba")
        );
        said[0].clone()
    };
    let replaced = finite_sum(|s| s.minibatch(12, 3), |s| s.epochs(10, 4));
    assert!(refused(&replaced).contains("the inner loss draws minibatches with replacement"));
    let task = finite_sum(|s| s.epochs(12, 3), |s| s.episode().epochs(10, 4));
    assert!(refused(&task).contains("the outer loss draws a task for every hypergradient"));
    let noise = Problem::builder(Leaf(Variable::constant([], 0.5)), Leaf(Variable::constant([], 0.0)))
        .inner(|s, l, t| (t.0 - l.0).square() + s.normal([]) * t.0)
        .outer(|_, _, t| t.0)
        .build()
        .unwrap();
    assert!(refused(&noise).contains("the inner loss draws random numbers in every step"));
}

#[test]
fn a_run_of_any_method_that_is_resumed_has_the_bits_of_one_in_one_piece() {
    let mut seen = 0;
    let quadratic = |start| Quadratic { start, ..Quadratic::default() }.problem();
    let single = Quadratic { dtype: DType::F32, ..Quadratic::default() }.problem();
    for problem in [quadratic(false), quadratic(true), single, in_epochs()] {
        for info in bilevel::methods::all() {
            let mut method = AnyMethod::named(info.name).unwrap();
            let inner = method.tune(InnerLoop::new(0.05, 4).at_temperature(0.01), 5.0);
            if method.applies(&problem).is_err() {
                continue;
            }
            let folder = std::env::temp_dir().join(format!("bilevel-resumed-{}-{}", info.name, std::process::id()));
            let driver = |iterations| {
                Driver::new(&problem, method.clone())
                    .inner(inner)
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
    assert!(seen >= 80, "only {seen} methods apply to the problems");
}
