//! Hessian and Gauss-Newton products in the methods that solve with them, and solves that end where a matrix is not positive.

use crate::with::{Usual, With};
use bilevel::diagnostics::Warning;
use bilevel::graph::nn;
use bilevel::methods::{AmigoCg, AmigoSgd, AnyMethod, CurvatureProduct, IftCg, IftNeumann, Imaml};
use bilevel::{AnyProblem, Array, Cpu, Hypergradient, InnerLoop, Key, Leaf, Method, Problem, State, Tree, Variable};

fn cpu() -> Cpu {
    Cpu::with_threads(1)
}

fn once(problem: &AnyProblem, method: &dyn Method) -> bilevel::Result<Hypergradient> {
    let mut state = State::initial(problem, &cpu(), Key::from_seed(1)).unwrap();
    method.prepared_on(problem, &cpu())?.estimate(&mut state, Key::from_seed(2))
}

fn numbers(stream: u32, count: usize) -> Vec<f64> {
    let mut values = vec![0.0; count];
    bilevel::graph::random::fill_normal_f64([3, 5], stream, 0, 0, &mut values);
    values
}

/// All that solve with a curvature; the last for problems that start from λ.
fn solving(curvature: CurvatureProduct) -> [With<AnyMethod>; 5] {
    [
        IftCg { iterations: 6, curvature, ..IftCg::default() }.into(),
        AmigoCg { iterations: 6, curvature, ..AmigoCg::default() }.into(),
        IftNeumann { alpha: 0.05, terms: 20, curvature, ..IftNeumann::default() }.into(),
        AmigoSgd { beta: 0.05, iterations: 20, curvature }.into(),
        Imaml { iterations: 6, curvature, ..Imaml::default() }.into(),
    ]
    .map(|method| With(method, InnerLoop::new(0.01, 5)))
}

/// Squared errors of x·θ, or of tanh(x·θ), with one penalty per weight.
fn regression(curved: bool, from_lambda: bool) -> Problem {
    let model = move |x: bilevel::Tensor, t: bilevel::Tensor| {
        let z = x.matmul(t);
        if curved { z.tanh() } else { z }
    };
    let data = |stream| Array::from_f64([12, 3], numbers(stream, 36)).unwrap();
    let target = |stream| Array::from_f64([12, 2], numbers(stream, 24)).unwrap();
    let mut builder = Problem::builder(Leaf(Variable::constant([3, 2], -8.0)), Leaf(Variable::normal([3, 2], 1.5)))
        .data("x", data(1))
        .data("y", target(2))
        .data("x outside", data(3))
        .data("y outside", target(4))
        .inner(move |s, l, t| {
            nn::mse(model(s.data("x"), t.0), s.data("y")) + (l.0.exp() * t.0.square()).sum_all() * 0.5
        })
        .outer(move |s, _, t| nn::mse(model(s.data("x outside"), t.0), s.data("y outside")));
    if from_lambda {
        builder = builder.start(|_, l| *l);
    }
    builder.build().unwrap().erase()
}

#[test]
fn of_a_linear_model_both_products_give_the_same_hypergradient() {
    let both = solving(CurvatureProduct::Hessian).into_iter().zip(solving(CurvatureProduct::GaussNewton));
    for (number, (hessian, gauss_newton)) in both.enumerate() {
        let problem = regression(false, number == 4);
        let [a, b] = [hessian, gauss_newton].map(|method| once(&problem, &method).unwrap().value.numbers().unwrap());
        for (a, b) in a.iter().zip(&b) {
            assert!((a - b).abs() <= 1e-10 * a.abs().max(1e-3), "{number}: {a} and {b}");
        }
    }
}

#[test]
fn a_network_away_from_its_minimum_is_solved_with_gauss_newton_and_not_with_the_hessian() {
    // f_θ has a part along which the inner loss curves downwards.
    let problem = regression(true, false);
    let method = |curvature| With(IftCg { iterations: 12, curvature, ..IftCg::default() }, InnerLoop::new(0.01, 0));
    match once(&problem, &method(CurvatureProduct::Hessian)) {
        Ok(found) => {
            let warnings = found.diagnostics.warnings();
            assert!(warnings.iter().any(|w| matches!(w, Warning::NotConvex { .. })), "{warnings:?}");
            assert!(warnings.iter().any(|w| w.to_string().contains("gauss-newton")), "{warnings:?}");
            assert!(found.diagnostics.solve_residual.unwrap() > 1e-3, "{:?}", found.diagnostics);
        }
        Err(error) => assert!(error.to_string().contains("gauss-newton"), "{error}"),
    }
    let found = once(&problem, &method(CurvatureProduct::GaussNewton)).unwrap();
    assert!(found.diagnostics.least_curvature.unwrap() > 0.0);
    assert!(found.diagnostics.solve_residual.unwrap() < 1e-8, "{:?}", found.diagnostics);
    assert!(found.diagnostics.warnings().is_empty(), "{:?}", found.diagnostics.warnings());
    assert!(CurvatureProduct::GaussNewton.is_definite(&problem).unwrap());
}

#[test]
fn a_solve_that_meets_a_downward_curvature_on_its_way_stays_where_it_was() {
    // Curvatures 1, 2 and −0.1: f_θ is nearly along the first two, so two sweeps go well.
    #[derive(Clone, Tree)]
    struct Three<T> {
        all: T,
    }
    let problem = Problem::builder(Leaf(Variable::constant([3], 0.5)), Three { all: Variable::constant([3], 0.0) })
        .data("curvature", Array::from_f64([3], vec![1.0, 2.0, -0.1]).unwrap())
        .data("slope", Array::from_f64([3], vec![1.0, 1.0, 1e-3]).unwrap())
        .inner(|s, l, t| (s.data("curvature") * t.all.square()).sum_all() * 0.5 - (l.0 * t.all).sum_all())
        .outer(|s, _, t| (s.data("slope") * t.all).sum_all())
        .build()
        .unwrap();
    let method = With(IftCg { iterations: 8, ..IftCg::default() }, InnerLoop::new(0.01, 0));
    let found = once(&problem, &method).unwrap();
    assert!(found.diagnostics.warnings().iter().any(|w| matches!(w, Warning::NotConvex { .. })));
    // h = qᵀ here, and q was solved along the first two.
    let value = found.value.numbers().unwrap();
    assert!((value[0] - 1.0).abs() < 1e-2 && (value[1] - 0.5).abs() < 1e-2 && value[2].abs() < 1.0, "{value:?}");
}
