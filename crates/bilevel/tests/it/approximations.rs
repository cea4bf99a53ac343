//! Methods that approximate the inverse Hessian, or solve to a tolerance, against closed forms on quadratics.

use crate::quadratic::*;
use crate::with::{Usual, With};
use bilevel::methods::{AmigoCg, DTfbo, Fall, Hoag, HpoSgld, Meha, Nystrom, Oracles, Sama};
use bilevel::optimizers::{Adam, InnerOptimizer, Momentum};
use bilevel::{Cpu, Driver, Error, InnerLoop, Key, Leaf, Method, Problem, Session, Tensor, Variable};

/// f_λ − qᵀC at θ.
fn ended(quadratic: &Quadratic, theta: &Vector, q: &Vector) -> Vector {
    let (direct, mixed) = (quadratic.f_lambda(&LAMBDA, theta), quadratic.mixed(&LAMBDA, theta, q));
    std::array::from_fn(|i| direct[i] - mixed[i])
}

fn refused(method: &dyn Method) -> &'static str {
    let error = method.prepared_on(&Quadratic::default().problem(), &Cpu::with_threads(1)).err().unwrap();
    let Error::Setting { name, .. } = error else { panic!("{error}") };
    name
}

// ---- Nyström ----

const NYSTROM: With<Nystrom> = With(Nystrom { columns: N, regularisation: 0.5 }, InnerLoop::new(0.4, 400));

#[test]
fn all_columns_of_the_hessian_give_its_regularised_inverse_exactly() {
    for (diagonal, direct) in [(false, false), (true, true)] {
        let quadratic = Quadratic { diagonal, direct, ..Quadratic::default() };
        for (regularisation, tolerance) in [(0.5, 1e-13), (0.01, 1e-11)] {
            for columns in [N, 100] {
                let (_, found) = once(&With(Nystrom { regularisation, columns }, NYSTROM.1), &quadratic.problem());
                let truth = quadratic.hypergradient(&LAMBDA, regularisation);
                // f_θ/ρ and what is taken from it differ by their last digits times 1/ρ.
                assert!(distance(&numbers(&found.value), &truth) < tolerance, "{:?} {truth:?}", found.value);
                assert_eq!(found.oracles.hessian_products, N as u64);
            }
        }
    }
}

#[test]
fn as_many_columns_as_the_hessian_has_rank_give_its_regularised_inverse_whichever_they_are() {
    // H has rank 2, so that any two of its columns say everything, and four are two too many.
    let g = [[1.0, 0.2], [0.5, -1.0], [0.3, 0.8], [-0.7, 0.4]];
    let a: Matrix = std::array::from_fn(|i| std::array::from_fn(|j| g[i][0] * g[j][0] + g[i][1] * g[j][1]));
    let f_theta = [0.3, -1.0, 0.7, 0.2];
    let problem = Problem::builder(fixed(&LAMBDA), fixed(&[0.1; N]))
        .data("a", bilevel::Array::from_f64([N, N], flat(&a)).unwrap())
        .data("f", bilevel::Array::from_f64([N], f_theta.to_vec()).unwrap())
        .inner(|s, l, t| (column(t.0) * s.data("a").matmul(column(t.0))).sum_all() * 0.5 - (t.0 * l.0).sum_all())
        .outer(|s, _, t| (t.0 * s.data("f")).sum_all())
        .build()
        .unwrap();
    let truth = solve(plus_diagonal(a, |_| 0.5), f_theta);
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    for columns in 2..=N {
        let mut estimator =
            With(Nystrom { columns, ..NYSTROM.0 }, InnerLoop { steps: 0, ..NYSTROM.1 }).usual(&session).unwrap();
        for seed in 0..10 {
            let found = estimator.estimate(&mut session.state(key()).unwrap(), Key::from_seed(seed)).unwrap();
            assert!(distance(&numbers(&found.value), &truth) < 1e-12, "{columns} columns: {:?}", found.value);
        }
    }
}

#[test]
fn fewer_columns_than_the_rank_leave_an_error_that_no_column_makes_worse() {
    let quadratic = Quadratic::default();
    let truth = quadratic.hypergradient(&LAMBDA, 0.5);
    let session = Session::new(&quadratic.problem(), &Cpu::with_threads(1)).unwrap();
    let mean = |columns| {
        let mut estimator = With(Nystrom { columns, ..NYSTROM.0 }, NYSTROM.1).usual(&session).unwrap();
        let error = |seed| {
            let found = estimator.estimate(&mut session.state(key()).unwrap(), Key::from_seed(seed)).unwrap();
            distance(&numbers(&found.value), &truth)
        };
        (0..40).map(error).sum::<f64>() / 40.0
    };
    let errors: Vec<f64> = (1..=N).map(mean).collect();
    assert!(errors.windows(2).all(|pair| pair[1] < pair[0]), "{errors:?}");
}

// ---- SAMA ----

#[test]
fn sama_is_the_derivative_through_one_more_step_of_descent() {
    for (diagonal, direct) in [(false, false), (true, true)] {
        let quadratic = Quadratic { diagonal, direct, ..Quadratic::default() };
        // Momentum adds nothing to what the newest gradient does.
        for optimizer in [InnerOptimizer::Sgd, Momentum::default().into()] {
            let (state, found) =
                once(&With(Sama::default(), InnerLoop { optimizer, ..InnerLoop::new(0.05, 7) }), &quadratic.problem());
            let theta: Vector = numbers(&state.theta).try_into().unwrap();
            let v = quadratic.f_theta(&LAMBDA, &theta).map(|f| 0.05 * f);
            // The difference is exact on a quadratic, up to rounding over the radius.
            let want = ended(&quadratic, &theta, &v);
            assert!(distance(&numbers(&found.value), &want) < 1e-13, "{optimizer:?} {:?} {want:?}", found.value);
            let inner_gradients = 9 + (optimizer != InnerOptimizer::Sgd) as u64;
            assert_eq!(found.oracles, Oracles { inner_gradients, outer_gradients: 1, ..Oracles::default() });
        }
    }
}

#[test]
fn sama_differentiates_the_step_of_adam_by_its_gradient() {
    let adam = Adam { epsilon: 0.1, ..Adam::default() };
    let (step, lambda) = (0.1, 2.0);
    let problem = Problem::builder(Leaf(Variable::constant([], lambda)), Leaf(Variable::constant([], 0.0)))
        .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
        .outer(|_, _, t| t.0 * 3.0)
        .build()
        .unwrap();
    let (state, found) =
        once(&With(Sama::default(), InnerLoop { optimizer: adam.into(), ..InnerLoop::new(step, 1) }), &problem);
    // Moments after the first gradient, −λ, and the second step as a function of its gradient.
    let (first, second) = (-(1.0 - adam.beta1) * lambda, (1.0 - adam.beta2) * lambda * lambda);
    let direction = |g: f64| {
        let mean = (adam.beta1 * first + (1.0 - adam.beta1) * g) / (1.0 - adam.beta1.powi(2));
        let square = (adam.beta2 * second + (1.0 - adam.beta2) * g * g) / (1.0 - adam.beta2.powi(2));
        mean / (square + adam.epsilon * adam.epsilon).sqrt()
    };
    let g = state.theta[0].item().unwrap() - lambda;
    let slope = (direction(g + 1e-5) - direction(g - 1e-5)) / 2e-5;
    assert!((found.value[0].item().unwrap() - 3.0 * step * slope).abs() < 1e-10);
}

#[test]
fn sama_with_nothing_to_follow_gives_the_direct_term() {
    let problem = Problem::builder(fixed(&[2.0]), fixed(&[0.5]))
        .inner(|_, l, t| (t.0 - l.0).square().sum_all())
        .outer(|_, l, _| l.0.square().sum_all())
        .build()
        .unwrap();
    assert_eq!(numbers(&once(&Sama::default(), &problem).1.value), [4.0]);
}

// ---- Tolerances ----

#[test]
fn the_error_of_hoag_falls_with_its_tolerance_and_its_cost_is_paid_only_when_it_is_needed() {
    let quadratic = Quadratic::default();
    let truth = quadratic.hypergradient(&LAMBDA, 0.0);
    let session = Session::new(&quadratic.problem(), &Cpu::with_threads(1)).unwrap();
    for (fall, calls) in [(Fall::Quadratic, 300), (Fall::Cubic, 300), (Fall::Exponential, 250)] {
        let method = With(Hoag { fall, ..Hoag::default() }, InnerLoop::new(0.1, 5000));
        let (mut estimator, mut state) = (method.usual(&session).unwrap(), session.state(key()).unwrap());
        let mut spent = 0;
        for k in 1..=calls {
            let found = estimator.estimate(&mut state, key()).unwrap();
            let tolerance = match fall {
                Fall::Quadratic => 0.1 / f64::from(k * k),
                Fall::Cubic => 0.1 / f64::from(k * k * k),
                Fall::Exponential => 0.1 * 0.9f64.powi(k - 1),
            };
            // ‖∂h/∂θ‖ and ‖H⁻¹C‖ are below 10 on this quadratic.
            let error = distance(&numbers(&found.value), &truth);
            assert!(error < 10.0 * tolerance, "{fall:?} {k}: {error:e}, tolerance {tolerance:e}");
            spent += found.oracles.inner_gradients;
        }
        assert!(spent < 10 * calls as u64 + 500, "{fall:?}: {spent} inner gradients for {calls} hypergradients");
    }
}

#[test]
fn hoag_that_never_arrives_ends_at_its_limits() {
    let quadratic = Quadratic::default();
    let method = With(Hoag { iterations: 3, tolerance: 1e-30, ..Hoag::default() }, InnerLoop::new(0.2, 25));
    let (_, found) = once(&method, &quadratic.problem());
    assert_eq!((found.oracles.inner_gradients, found.oracles.hessian_products), (25, 4));
    let amigo = With(AmigoCg { iterations: 3, ..AmigoCg::default() }, InnerLoop::new(0.2, 25));
    assert_eq!(numbers(&found.value), numbers(&once(&amigo, &quadratic.problem()).1.value));
}

#[test]
fn the_tuning_free_direction_times_its_norm_is_the_hypergradient_to_the_tolerance() {
    let quadratic = Quadratic::default();
    let truth = quadratic.hypergradient(&LAMBDA, 0.0);
    let session = Session::new(&quadratic.problem(), &Cpu::with_threads(1)).unwrap();
    for (step, tolerance) in [(1.0, 1e-3), (1.0, 1e-12), (100.0, 1e-12), (0.05, 1e-9)] {
        let method = With(DTfbo { iterations: 100_000, tolerance }, InnerLoop::new(step, 100_000));
        let (mut estimator, mut state) = (method.usual(&session).unwrap(), session.state(key()).unwrap());
        let mut sum = 1.0;
        for _ in 0..5 {
            let found = numbers(&estimator.estimate(&mut state, key()).unwrap().value);
            // With D the hypergradient, h = D/√(Σ + ‖D‖²), so that ‖D‖² = Σ·‖h‖²/(1 − ‖h‖²).
            let square: f64 = found.iter().map(|h| h * h).sum();
            sum += sum * square / (1.0 - square);
            let whole: Vec<f64> = found.iter().map(|h| h * sum.sqrt()).collect();
            assert!(distance(&whole, &truth) < 10.0 * tolerance, "{step} {tolerance}: {whole:?} {truth:?}");
        }
    }
}

#[test]
fn tuning_free_runs_arrive_whatever_the_first_step_is() {
    let quadratic = Quadratic { diagonal: false, ..Quadratic::default() };
    for step in [0.1, 1.0, 1000.0] {
        let method = With(DTfbo { iterations: 20_000, tolerance: 1e-6 }, InnerLoop::new(step, 20_000));
        let driver = Driver::new(&quadratic.problem(), method).executor(Cpu::with_threads(1));
        let outcome = driver.rate(1.0).iterations(300).run().unwrap();
        let lambda: Vector = numbers(&outcome.state.lambda).try_into().unwrap();
        let size = distance(&quadratic.hypergradient(&lambda, 0.0), &[0.0; N]);
        assert!(size < 1e-4, "{step}: {size} {}", outcome.reason);
    }
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    assert_eq!(refused(&With(Nystrom { columns: 0, ..NYSTROM.0 }, NYSTROM.1)), "columns");
    assert_eq!(refused(&With(Nystrom { regularisation: 0.0, ..NYSTROM.0 }, NYSTROM.1)), "regularisation");
    assert_eq!(refused(&Sama { radius: 0.0 }), "radius");
    assert_eq!(refused(&With(Sama::default(), InnerLoop::new(0.01, 0))), "steps");
    assert_eq!(refused(&Hoag { tolerance: 0.0, ..Hoag::default() }), "tolerance");
    assert_eq!(refused(&Hoag { iterations: 0, ..Hoag::default() }), "iterations");
    assert_eq!(refused(&DTfbo { tolerance: -1.0, ..DTfbo::default() }), "tolerance");
    assert_eq!(refused(&With(DTfbo::default(), InnerLoop::new(f64::INFINITY, 1000))), "step");
}

/// A θ or a gradient that is itself computed stays a variable of its own, however the losses are written: −θ, where θ = a − b, is
/// simplified to b − a, and no derivative with respect to θ may be lost on the way.
#[test]
fn losses_of_minus_theta_are_differentiated_with_respect_to_the_theta_of_the_step() {
    let softplus = bilevel::graph::nn::softplus;
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let (lambda, start, step) = (0.7, 0.2, 0.5);
    let problem = |inner: fn(Tensor, Tensor) -> Tensor| {
        Problem::builder(Leaf(Variable::constant([], lambda)), Leaf(Variable::constant([], start)))
            .inner(move |_, l, t| inner(l.0, t.0))
            .outer(move |_, _, t| softplus(-t.0))
            .build()
            .unwrap()
            .erase()
    };
    // HPO-SGLD, one step: θ¹ = θ⁰ − γ·e^λ·(θ⁰ − 1), h = −γ·f_θ(θ¹)·C with C = e^λ·(θ⁰ − 1).
    let curvature = f64::exp(lambda);
    let theta = start - step * curvature * (start - 1.0);
    let method = With(HpoSgld::default(), InnerLoop::new(step, 1));
    let (_, h) = once(&method, &problem(|l, t| l.exp() * (t - 1.0).square() * 0.5));
    let expected = step * sigmoid(-theta) * curvature * (start - 1.0);
    assert!((numbers(&h.value)[0] - expected).abs() < 1e-14, "{:?} {expected}", numbers(&h.value));
    // SAMA: the gradient −λ² does not depend on θ, C is −2λ, and h = −γ·f_θ·C after one step of γλ².
    let theta = start + step * lambda * lambda;
    let method = With(Sama::default(), InnerLoop::new(step, 1));
    let (_, h) = once(&method, &problem(|l, t| -(t * l.square())));
    let expected = -step * sigmoid(-theta) * 2.0 * lambda;
    assert!((numbers(&h.value)[0] - expected).abs() < 1e-12, "{:?} {expected}", numbers(&h.value));
    // MEHA, two steps: h = c·(∂λL(θ) − ∂λL(w)) with w the second step, ∂λL = ½e^λ·θ².
    let (rho, penalty) = (0.1, 10.0);
    let slope = |t: f64| -sigmoid(-t) + curvature * t;
    let (mut theta, mut w, mut expected) = (start, start, 0.0);
    for _ in 0..2 {
        let next = w - step * (slope(w) + rho * (w - theta));
        expected = penalty * 0.5 * curvature * (theta * theta - next * next);
        theta -= step * (-sigmoid(-theta) / penalty + slope(theta) - rho * (theta - next));
        w = next;
    }
    let method = With(Meha { rho, penalty, power: 0.0 }, InnerLoop::new(step, 2));
    let (_, h) = once(&method, &problem(|l, t| bilevel::graph::nn::softplus(-t) + l.exp() * t.square() * 0.5));
    assert!((numbers(&h.value)[0] - expected).abs() < 1e-13, "{:?} {expected}", numbers(&h.value));
}
