//! Derivatives by hand: every method finds with them what it finds with the traced losses.

use crate::quadratic::{self, LAMBDA, N, Quadratic, Vector, distance, fixed, key, numbers};
use crate::with::{Usual, With};
use bilevel::checkpoints::Checkpoints;
use bilevel::graph::Reference;
use bilevel::methods::{AmigoCg, F2sa, Fmd, Hoag, IftNeumann, Nystrom, RmdFo, Soba, StocBio};
use bilevel::observers::Recorder;
use bilevel::oracle::{BilevelOracle, Oracle, OraclePoint, OracleResult};
use bilevel::prelude::*;
use bilevel::{Error, State};
use std::sync::{Arc, Mutex};

/// The quadratic of these tests, all of it by hand.
struct ByHand(Quadratic);

fn vector(values: &[f64]) -> Vector {
    values.try_into().unwrap()
}

impl BilevelOracle for ByHand {
    fn sizes(&self) -> (usize, usize) {
        (N, N)
    }

    fn inner_gradient(&self, at: &OraclePoint, gradient: &mut [f64]) -> OracleResult {
        let (lambda, theta) = (vector(at.lambda), vector(at.theta));
        let (pull, push) = (quadratic::times(&self.0.hessian(&lambda), &theta), quadratic::times(&self.0.b, &lambda));
        (0..N).for_each(|i| gradient[i] = pull[i] - push[i]);
        Ok(())
    }

    fn hessian_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
        product.copy_from_slice(&quadratic::times(&self.0.hessian(&vector(at.lambda)), &vector(v)));
        Ok(())
    }

    fn mixed_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
        product.copy_from_slice(&self.0.mixed(&vector(at.lambda), &vector(at.theta), &vector(v)));
        Ok(())
    }

    fn outer(&self, at: &OraclePoint, by_lambda: &mut [f64], by_theta: &mut [f64]) -> OracleResult<f64> {
        let (lambda, theta) = (vector(at.lambda), vector(at.theta));
        by_lambda.copy_from_slice(&self.0.f_lambda(&lambda, &theta));
        by_theta.copy_from_slice(&self.0.f_theta(&lambda, &theta));
        Ok(self.0.outer(&lambda, &theta))
    }

    fn inner_loss(&self, at: &OraclePoint) -> OracleResult<f64> {
        let (lambda, theta) = (vector(at.lambda), vector(at.theta));
        let dot = |a: &Vector, b: &Vector| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let curved = dot(&theta, &quadratic::times(&self.0.hessian(&lambda), &theta));
        Ok(0.5 * curved - dot(&theta, &quadratic::times(&self.0.b, &lambda)))
    }
}

fn by_hand() -> Problem<Leaf<Variable>, Leaf<Variable>> {
    let oracle = Oracle::new(ByHand(Quadratic::default()));
    oracle.problem(fixed(&LAMBDA).0, Variable::constant([N], 0.0)).unwrap()
}

/// The same problem traced, with λ and θ as one leaf each, so that noise is drawn alike.
fn traced() -> Problem<Leaf<Variable>, Leaf<Variable>> {
    let Quadratic { a, b, .. } = Quadratic::default();
    let array = |m: &quadratic::Matrix| bilevel::Array::from_f64([N, N], quadratic::flat(m)).unwrap();
    let target = bilevel::Array::from_f64([N], quadratic::TARGET.to_vec()).unwrap();
    let column = quadratic::column;
    Problem::builder(fixed(&LAMBDA), Leaf(Variable::constant([N], 0.0)))
        .data("a", array(&a))
        .data("b", array(&b))
        .data("t", target)
        .inner(move |s, l, t| {
            (column(t.0) * s.data("a").matmul(column(t.0))).sum_all() * 0.5
                - (column(t.0) * s.data("b").matmul(column(l.0))).sum_all()
                + (l.0.exp() * t.0.square()).sum_all() * 0.5
        })
        .outer(|s, l, t| {
            (t.0 - s.data("t")).square().sum_all() * 0.5 + (t.0 * l.0).sum_all() + (l.0 - 1.0).square().sum_all() * 0.5
        })
        .build()
        .unwrap()
}

/// The hypergradients of three calls in a row, the later ones with whatever the method keeps warm.
fn three(method: &dyn Method, problem: &bilevel::AnyProblem) -> Vec<f64> {
    let mut state = State::initial(problem, &Cpu::with_threads(1), key()).unwrap();
    let mut estimator = method.prepared_on(problem, &Cpu::with_threads(1)).unwrap();
    (0..3).flat_map(|call| numbers(&estimator.estimate(&mut state, key().fold_in(call)).unwrap().value)).collect()
}

#[test]
fn every_method_finds_with_products_by_hand_what_it_finds_with_traced_losses() {
    let noisy = With(LangevinAdjoint::default(), InnerLoop::new(0.05, 30).at_temperature(0.01));
    let methods: Vec<Box<dyn Method>> = vec![
        Box::new(With(IftCg { iterations: 4, ..IftCg::default() }, InnerLoop::new(0.2, 30))),
        Box::new(With(IftNeumann::default(), InnerLoop::new(0.2, 30))),
        Box::new(With(Nystrom { columns: 2, ..Nystrom::default() }, InnerLoop::new(0.2, 30))),
        Box::new(With(Hoag::default(), InnerLoop::new(0.2, 30))),
        Box::new(With(AmigoCg::default(), InnerLoop::new(0.2, 5))),
        Box::new(With(StocBio::default(), InnerLoop::new(0.2, 5))),
        Box::new(With(Soba::default(), InnerLoop::new(0.2, 5))),
        Box::new(With(Rmd::default(), InnerLoop::new(0.2, 30))),
        Box::new(With(RmdFo::default(), InnerLoop::new(0.2, 30))),
        Box::new(noisy),
        Box::new(With(HpoSgld::default(), InnerLoop { burn_in: 50, ..InnerLoop::new(0.05, 80).at_temperature(0.01) })),
    ];
    let (hand, traced) = (by_hand(), traced());
    for method in methods {
        let (found, wanted) = (three(&method, &hand), three(&method, &traced));
        assert!(wanted.iter().any(|h| h.abs() > 0.01), "{}: {wanted:?}", method.name());
        assert!(distance(&found, &wanted) < 1e-12, "{}: {found:?} {wanted:?}", method.name());
    }
}

#[test]
fn implicit_differentiation_finds_the_closed_form_on_both_executors_and_in_both_types() {
    let truth = Quadratic::default().hypergradient(&LAMBDA, 0.0);
    let method = With(IftCg { iterations: 8, ..IftCg::default() }, InnerLoop::new(0.2, 400));
    for (problem, tolerance) in [(by_hand(), 1e-10), (by_hand().in_dtype(bilevel::DType::F32).unwrap(), 1e-5)] {
        for executor in [&Cpu::with_threads(1) as &dyn bilevel::graph::Executor, &Reference] {
            let mut state = State::initial(&problem, executor, key()).unwrap();
            let found = method.prepared_on(&problem, executor).unwrap().estimate(&mut state, key()).unwrap();
            assert!(distance(&numbers(&found.value), &truth) < tolerance, "{:?} {truth:?}", numbers(&found.value));
        }
    }
}

#[test]
fn a_run_with_products_by_hand_has_diagnostics_and_is_resumed_to_the_same_bits() {
    let folder = std::env::temp_dir().join(format!("bilevel-oracle-{}", std::process::id()));
    let problem = by_hand();
    let method = With(LangevinAdjoint::default(), InnerLoop::new(0.1, 20).at_temperature(1e-3));
    let driver = |until| Driver::new(&problem, method).optimizer(Adam::default()).rate(0.02).iterations(until).seed(3);
    let recorder = Recorder::new();
    let whole = driver(30).observe(recorder.clone()).run().unwrap();
    assert_eq!(whole.notes, Vec::<String>::new());
    let first = recorder.iterations()[0].diagnostics;
    assert!(first.curvature.is_some(), "{first:?}");
    driver(13).checkpoints(Checkpoints::new(&folder)).run().unwrap();
    let resumed = driver(30).checkpoints(Checkpoints::new(&folder).resume(true)).run().unwrap();
    assert_eq!(resumed.state.snapshot().unwrap(), whole.state.snapshot().unwrap());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_check_of_a_problem_compares_methods_on_an_oracle_with_differences_of_training() {
    let method = With(IftCg { iterations: 8, ..IftCg::default() }, InnerLoop::new(0.2, 200));
    let problem = by_hand();
    let check = problem.check().method(With(Rmd::default(), InnerLoop::new(0.2, 20))).method(method);
    let reports = check.compare_methods().unwrap();
    assert!(reports[0].training().unwrap().error < 1e-8, "{reports:?}");
    assert!(reports[1].minimum().unwrap().error < 1e-8, "{reports:?}");
}

/// The quadratic with one product that is wrong.
struct Wrong(ByHand, &'static str);

impl BilevelOracle for Wrong {
    fn sizes(&self) -> (usize, usize) {
        self.0.sizes()
    }

    fn inner_gradient(&self, at: &OraclePoint, gradient: &mut [f64]) -> OracleResult {
        self.0.inner_gradient(at, gradient)
    }

    fn hessian_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
        self.0.hessian_product(at, v, product)?;
        match self.1 {
            "Hessian product" => product[1] *= 1.01,
            "symmetry of the Hessian" => product[0] += v[1],
            _ => {}
        }
        Ok(())
    }

    fn mixed_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
        self.0.mixed_product(at, v, product)?;
        product[2] *= if self.1 == "mixed product" { -1.0 } else { 1.0 };
        Ok(())
    }

    fn outer(&self, at: &OraclePoint, by_lambda: &mut [f64], by_theta: &mut [f64]) -> OracleResult<f64> {
        let value = self.0.outer(at, by_lambda, by_theta)?;
        match self.1 {
            "outer gradient by λ" => by_lambda[0] += 0.1,
            "outer gradient by θ" => by_theta[3] = 0.0,
            "failure" => return Err("the simulator ran out of fuel".into()),
            _ => {}
        }
        Ok(value)
    }

    fn inner_loss(&self, at: &OraclePoint) -> OracleResult<f64> {
        Ok(self.0.inner_loss(at)? * if self.1 == "inner gradient" { 2.0 } else { 1.0 })
    }
}

#[test]
fn the_check_of_an_oracle_names_the_product_that_is_wrong() {
    let check = |wrong| {
        let oracle = Oracle::new(Wrong(ByHand(Quadratic::default()), wrong));
        oracle.check(&LAMBDA, &[0.3, -0.5, 0.2, 0.9], 1).unwrap()
    };
    let right = check("nothing");
    assert_eq!(right.rows.len(), 6);
    assert!(right.largest() < 1e-9, "{right}");
    for row in &right.rows {
        let found = check(row.quantity);
        let bad = found.rows.iter().filter(|found| found.error > 1e-4).map(|row| row.quantity).collect::<Vec<_>>();
        assert!(bad.contains(&row.quantity), "{}: {found}", row.quantity);
    }
}

#[test]
fn an_error_of_the_users_code_ends_the_run_with_its_message() {
    let oracle = Oracle::new(Wrong(ByHand(Quadratic::default()), "failure"));
    let problem = oracle.problem(Variable::constant([N], 0.1), Variable::constant([N], 0.0)).unwrap();
    let error = Driver::new(&problem, IftCg::default()).iterations(3).run().unwrap_err();
    assert!(error.to_string().contains("the simulator ran out of fuel"), "{error}");
}

#[test]
fn methods_that_need_another_derivative_are_refused_with_one_that_does_not() {
    let problem = by_hand();
    let refused = |method: &dyn Method| method.prepared_on(&problem, &Cpu::with_threads(1)).err().unwrap().to_string();
    assert!(refused(&F2sa::default()).contains("such as ift-cg"), "{}", refused(&F2sa::default()));
    assert!(refused(&Fmd::default()).contains("such as rmd"), "{}", refused(&Fmd::default()));
    let oracle = Oracle::new(ByHand(Quadratic::default()));
    let wrong = oracle.problem(Variable::constant([N + 1], 0.0), Variable::constant([N], 0.0)).err();
    assert!(matches!(wrong, Some(Error::Variable { leaf, .. }) if leaf == "λ"));
}

/// θ follows targets that are drawn by the key; records the keys it is asked with.
struct Drawn(Arc<Mutex<Vec<(&'static str, Key)>>>);

impl Drawn {
    fn note(&self, product: &'static str, key: Key) {
        self.0.lock().unwrap().push((product, key));
    }
}

impl BilevelOracle for Drawn {
    fn sizes(&self) -> (usize, usize) {
        (1, 1)
    }

    fn inner_gradient(&self, at: &OraclePoint, gradient: &mut [f64]) -> OracleResult {
        self.note("gradient", at.key);
        gradient[0] = at.theta[0] - at.lambda[0];
        Ok(())
    }

    fn hessian_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
        self.note("hessian", at.key);
        product[0] = v[0];
        Ok(())
    }

    fn mixed_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
        self.note("mixed", at.key);
        product[0] = -v[0];
        Ok(())
    }

    fn outer(&self, at: &OraclePoint, by_lambda: &mut [f64], by_theta: &mut [f64]) -> OracleResult<f64> {
        self.note("outer", at.key);
        (by_lambda[0], by_theta[0]) = (0.0, at.theta[0]);
        Ok(0.5 * at.theta[0].powi(2))
    }

    fn is_random(&self) -> bool {
        true
    }
}

#[test]
fn products_of_one_step_share_a_key_and_every_step_and_level_has_its_own() {
    let calls = Arc::new(Mutex::new(vec![]));
    let problem =
        Oracle::new(Drawn(calls.clone())).problem(Variable::constant([1], 1.0), Variable::constant([1], 0.0)).unwrap();
    let mut state = State::initial(&problem, &Cpu::with_threads(1), key()).unwrap();
    let method = With(LangevinAdjoint::default(), InnerLoop::new(0.1, 4));
    let session = bilevel::Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let mut estimator = method.usual(&session).unwrap();
    calls.lock().unwrap().clear();
    estimator.estimate(&mut state, key()).unwrap();
    let calls = calls.lock().unwrap();
    let keys = |product| -> Vec<Key> { calls.iter().filter(|(of, _)| *of == product).map(|(_, key)| *key).collect() };
    let inner = keys("gradient");
    assert_eq!(inner.len(), 4);
    assert_eq!((keys("hessian"), keys("mixed")), (inner.clone(), inner.clone()));
    // One call of the oracle gives f, f_λ and f_θ of a step.
    assert_eq!(keys("outer").len(), 4);
    for (number, key) in inner.iter().enumerate() {
        assert!(!inner[..number].contains(key) && !keys("outer").contains(key), "{inner:?}");
    }
}
