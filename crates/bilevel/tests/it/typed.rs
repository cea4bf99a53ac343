//! λ and θ go in and come out as the structs of the problem.

use crate::with::{Usual, With};
use bilevel::prelude::*;
use bilevel::training::Evaluator;
use bilevel::{Session, State};

#[derive(Clone, Tree)]
struct Decay<T> {
    log: T,
    shift: T,
}

#[derive(Clone, Tree)]
struct Layer<T> {
    weight: T,
    bias: Option<T>,
}

#[derive(Clone, Tree)]
struct Net<T> {
    /// Frozen.
    first: T,
    layers: Vec<Layer<T>>,
    /// Frozen.
    last: T,
}

fn numbers(values: &[f64]) -> Array {
    Array::from_f64([values.len()], values.to_vec()).unwrap()
}

fn problem() -> Problem<Decay<Variable>, Net<Variable>> {
    let lambda = Decay { log: Variable::constant([2], -1.0).at_most(3.0), shift: Variable::constant([], 0.5) };
    let theta = Net {
        first: Variable::fixed(numbers(&[1.0, 2.0])).frozen(),
        layers: vec![
            Layer { weight: Variable::normal([2], 0.5), bias: Some(Variable::constant([], 0.25)) },
            Layer { weight: Variable::constant([2], 1.5), bias: None },
        ],
        last: Variable::constant([], 3.0).frozen(),
    };
    Problem::builder(lambda, theta)
        .dtype(DType::F32)
        .inner(|_, l, t| {
            let [one, two] = [&t.layers[0], &t.layers[1]];
            let bias = one.bias.map_or(l.shift, |bias| bias);
            (one.weight * t.first - 1.0).square().sum_all()
                + (two.weight - t.last).square().sum_all()
                + (bias - l.shift).square()
                + (l.log.exp() * two.weight.square()).sum_all()
        })
        .outer(|_, _, t| (t.layers[1].weight - t.first).square().sum_all() + t.layers[0].weight.square().sum_all())
        .measure("first of λ", |_, l, _| l.log.index(0, 0))
        .build()
        .unwrap()
}

fn method() -> With<Rmd> {
    With(Rmd::default(), InnerLoop::new(0.05, 5))
}

#[test]
fn a_run_gives_back_lambda_and_theta_in_the_structs_of_the_problem_frozen_leaves_included() {
    let outcome = Driver::new(&problem(), method()).iterations(3).run().unwrap();
    let log = outcome.lambda.log.to_f64();
    assert_eq!([log.as_slice(), &outcome.lambda.shift.to_f64()].concat(), outcome.state.lambda.numbers().unwrap());
    assert!(log[0] != -1.0 && outcome.lambda.log.shape() == [2]);
    let Net { first, layers, last } = &outcome.theta;
    assert_eq!((first.to_f64(), last.to_f64()), (vec![1.0, 2.0], vec![3.0]));
    assert_eq!(layers[0].weight, outcome.state.theta.array(0).unwrap());
    assert_eq!(layers[0].bias.as_ref(), Some(&outcome.state.theta.array(1).unwrap()));
    assert_eq!(layers[1].weight, outcome.state.theta.array(2).unwrap());
    assert!(layers[1].bias.is_none() && first.dtype() == DType::F32);
}

#[test]
fn an_erased_problem_runs_alike_and_gives_leaves_by_name() {
    let typed = Driver::new(&problem(), method()).iterations(3).run().unwrap();
    let erased: Vec<Problem> = vec![problem().erase()];
    let outcome = Driver::new(&erased[0], method()).iterations(3).run().unwrap();
    assert_eq!(outcome.lambda.names(), ["log", "shift"]);
    assert_eq!(outcome.theta.names(), ["first", "layers.0.weight", "layers.0.bias", "layers.1.weight", "last"]);
    assert_eq!(outcome.lambda.get("log"), Some(&typed.lambda.log));
    assert_eq!(outcome.theta.leaves(), typed.theta.leaves());
    // Debug needs nothing of the user's structs.
    assert!(format!("{typed:?}").contains("layers.0.bias"));
}

#[test]
fn a_state_goes_to_the_structs_and_back_unchanged() {
    let (problem, cpu) = (problem(), Cpu::with_threads(1));
    let state = State::initial(&problem, &cpu, Key::from_seed(5)).unwrap();
    let (lambda, theta) = (problem.lambda_of(&state.lambda).unwrap(), problem.theta_of(&state.theta).unwrap());
    let back = problem.state_at(&lambda, &theta, &cpu).unwrap();
    assert_eq!(back.snapshot().unwrap(), state.snapshot().unwrap());
    let mut evaluator = Evaluator::new(&problem, &cpu).unwrap();
    let key = Key::from_seed(0);
    assert_eq!(evaluator.at(&back, key).unwrap(), evaluator.at(&state, key).unwrap());
}

#[test]
fn hypergradients_come_in_the_struct_of_lambda() {
    let problem = problem();
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let key = Key::from_seed(1);
    let h = method().prepared(&session).unwrap().estimate(&mut session.state(key).unwrap(), key).unwrap();
    let typed = problem.lambda_of(&h.value).unwrap();
    assert_eq!((typed.log.to_f64().len(), typed.shift.to_f64()), (2, vec![0.0]));
}

#[test]
fn values_that_do_not_fit_are_refused_with_the_leaf_and_the_reason() {
    let (problem, cpu) = (problem(), Cpu::with_threads(1));
    let state = State::initial(&problem, &cpu, Key::from_seed(5)).unwrap();
    let (lambda, theta) = (problem.lambda_of(&state.lambda).unwrap(), problem.theta_of(&state.theta).unwrap());
    let said =
        |lambda: Decay<Array>, theta: Net<Array>| problem.state_at(&lambda, &theta, &cpu).unwrap_err().to_string();
    let log = |log: Array| Decay { log, ..lambda.clone() };
    assert_eq!(said(log(numbers(&[1.0])), theta.clone()), "λ.log has the shape [1] and must have [2]");
    let infinite = said(log(numbers(&[0.0, 1e300])), theta.clone());
    assert_eq!(infinite, "λ.log holds 1e300 in row 1 (counted from 0), more than f32 can hold; scale it first");
    let other = Net { first: numbers(&[1.0, 2.5]), ..theta.clone() };
    assert!(said(lambda.clone(), other).starts_with("θ.first is frozen"));
    let mut short = theta.clone();
    short.layers.pop();
    let reason = said(lambda.clone(), short);
    assert!(reason.starts_with("this θ does not match the problem's: ") && reason.contains("layers"), "{reason}");
    let mut filled = theta;
    filled.layers[1].bias = Some(numbers(&[]));
    assert!(said(lambda, filled).contains("layers.1.bias"));
}

#[test]
fn a_problem_of_other_floats_has_the_same_structs() {
    let double = problem().in_dtype(DType::F64).unwrap();
    let outcome = Driver::new(&double, method()).optimizer(Adam::default()).iterations(2).run().unwrap();
    assert_eq!((outcome.lambda.log.dtype(), outcome.theta.first.dtype()), (DType::F64, DType::F64));
}

#[test]
fn one_nameless_leaf_is_a_struct_as_well() {
    let zero = || Leaf(Variable::constant([], 0.0));
    let problem = Problem::builder(zero(), zero())
        .inner(|_, l, t| (t.0 - l.0).square())
        .outer(|_, _, t| (t.0 - 1.0).square())
        .build()
        .unwrap();
    let method = With(LangevinAdjoint::default(), InnerLoop::new(0.1, 100));
    let typed = Driver::new(&problem, method).rate(0.1).run().unwrap();
    let erased = Driver::new(&problem.erase(), method).rate(0.1).run().unwrap();
    assert_eq!(erased.lambda.get(""), Some(&typed.lambda.0));
}

#[test]
fn a_start_outside_its_bounds_is_refused_when_the_problem_is_built() {
    let error = |log: Variable, shift: Variable| {
        Problem::builder(Decay { log, shift }, Leaf(Variable::constant([], 0.0)))
            .inner(|_, l, t| (t.0 - l.log.sum_all()).square() + l.shift.sum_all() * t.0)
            .outer(|_, _, t| t.0.square())
            .build()
            .err()
            .map_or("none".to_string(), |error| error.to_string())
    };
    let fine = || Variable::constant([2], 0.5).at_least(0.0).at_most(1.0);
    assert_eq!(error(fine(), fine()), "none");
    assert_eq!(error(fine(), Variable::constant([], 0.0).at_least(0.0)), "none", "a bound itself is allowed");
    let cases = [
        (Variable::constant([2], 3.0).at_most(2.0), "λ.shift starts at 3, above its upper bound 2"),
        (Variable::constant([2], -1.0).at_least(0.0), "λ.shift starts at -1, below its lower bound 0"),
        (Variable::fixed(numbers(&[0.5, 2.5])).at_most(2.0), "λ.shift starts at 2.5, above its upper bound 2"),
        (Variable::uniform([2], -1.0, 1.0).at_least(0.0), "λ.shift starts at -1, below its lower bound 0"),
        (Variable::constant([2], f64::NAN), "λ.shift starts at NaN; its initial value must be a number"),
        (Variable::normal([2], f64::INFINITY), "λ.shift starts at inf; its initial value must be a number"),
    ];
    for (shift, said) in cases {
        assert_eq!(error(fine(), shift), said);
    }
    let alone = Problem::builder(Leaf(Variable::constant([], 1.0).at_least(2.0)), Leaf(Variable::constant([], 0.0)));
    let alone = alone.inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| t.0.square()).build();
    assert_eq!(alone.err().unwrap().to_string(), "λ starts at 1, below its lower bound 2");
}

#[test]
fn a_draw_outside_its_bounds_is_refused_by_the_name_of_its_leaf() {
    let problem = Problem::builder(
        Decay { log: Variable::normal([100], 1.0).at_least(0.0), shift: Variable::constant([], 0.0) },
        Leaf(Variable::constant([], 0.0)),
    );
    let problem =
        problem.inner(|_, l, t| (t.0 - l.log.sum_all()).square() + l.shift * t.0).outer(|_, _, t| t.0.square());
    let error = Driver::new(&problem.build().unwrap(), Rmd::default()).run().err().unwrap().to_string();
    assert!(error.starts_with("λ.log starts at -") && error.ends_with("below its lower bound 0"), "{error}");
}
