//! The evidence by a Langevin chain: its mean, its standard error, the step of its chain, and what it refuses.

use bilevel::diagnostics::Warning;
use bilevel::graph::nn::gaussian_prior;
use bilevel::methods::{Evidence, Rmd};
use bilevel::{Array, Cpu, Driver, InnerLoop, Key, Leaf, Method, Outcome, Problem, Session, Variable};

/// ½·a·(θ − y)² for two observations of each number, with priors of precision e^λ: for one number the posterior has the
/// precision A = 2a + e^λ and the mean a·(y₁ + y₂)/A, so dF/dλ = ½·e^λ·(mean² + 1/A) − ½.
fn regression(lambda: &[f64]) -> (Problem, Vec<f64>) {
    let width = lambda.len();
    let y: Vec<f64> = (0..2 * width).map(|i| ((i * i) as f64 * 0.7).sin() * 2.0).collect();
    let truth = (0..width).map(|j| {
        let (a, precision) = (2.0 + lambda[j].exp(), lambda[j].exp());
        0.5 * precision * (((y[j] + y[width + j]) / a).powi(2) + 1.0 / a) - 0.5
    });
    let truth = truth.collect();
    let start = Variable::fixed(Array::from_f64([width], lambda.to_vec()).unwrap());
    let problem = Problem::builder(Leaf(start), Leaf(Variable::constant([width], 0.0)))
        .data("y", Array::from_f64([2, width], y).unwrap())
        .inner(|s, l, t| (s.data("y") - t.0).square().sum_all() * 0.5 + gaussian_prior(t.0, l.0.exp()))
        .evidence()
        .build()
        .unwrap();
    (problem.erase(), truth)
}

fn estimates(problem: &Problem, inner: InnerLoop, calls: u32) -> Vec<(Vec<f64>, Vec<f64>)> {
    let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
    let mut estimator = Evidence::default().prepare_in(&session, &inner).unwrap();
    let mut state = session.state(Key::from_seed(0)).unwrap();
    let call = |number| {
        let found = estimator.estimate(&mut state, Key::from_seed(5).fold_in(number)).unwrap();
        (found.value.numbers().unwrap(), found.standard_error.unwrap().numbers().unwrap())
    };
    (0..calls).map(call).collect()
}

#[test]
fn the_standard_error_covers_the_closed_form_as_often_as_it_should() {
    let lambda: Vec<f64> = (0..20).map(|j| 0.2 * j as f64 - 2.0).collect();
    let (problem, truth) = regression(&lambda);
    let all = estimates(&problem, InnerLoop { burn_in: 100, ..InnerLoop::new(0.2, 2100).at_temperature(1.0) }, 10);
    let scores: Vec<f64> = all
        .iter()
        .flat_map(|(found, error)| (0..20).map(|j| (found[j] - truth[j]) / error[j]).collect::<Vec<_>>())
        .collect();
    // Student's t with 31 degrees of freedom has a variance of 1.07; of 200 numbers, the standard error of that is 0.11.
    let variance = scores.iter().map(|z| z * z).sum::<f64>() / scores.len() as f64;
    assert!((0.7..1.5).contains(&variance), "{variance}");
    let beyond = scores.iter().filter(|z| z.abs() > 3.0).count();
    assert!(beyond <= 4, "{beyond} of 200 are beyond three standard errors, where 1.1 are expected");
}

#[test]
fn the_step_of_the_chain_does_not_change_the_evidence_of_a_quadratic() {
    // The largest curvature is 2 + e, so the largest stable step is 0.42: plain Langevin steps of 0.3 have variances that are 1.2 to 3.4
    // times too large.
    let (problem, truth) = regression(&[1.0, 0.0, -1.0]);
    let all = estimates(&problem, InnerLoop { burn_in: 200, ..InnerLoop::new(0.4, 20_200).at_temperature(1.0) }, 4);
    for (found, error) in all {
        for j in 0..3 {
            assert!((found[j] - truth[j]).abs() < 4.0 * error[j], "{j}: {} ± {}, not {}", found[j], error[j], truth[j]);
            assert!(error[j] < 0.02, "{}", error[j]);
        }
    }
}

#[test]
fn lambda_that_moves_with_every_step_of_the_chain_arrives_where_the_evidence_is_largest() {
    // y ~ N(0, ½ + e^−λ) for the mean of two observations; one λ for all of 40 numbers.
    let width = 40;
    let y: Vec<f64> = (0..2 * width).map(|i| ((i * i) as f64 * 0.7).sin() * 3.0).collect();
    let means = (0..width).map(|j| (y[j] + y[width + j]) / 2.0);
    let best = -(means.map(|m| m * m).sum::<f64>() / width as f64 - 0.5).ln();
    let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([width], 0.0)))
        .data("y", Array::from_f64([2, width], y).unwrap())
        .inner(|s, l, t| (s.data("y") - t.0).square().sum_all() * 0.5 + gaussian_prior(t.0, l.0.exp()))
        .evidence()
        .build()
        .unwrap();
    let inner = InnerLoop::new(0.2, 1).at_temperature(1.0);
    let mut mean = 0.0;
    let sum = std::sync::Arc::new(std::sync::Mutex::new(0.0));
    let seen = sum.clone();
    Driver::new(&problem, Evidence::default())
        .inner(inner)
        .rate(2e-3)
        .iterations(12_000)
        .diagnose_every(0)
        .on_iteration(move |iteration, state| {
            if iteration.number > 4000 {
                *seen.lock().unwrap() += state.lambda[0].item().unwrap() / 8000.0;
            }
        })
        .run()
        .unwrap();
    mean += *sum.lock().unwrap();
    assert!((mean - best).abs() < 0.03, "{mean}, not {best}");
}

#[test]
fn a_resumed_run_has_the_same_bits() {
    let (problem, _) = regression(&[0.3, -0.2]);
    let folder = tempfile::tempdir().unwrap();
    let inner = InnerLoop { burn_in: 3, ..InnerLoop::new(0.2, 30).at_temperature(1.0) };
    let driver = || Driver::new(&problem, Evidence::default()).inner(inner).rate(0.1);
    let saved = || bilevel::checkpoints::Checkpoints::new(folder.path()).every(4).resume(true);
    let bits = |outcome: Outcome| {
        let all = [outcome.state.lambda, outcome.state.theta, outcome.state.memory];
        all.map(|leaves| leaves.numbers().unwrap().iter().map(|v| v.to_bits()).collect::<Vec<_>>())
    };
    let whole = bits(driver().iterations(12).run().unwrap());
    driver().iterations(7).checkpoints(saved()).run().unwrap();
    assert_eq!(bits(driver().iterations(12).checkpoints(saved()).run().unwrap()), whole);
}

#[test]
fn minibatches_that_heat_the_chain_are_warned_of() {
    let rows = 64;
    let y: Vec<f64> = (0..rows).map(|i| ((i * i) as f64 * 0.7).sin()).collect();
    let variance = y.iter().map(|v| v * v).sum::<f64>() / rows as f64;
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
        .data("y", Array::from_f64([rows], y).unwrap())
        .inner(move |s, l, t| {
            let fit = (s.data("y").take(s.minibatch(rows, 4)) - t.0).square().mean_all() * 0.5;
            fit + gaussian_prior(t.0, l.0.exp()) / rows as f64
        })
        .evidence()
        .build()
        .unwrap();
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let shares = |gamma: f64| {
        let inner = InnerLoop { burn_in: 10, ..InnerLoop::new(gamma, 50).at_temperature(1.0 / rows as f64) };
        let mut estimator = Evidence::default().prepare_in(&session, &inner).unwrap();
        let mut state = session.state(Key::from_seed(1)).unwrap();
        let mut share = 0.0;
        let mut warned = false;
        for call in 0..200 {
            let found = estimator.estimate(&mut state, Key::from_seed(call)).unwrap();
            share += found.diagnostics.minibatch_heat.unwrap() / 200.0;
            warned |= found.diagnostics.warnings().iter().any(|w| matches!(w, Warning::MinibatchHeat { .. }));
        }
        (share, warned)
    };
    // γ/2 times the variance of a gradient, the rows' over 4, over 1/n.
    let (share, warned) = shares(0.1);
    let expected = 0.5 * 0.1 * variance / 4.0 * rows as f64;
    assert!((share / expected - 1.0).abs() < 0.25 && warned, "{share}, {expected}");
    assert!(shares(0.001).0 < 0.1);
}

#[test]
fn a_problem_is_judged_by_the_evidence_or_by_an_outer_loss() {
    let (problem, _) = regression(&[0.0]);
    let refused = Rmd::default().applies(&problem).unwrap_err().to_string();
    assert!(refused.contains("uses the evidence and has no outer loss"), "{refused}");
    let with_outer = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
        .inner(|_, l, t| t.0.square() + gaussian_prior(t.0, l.0.exp()))
        .outer(|_, _, t| t.0)
        .build()
        .unwrap();
    let refused = Evidence::default().applies(&with_outer).unwrap_err().to_string();
    assert!(refused.contains(".evidence() instead of .outer(…)"), "{refused}");
    let cold = Driver::new(&problem, Evidence::default()).inner(InnerLoop::new(0.1, 10)).run().unwrap_err();
    assert!(cold.to_string().contains("temperature"), "{cold}");
    let names: Vec<_> = bilevel::methods::applicable_to(&problem).unwrap().iter().map(|info| info.name).collect();
    assert_eq!(names, ["evidence"]);
}
