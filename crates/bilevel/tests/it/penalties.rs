//! Methods that take gradients alone, and those with a penalty, against closed forms on quadratics.

use crate::quadratic::*;
use crate::with::{Usual, With};
use bilevel::methods::{Bome, F2sa, GPbgd, IftNeumann, Meha, Oracles, StocBio, VPbgd};
use bilevel::{Cpu, Driver, Error, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};

/// ∂λL_T.
fn inner_by_lambda(quadratic: &Quadratic, theta: &Vector) -> Vector {
    let pulled = times(&transposed(&quadratic.b), theta);
    std::array::from_fn(|i| {
        let diagonal = if quadratic.diagonal { 0.5 * LAMBDA[i].exp() * theta[i].powi(2) } else { 0.0 };
        diagonal - pulled[i]
    })
}

fn inner(quadratic: &Quadratic, lambda: &Vector, theta: &Vector) -> f64 {
    let (bent, pulled) = (times(&quadratic.hessian(lambda), theta), times(&quadratic.b, lambda));
    (0..N).map(|i| theta[i] * (0.5 * bent[i] - pulled[i])).sum()
}

/// −f_θ at θ = 0: the constant part of the outer slope.
fn target(quadratic: &Quadratic, lambda: &Vector) -> Vector {
    quadratic.f_theta(lambda, &[0.0; N]).map(|x| -x)
}

/// The minimum of L_T + f/σ.
fn penalised_minimum(quadratic: &Quadratic, lambda: &Vector, penalty: f64) -> Vector {
    let (pulled, target) = (times(&quadratic.b, lambda), target(quadratic, lambda));
    let right = std::array::from_fn(|i| pulled[i] + target[i] / penalty);
    solve(plus_diagonal(quadratic.hessian(lambda), |_| 1.0 / penalty), right)
}

/// f_λ(θ) + σ·(∂λL_T(θ) − ∂λL_T(other)).
fn combined(quadratic: &Quadratic, theta: &Vector, other: &Vector, penalty: f64) -> Vector {
    let (direct, here, there) =
        (quadratic.f_lambda(&LAMBDA, theta), inner_by_lambda(quadratic, theta), inner_by_lambda(quadratic, other));
    std::array::from_fn(|i| direct[i] + penalty * (here[i] - there[i]))
}

/// The derivative of min over y of f + σ·(L_T − min L_T).
fn value_penalty(quadratic: &Quadratic, penalty: f64) -> Vector {
    let y = penalised_minimum(quadratic, &LAMBDA, penalty);
    combined(quadratic, &y, &quadratic.minimum(&LAMBDA, 0.0), penalty)
}

/// The derivative of min over θ of f + σ·‖∇θL_T‖².
fn slope_penalty(quadratic: &Quadratic, penalty: f64) -> Vector {
    let (h, pulled) = (quadratic.hessian(&LAMBDA), times(&quadratic.b, &LAMBDA));
    let (twice, target) = (times(&h, &pulled), target(quadratic, &LAMBDA));
    let square: Matrix = std::array::from_fn(|i| times(&h, &h[i]).map(|x| 2.0 * x));
    let right = std::array::from_fn(|i| 2.0 * twice[i] + target[i] / penalty);
    let theta = solve(plus_diagonal(square, |_| 1.0 / penalty), right);
    let bent = times(&h, &theta);
    let slope = std::array::from_fn(|i| bent[i] - pulled[i]);
    let (direct, mixed) = (quadratic.f_lambda(&LAMBDA, &theta), quadratic.mixed(&LAMBDA, &theta, &slope));
    std::array::from_fn(|i| direct[i] + 2.0 * penalty * mixed[i])
}

/// The derivative of min over θ of f + c·(L_T − its Moreau envelope of strength ρ).
fn envelope_penalty(quadratic: &Quadratic, penalty: f64, rho: f64) -> Vector {
    let (h, pulled, target) = (quadratic.hessian(&LAMBDA), times(&quadratic.b, &LAMBDA), target(quadratic, &LAMBDA));
    let proximal = plus_diagonal(h, |_| rho);
    let inverse: Matrix = std::array::from_fn(|i| solve(proximal, std::array::from_fn(|j| (i == j) as u8 as f64)));
    let left: Matrix = std::array::from_fn(|i| {
        std::array::from_fn(|j| h[i][j] + rho * rho * inverse[i][j] + (i == j) as u8 as f64 * (1.0 / penalty - rho))
    });
    let through = times(&inverse, &pulled);
    let theta = solve(left, std::array::from_fn(|i| pulled[i] + target[i] / penalty - rho * through[i]));
    let w = times(&inverse, &std::array::from_fn(|i| pulled[i] + rho * theta[i]));
    combined(quadratic, &theta, &w, penalty)
}

type ClosedForm = fn(&Quadratic, f64) -> Vector;

/// Each method with this penalty, this many hypergradients, and what it settles at.
fn all(penalty: f64) -> Vec<(Box<dyn Method>, usize, ClosedForm)> {
    vec![
        (Box::new(With(F2sa { penalty, growth: 0.0 }, InnerLoop::new(0.3, 900))), 1, value_penalty),
        (Box::new(With(F2sa { penalty, growth: 0.0 }, InnerLoop::new(0.3, 1))), 900, value_penalty),
        (Box::new(With(VPbgd { penalty }, InnerLoop::new(0.3, 3))), 900, value_penalty),
        (Box::new(With(GPbgd { penalty }, InnerLoop::new(0.03, 20_000))), 1, slope_penalty),
        (Box::new(With(GPbgd { penalty }, InnerLoop::new(0.03, 1))), 20_000, slope_penalty),
        (Box::new(With(Meha { rho: 1.5, penalty, power: 0.0 }, InnerLoop::new(0.3, 2000))), 1, |q, c| {
            envelope_penalty(q, c, 1.5)
        }),
        (Box::new(With(Meha { rho: 1.5, penalty, power: 0.0 }, InnerLoop::new(0.3, 1))), 2000, |q, c| {
            envelope_penalty(q, c, 1.5)
        }),
    ]
}

fn settled(method: &dyn Method, quadratic: &Quadratic, calls: usize) -> Vec<f64> {
    let session = Session::new(&quadratic.problem(), &Cpu::with_threads(1)).unwrap();
    let (mut estimator, mut state) = (method.usual(&session).unwrap(), session.state(key()).unwrap());
    numbers(&(0..calls).map(|_| estimator.estimate(&mut state, key()).unwrap()).last().unwrap().value)
}

#[test]
fn the_closed_form_of_the_value_penalty_is_the_slope_of_the_penalised_objective() {
    let quadratic = Quadratic::default();
    let slope = differences(|lambda| {
        let (y, theta) = (penalised_minimum(&quadratic, lambda, 7.0), quadratic.minimum(lambda, 0.0));
        quadratic.outer(lambda, &y) + 7.0 * (inner(&quadratic, lambda, &y) - inner(&quadratic, lambda, &theta))
    });
    assert!(distance(&value_penalty(&quadratic, 7.0), &slope) < 1e-8);
}

#[test]
fn penalty_methods_settle_at_the_exact_slope_of_the_penalised_objective() {
    for (diagonal, direct) in [(false, false), (true, true)] {
        let quadratic = Quadratic { diagonal, direct, ..Quadratic::default() };
        for penalty in [3.0, 50.0] {
            for (method, calls, closed_form) in all(penalty) {
                let (found, want) = (settled(&*method, &quadratic, calls), closed_form(&quadratic, penalty));
                // σ multiplies a difference of numbers around 1, each rounded.
                assert!(distance(&found, &want) < 1e-14 * (10.0 + 10.0 * penalty), "{method:?} {found:?} {want:?}");
            }
        }
    }
}

#[test]
fn the_bias_of_penalty_methods_falls_as_one_over_the_penalty() {
    let quadratic = Quadratic::default();
    let truth = quadratic.hypergradient(&LAMBDA, 0.0);
    for number in [0, 2, 3, 5] {
        let errors = [1e2, 1e3, 1e4].map(|penalty| {
            let (method, calls, _) = all(penalty).swap_remove(number);
            distance(&settled(&*method, &quadratic, calls), &truth)
        });
        for pair in errors.windows(2) {
            assert!((pair[0] / pair[1] - 10.0).abs() < 0.5, "{}: {errors:?}", all(1.0)[number].0.name());
        }
    }
}

#[test]
fn a_growing_penalty_is_the_one_of_its_hypergradient() {
    let quadratic = Quadratic::default();
    let h = |method: &dyn Method, calls| settled(method, &quadratic, calls);
    // The third hypergradient has the penalty 10 + 2·5, or 10·3^½.
    let grown = h(&With(F2sa { penalty: 10.0, growth: 5.0 }, InnerLoop::new(0.3, 900)), 3);
    assert!(distance(&grown, &value_penalty(&quadratic, 20.0)) < 1e-12);
    let grown = h(&With(Meha { rho: 1.5, penalty: 10.0, power: 0.5 }, InnerLoop::new(0.3, 2000)), 3);
    assert!(distance(&grown, &envelope_penalty(&quadratic, 10.0 * 3f64.sqrt(), 1.5)) < 1e-12);
}

#[test]
fn noise_that_both_copies_share_is_not_multiplied_by_the_penalty() {
    // The noise shifts the minimum and leaves its derivative alone.
    let problem = Problem::builder(Leaf(Variable::constant([], 0.5)), Leaf(Variable::constant([], 0.0)))
        .inner(|s, l, t| (t.0 - l.0).square() * 0.5 + s.normal([]) * t.0 * l.0)
        .outer(|_, _, t| t.0)
        .build()
        .unwrap();
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let mut estimator = With(F2sa { penalty: 1e6, growth: 0.0 }, InnerLoop::new(0.1, 200)).usual(&session).unwrap();
    for seed in 0..20 {
        let found = estimator.estimate(&mut session.state(key()).unwrap(), Key::from_seed(seed)).unwrap();
        // C = ξ − 1 at the draw the hypergradient is taken with.
        let off = (found.value[0].item().unwrap() - 1.0).abs();
        assert!(off < 5.0, "{off}");
    }
}

#[test]
fn bome_gives_the_direction_of_its_dynamic_barrier() {
    for (barrier, steps) in [(0.5, 3), (2.0, 10)] {
        let quadratic = Quadratic::default();
        let (h, pulled) = (quadratic.hessian(&LAMBDA), times(&quadratic.b, &LAMBDA));
        let slope = |theta: &Vector| -> Vector {
            let bent = times(&h, theta);
            std::array::from_fn(|i| bent[i] - pulled[i])
        };
        let session = Session::new(&quadratic.problem(), &Cpu::with_threads(1)).unwrap();
        let mut state = session.state(key()).unwrap();
        let mut estimator = With(Bome { barrier }, InnerLoop::new(0.1, steps)).usual(&session).unwrap();
        let mut theta = [0.0; N];
        for _ in 0..3 {
            let mut ahead = theta;
            for _ in 0..steps {
                let down = slope(&ahead);
                ahead = std::array::from_fn(|i| ahead[i] - 0.1 * down[i]);
            }
            let (here, there) = (inner_by_lambda(&quadratic, &theta), inner_by_lambda(&quadratic, &ahead));
            let q: Vec<f64> = (0..N).map(|i| here[i] - there[i]).chain(slope(&theta)).collect();
            let f: Vec<f64> =
                quadratic.f_lambda(&LAMBDA, &theta).into_iter().chain(quadratic.f_theta(&LAMBDA, &theta)).collect();
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let weight = (barrier - dot(&f, &q) / dot(&q, &q)).max(0.0);
            let want: Vec<f64> = f.iter().zip(&q).map(|(f, q)| f + weight * q).collect();
            let found = estimator.estimate(&mut state, key()).unwrap();
            assert!(distance(&numbers(&found.value), &want[..N]) < 1e-13);
            theta = std::array::from_fn(|i| theta[i] - 0.1 * want[N + i]);
            assert!(distance(&numbers(&state.theta), &theta) < 1e-13);
        }
    }
}

/// The size of the exact hypergradient where a run ends.
fn left_over(quadratic: &Quadratic, method: impl Method + 'static, rate: f64) -> f64 {
    let driver = Driver::new(&quadratic.problem(), method).executor(Cpu::with_threads(1));
    let outcome = driver.rate(rate).iterations(4000).run().unwrap();
    let lambda: Vector = numbers(&outcome.state.lambda).try_into().unwrap();
    distance(&quadratic.hypergradient(&lambda, 0.0), &[0.0; N])
}

#[test]
fn bome_leads_lambda_to_within_a_step_of_where_the_exact_hypergradient_vanishes() {
    let a = with_eigenvalues([0.8, 1.0, 1.1, 1.2]);
    let quadratic = Quadratic { diagonal: false, a, ..Quadratic::default() };
    let [large, small] = [(0.1, 200), (0.01, 2000)]
        .map(|(step, steps)| left_over(&quadratic, With(Bome { barrier: 0.5 }, InnerLoop::new(step, steps)), step));
    assert!(small < 0.02 && (large / small - 10.0).abs() < 2.0, "{large} {small}");
}

#[test]
fn meha_leads_lambda_to_within_one_over_the_penalty_of_where_the_exact_hypergradient_vanishes() {
    let a = with_eigenvalues([0.8, 1.0, 1.1, 1.2]);
    let quadratic = Quadratic { diagonal: false, a, ..Quadratic::default() };
    let [small, large] = [1e3, 1e4].map(|penalty| {
        left_over(&quadratic, With(Meha { rho: 1.0, penalty, power: 0.0 }, InnerLoop::new(0.2, 300)), 0.05)
    });
    assert!(large < 0.01 && (small / large - 10.0).abs() < 0.5, "{small} {large}");
}

#[test]
fn stocbio_without_minibatches_is_the_neumann_series() {
    let quadratic = Quadratic::default();
    for terms in [0, 1, 20] {
        let method = With(StocBio { alpha: 0.3, terms }, InnerLoop::new(0.2, 20));
        let series = With(IftNeumann { alpha: 0.3, terms, ..IftNeumann::default() }, InnerLoop::new(0.2, 20));
        let (found, want) = (once(&method, &quadratic.problem()).1, once(&series, &quadratic.problem()).1);
        assert!(distance(&numbers(&found.value), &numbers(&want.value)) < 1e-14);
        assert_eq!(found.oracles, want.oracles);
    }
}

#[test]
fn stocbio_is_unbiased_for_the_series_of_the_mean_where_one_draw_for_all_factors_is_not() {
    // The curvature is 1 ± 0.9 from draw to draw; f_θ = 1 and C = −1, so that h is the series itself.
    let problem = Problem::builder(Leaf(Variable::constant([], 0.5)), Leaf(Variable::constant([], 0.0)))
        .inner(|s, l, t| (s.uniform([], -0.9, 0.9) + 1.0) * t.0.square() * 0.5 - t.0 * l.0)
        .outer(|_, _, t| t.0)
        .build()
        .unwrap();
    let (alpha, terms) = (0.8, 6);
    let want = 1.0 - (1.0f64 - alpha).powi(terms as i32 + 1);
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let off = |method: &dyn Method| {
        let mut estimator = method.usual(&session).unwrap();
        let found: Vec<f64> = (0..2000)
            .map(|seed| {
                let h = estimator.estimate(&mut session.state(key()).unwrap(), Key::from_seed(seed)).unwrap();
                h.value[0].item().unwrap()
            })
            .collect();
        let mean = found.iter().sum::<f64>() / 2000.0;
        let error = (found.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2000.0 / 1999.0).sqrt();
        (mean - want).abs() / error
    };
    let own = off(&With(StocBio { alpha, terms }, InnerLoop::new(0.01, 0)));
    let shared = off(&With(IftNeumann { alpha, terms, ..IftNeumann::default() }, InnerLoop::new(0.01, 0)));
    assert!(own < 4.0 && shared > 10.0, "{own} and {shared} standard errors");
}

#[test]
fn methods_without_second_derivatives_say_so_in_their_counts() {
    let counts = |method: &dyn Method| once(method, &Quadratic::default().problem()).1.oracles;
    let first = |inner_gradients, outer_gradients, losses| Oracles {
        inner_gradients,
        outer_gradients,
        losses,
        ..Oracles::default()
    };
    assert_eq!(counts(&With(F2sa::default(), InnerLoop::new(0.01, 7))), first(16, 8, 1));
    assert_eq!(counts(&With(VPbgd::default(), InnerLoop::new(0.01, 7))), first(9, 1, 1));
    assert_eq!(counts(&With(Bome::default(), InnerLoop::new(0.01, 7))), first(9, 1, 0));
    assert_eq!(counts(&With(Meha::default(), InnerLoop::new(0.01, 7))), first(15, 7, 0));
    let second = Oracles { hessian_products: 7, mixed_products: 1, ..first(7, 7, 0) };
    assert_eq!(counts(&With(GPbgd::default(), InnerLoop::new(0.01, 7))), second, "its penalty is on the slope");
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let refused = |method: &dyn Method| {
        let error = method.prepared_on(&Quadratic::default().problem(), &Cpu::with_threads(1)).err().unwrap();
        let Error::Setting { name, .. } = error else { panic!("{error}") };
        name
    };
    assert_eq!(refused(&F2sa { penalty: 0.0, ..F2sa::default() }), "penalty");
    assert_eq!(refused(&F2sa { growth: -1.0, ..F2sa::default() }), "growth");
    assert_eq!(refused(&VPbgd { penalty: f64::NAN }), "penalty");
    assert_eq!(refused(&GPbgd { penalty: -1.0 }), "penalty");
    assert_eq!(refused(&Bome { barrier: 0.0 }), "barrier");
    assert_eq!(refused(&Meha { rho: 0.0, ..Meha::default() }), "rho");
    assert_eq!(refused(&Meha { power: -0.1, ..Meha::default() }), "power");
    assert_eq!(refused(&StocBio { alpha: 0.0, ..StocBio::default() }), "alpha");
    assert_eq!(refused(&StocBio { terms: usize::MAX, ..StocBio::default() }), "terms");
}
