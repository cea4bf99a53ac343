//! The estimators that unroll the inner loop: against each other, finite differences, dense matrices and the design's table.

use crate::with::{Usual, With};
use bilevel::methods::{Covariance, Es, Fmd, Oracles, Reptile, RmdFo, Storage};
use bilevel::prelude::*;
use bilevel::programs::Leaves;
use bilevel::{AnyProblem, Error, Hypergradient, State};
use bilevel_graph::random::fill_normal_f64;

#[derive(Tree, Clone)]
struct Net<T> {
    weight: T,
    bias: T,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum From {
    State,
    Lambda,
    Function,
}

/// A tanh regression on minibatches with a noisy outer loss; λ has θ's shape, and acts in every way it can.
fn network(from: From) -> Problem {
    let x: Vec<f64> = (0..24).map(|i| (1.7 * i as f64).sin()).collect();
    let y: Vec<f64> = (0..8).map(|i| (0.9 * i as f64).cos()).collect();
    let lambda = Net { weight: Variable::normal([3], 0.5), bias: Variable::constant([], 0.3) };
    let theta = Net { weight: Variable::normal([3], 0.5), bias: Variable::constant([], -0.1) };
    let problem = Problem::builder(lambda, theta)
        .data("x", Array::from_f64([8, 3], x).unwrap())
        .data("y", Array::from_f64([8], y).unwrap())
        .inner(|scope, l, t| {
            let rows = scope.minibatch(8, 4);
            let (x, y) = (scope.data("x").take(rows), scope.data("y").take(rows));
            let guess = (x.matmul(t.weight.unsqueeze([1])).reshape([4]) + t.bias).tanh();
            let decay = (l.weight.exp() * t.weight.square()).sum_all();
            (guess - y).square().mean_all() + decay * 0.1 + l.bias * t.bias.square() + l.bias.sin() * t.bias
        })
        .outer(|scope, l, t| {
            let (x, y) = (scope.data("x"), scope.data("y") + scope.normal([8]) * 0.1);
            let guess = (x.matmul(t.weight.unsqueeze([1])).reshape([8]) + t.bias).tanh();
            (guess - y).square().mean_all() + (l.weight * t.weight).sum_all() + l.bias.square()
        });
    let problem = match from {
        From::State => problem,
        From::Lambda => problem.start(|_, l| Net { weight: l.weight, bias: l.bias }),
        From::Function => problem.start(|scope, l| Net {
            weight: l.weight.sin() * l.bias + scope.normal([3]),
            bias: (l.weight * l.weight).sum_all(),
        }),
    };
    problem.build().unwrap().erase()
}

fn cpu() -> Cpu {
    Cpu::with_threads(1)
}

/// One hypergradient at the problem's first state.
fn once(method: &dyn Method, problem: &AnyProblem, key: Key) -> (Hypergradient, State) {
    let mut state = State::initial(problem, &cpu(), Key::from_seed(3)).unwrap();
    let h = method.prepared_on(problem, &cpu()).unwrap().estimate(&mut state, key).unwrap();
    (h, state)
}

fn flat(leaves: &Leaves) -> Vec<f64> {
    leaves.numbers().unwrap()
}

fn arrays(h: &Hypergradient) -> Vec<Array> {
    h.value.arrays().unwrap()
}

/// The largest difference, relative to the largest number.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().chain(b).all(|v| v.is_finite()));
    let size = a.iter().chain(b).fold(0.0f64, |m, v| m.max(v.abs()));
    a.iter().zip(b).fold(0.0f64, |m, (x, y)| m.max((x - y).abs())) / size
}

#[test]
fn reverse_mode_with_any_storage_equals_forward_mode() {
    for from in [From::State, From::Lambda, From::Function] {
        let problem = network(from);
        for (steps, temperature) in [(1, 0.0), (7, 0.0), (50, 0.0), (50, 0.1), (36, 0.02)] {
            let key = Key::from_seed(steps as u64);
            let all = With(
                Rmd::default(),
                InnerLoop { noise_scale: 0.7, ..InnerLoop::new(0.05, steps).at_temperature(temperature) },
            );
            let (reverse, ended) = once(&all, &problem, key);
            let ended = ended.snapshot().unwrap();
            for storage in [Storage::Checkpoints, Storage::Truncated(steps), Storage::Truncated(steps + 5)] {
                let (other, state) = once(&With(Rmd { storage }, all.1), &problem, key);
                assert_eq!(arrays(&other), arrays(&reverse), "{storage:?}, {steps} steps, θ⁰ from {from:?}");
                assert_eq!((other.inner_loss, other.outer_loss), (reverse.inner_loss, reverse.outer_loss));
                assert_eq!(state.snapshot().unwrap(), ended);
            }
            let (forward, state) = once(
                &With(
                    Fmd::default(),
                    InnerLoop { noise_scale: 0.7, ..InnerLoop::new(0.05, steps).at_temperature(temperature) },
                ),
                &problem,
                key,
            );
            let error = apart(&flat(&forward.value), &flat(&reverse.value));
            assert!(error < 1e-12, "{error:e} with {steps} steps, θ⁰ from {from:?}");
            assert_eq!((forward.inner_loss, forward.outer_loss), (reverse.inner_loss, reverse.outer_loss));
            assert_eq!(state.snapshot().unwrap(), ended);
        }
    }
}

#[test]
fn reverse_mode_agrees_with_central_differences_of_the_whole_inner_loop() {
    for from in [From::State, From::Lambda, From::Function] {
        let problem = network(from);
        let (step, steps, temperature, noise_scale, key) = (0.1, 40, 0.05, 1.0, Key::from_seed(11));
        let method = With(
            Rmd { storage: Storage::Checkpoints },
            InnerLoop { noise_scale, ..InnerLoop::new(step, steps).at_temperature(temperature) },
        );
        let found = flat(&once(&method, &problem, key).0.value);
        let mut plain = With(
            RmdFo::default(),
            InnerLoop { noise_scale, ..InnerLoop::new(step, steps).at_temperature(temperature) },
        )
        .prepared_on(&problem, &cpu())
        .unwrap();
        let state = State::initial(&problem, &cpu(), Key::from_seed(3)).unwrap();
        let mut value = |leaf: usize, j: usize, by: f64| {
            let mut state = state.duplicate(&cpu()).unwrap();
            let mut numbers = state.lambda.array(leaf).unwrap().to_f64();
            numbers[j] += by;
            let moved = Array::from_f64(state.lambda[leaf].shape(), numbers).unwrap();
            state.lambda[leaf].write(&moved).unwrap();
            plain.estimate(&mut state, key).unwrap().outer_loss
        };
        let mut differences = vec![];
        for leaf in 0..state.lambda.len() {
            for j in 0..state.lambda[leaf].len() {
                let by = 1e-4;
                let near = value(leaf, j, by) - value(leaf, j, -by);
                let far = value(leaf, j, 2.0 * by) - value(leaf, j, -2.0 * by);
                differences.push((8.0 * near - far) / (12.0 * by));
            }
        }
        let error = apart(&found, &differences);
        assert!(error < 1e-7, "{error:e}, θ⁰ from {from:?}");
    }
}

/// One of each, for a problem whose θ starts from the state or from λ.
fn every_method(from: From) -> Vec<Box<dyn Method>> {
    let (step, steps) = (0.05, 12);
    let mut all: Vec<Box<dyn Method>> = vec![
        Box::new(With(Rmd::default(), InnerLoop::new(step, steps))),
        Box::new(With(Rmd { storage: Storage::Checkpoints }, InnerLoop::new(step, steps))),
        Box::new(With(Rmd { storage: Storage::Truncated(5) }, InnerLoop::new(step, steps))),
        Box::new(With(RmdFo::default(), InnerLoop::new(step, steps))),
        Box::new(With(Fmd::default(), InnerLoop::new(step, steps))),
        Box::new(With(Es { directions: 5, sigma: 0.1, ..Es::default() }, InnerLoop::new(step, steps))),
    ];
    match from {
        From::State => all.push(Box::new(With(
            Covariance::default(),
            InnerLoop { burn_in: 3, ..InnerLoop::new(step, 3 + steps).at_temperature(0.1) },
        ))),
        From::Lambda => all.push(Box::new(With(Reptile::default(), InnerLoop::new(step, steps)))),
        From::Function => {}
    }
    all
}

#[test]
fn the_same_state_and_key_give_the_same_bits_from_the_same_estimator() {
    for from in [From::State, From::Lambda, From::Function] {
        let problem = network(from);
        for method in every_method(from) {
            let mut estimator = method.prepared_on(&problem, &cpu()).unwrap();
            let mut estimate = |key| {
                let mut state = State::initial(&problem, &cpu(), Key::from_seed(3)).unwrap();
                let h = estimator.estimate(&mut state, key).unwrap();
                (arrays(&h), (h.inner_loss, h.outer_loss, h.oracles, h.diagnostics), state.snapshot().unwrap())
            };
            let first = estimate(Key::from_seed(1));
            let other = estimate(Key::from_seed(2));
            assert_ne!(first.0, other.0, "{}", method.name());
            assert_eq!(estimate(Key::from_seed(1)), first, "{}", method.name());
        }
    }
}

#[test]
fn single_precision_agrees_with_double() {
    let problem = |dtype| {
        Problem::builder(Leaf(Variable::constant([2], 0.4)), Leaf(Variable::constant([2], 0.9)))
            .dtype(dtype)
            .inner(|_, l, t| (t.0.tanh() - l.0).square().sum_all() + (l.0 * t.0.square()).sum_all())
            .outer(|_, l, t| (t.0 * l.0 - 1.0).square().sum_all())
            .build()
            .unwrap()
    };
    for method in every_method(From::Function) {
        let (single, _) = once(&*method, &problem(DType::F32), Key::from_seed(1));
        let (double, _) = once(&*method, &problem(DType::F64), Key::from_seed(1));
        assert!(single.value.iter().all(|a| a.dtype() == DType::F32));
        let error = apart(&flat(&single.value), &flat(&double.value));
        assert!(error < 1e-4, "{}: {error:e}", method.name());
    }
    let (single, _) = once(&Covariance::default(), &problem(DType::F32), Key::from_seed(1));
    assert_eq!(single.value[0].dtype(), DType::F32);
}

#[test]
fn truncation_leaves_out_the_early_steps_and_the_start() {
    // H = 1 and C = −1, so k steps back give 1 − (1−γ)ᵏ, and the start (1−γ)ᵀ.
    let problem = |from_lambda: bool| {
        let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 1.0)))
            .inner(|_, l, t| (t.0 - l.0).square() / 2.0)
            .outer(|_, _, t| t.0);
        if from_lambda { problem.start(|_, l| *l).build().unwrap() } else { problem.build().unwrap() }
    };
    let method = With(Rmd { storage: Storage::Truncated(5) }, InnerLoop::new(0.1, 20));
    for from_lambda in [false, true] {
        let h = once(&method, &problem(from_lambda), Key::from_seed(0)).0.value[0].item().unwrap();
        assert!((h - (1.0 - 0.9f64.powi(5))).abs() < 1e-15, "{h}");
    }
    let all = With(Rmd { storage: Storage::All }, method.1);
    let h = once(&all, &problem(false), Key::from_seed(0)).0.value[0].item().unwrap();
    assert!((h - (1.0 - 0.9f64.powi(20))).abs() < 1e-15, "{h}");
    let h = once(&all, &problem(true), Key::from_seed(0)).0.value[0].item().unwrap();
    assert!((h - 1.0).abs() < 1e-15, "{h}");
}

#[test]
fn first_order_reverse_mode_drops_the_second_order_terms_only() {
    let (problem, key) = (network(From::Lambda), Key::from_seed(4));
    let compare = |step| {
        let (first, _) = once(&With(RmdFo::default(), InnerLoop::new(step, 9)), &problem, key);
        let (full, _) = once(&With(Rmd::default(), InnerLoop::new(step, 9)), &problem, key);
        assert_eq!((first.inner_loss, first.outer_loss), (full.inner_loss, full.outer_loss));
        apart(&flat(&first.value), &flat(&full.value))
    };
    assert!(compare(0.05) > 0.01);
    assert!(compare(1e-300) < 1e-15, "the second-order terms vanish with the step");
}

#[test]
fn reptile_points_from_the_end_of_training_to_its_start() {
    let problem = network(From::Lambda);
    let (h, state) = once(&With(Reptile::default(), InnerLoop::new(0.05, 9)), &problem, Key::from_seed(4));
    let (other, ended) = once(&With(RmdFo::default(), InnerLoop::new(0.05, 9)), &problem, Key::from_seed(4));
    assert_eq!(state.snapshot().unwrap(), ended.snapshot().unwrap());
    assert_eq!((h.inner_loss, h.outer_loss), (other.inner_loss, other.outer_loss));
    for ((value, lambda), theta) in flat(&h.value).iter().zip(flat(&state.lambda)).zip(flat(&state.theta)) {
        assert_eq!(*value, lambda - theta);
    }
}

// ---- HPO-SGLD against dense matrices ----

const A: [[f64; 3]; 3] = [[1.2, 0.3, -0.1], [0.3, 0.9, 0.2], [-0.1, 0.2, 1.5]];
const B: [[f64; 3]; 3] = [[0.7, -0.2, 0.4], [0.1, 0.5, -0.3], [-0.6, 0.3, 0.8]];
const D: [[f64; 3]; 3] = [[0.3, 0.1, -0.2], [-0.1, 0.4, 0.2], [0.2, -0.3, 0.1]];
const P: [[f64; 3]; 3] = [[0.8, -0.1, 0.2], [-0.1, 1.1, 0.3], [0.2, 0.3, 0.6]];

fn times(m: &[[f64; 3]; 3], v: [f64; 3]) -> [f64; 3] {
    m.map(|row| (0..3).map(|j| row[j] * v[j]).sum())
}

fn transposed(m: &[[f64; 3]; 3]) -> [[f64; 3]; 3] {
    std::array::from_fn(|i| std::array::from_fn(|j| m[j][i]))
}

/// L_T = ½θᵀAθ + Σθ³/5 + ½Σθ²(Dλ) − θᵀBλ and f = ½θᵀPθ + Σθ³/7, to which θᵀDλ + ½‖λ‖² is added where f is one of λ, too.
fn dense_problem(from_lambda: bool, of_lambda: bool) -> Problem {
    let constant = |m: [[f64; 3]; 3]| Array::from_f64([3, 3], m.concat()).unwrap();
    let problem = Problem::builder(
        Leaf(Variable::fixed(Array::from_f64([3], vec![0.4, -0.7, 0.5]).unwrap())),
        Leaf(Variable::fixed(Array::from_f64([3], vec![0.4, -0.7, 0.5]).unwrap())),
    )
    .data("A", constant(A))
    .data("B", constant(B))
    .data("D", constant(D))
    .data("P", constant(P))
    .inner(|scope, l, t| {
        let times = |name: &str, v: bilevel::Tensor| scope.data(name).matmul(v.unsqueeze([1])).reshape([3]);
        let t = t.0;
        let quadratic = (t * times("A", t)).sum_all() * 0.5 + (t * t * t).sum_all() / 5.0;
        quadratic + (t * t * times("D", l.0)).sum_all() * 0.5 - (t * times("B", l.0)).sum_all()
    })
    .outer(move |scope, l, t| {
        let times = |name: &str, v: bilevel::Tensor| scope.data(name).matmul(v.unsqueeze([1])).reshape([3]);
        let t = t.0;
        let quadratic = (t * times("P", t)).sum_all() * 0.5 + (t * t * t).sum_all() / 7.0;
        match of_lambda {
            true => quadratic + (t * times("D", l.0)).sum_all() + l.0.square().sum_all() * 0.5,
            false => quadratic,
        }
    });
    if from_lambda { problem.start(|_, l| *l).build().unwrap().erase() } else { problem.build().unwrap().erase() }
}

#[test]
fn hpo_sgld_equals_the_papers_formula_in_dense_matrices() {
    let (burn_in, samples, gamma, temperature, noise_scale) = (6, 9, 0.05, 0.01, 0.8);
    let method = With(
        HpoSgld::default(),
        InnerLoop { burn_in, noise_scale, ..InnerLoop::new(gamma, burn_in + samples).at_temperature(temperature) },
    );
    let key = Key::from_seed(21);
    for (from_lambda, of_lambda) in [(false, true), (true, true), (false, false), (true, false)] {
        let lambda = [0.4, -0.7, 0.5];
        let (dl, direct) = (times(&D, lambda), f64::from(of_lambda));
        let slope = |t: [f64; 3]| -> [f64; 3] {
            let (at, bl) = (times(&A, t), times(&B, lambda));
            std::array::from_fn(|i| at[i] + 0.6 * t[i] * t[i] + t[i] * dl[i] - bl[i])
        };
        let hessian = |t: [f64; 3]| -> [[f64; 3]; 3] {
            std::array::from_fn(|i| std::array::from_fn(|j| A[i][j] + if i == j { 1.2 * t[i] + dl[i] } else { 0.0 }))
        };
        let mixed = |t: [f64; 3]| -> [[f64; 3]; 3] {
            std::array::from_fn(|i| std::array::from_fn(|j| t[i] * D[i][j] - B[i][j]))
        };
        let f_theta = |t: [f64; 3]| -> [f64; 3] {
            let pt = times(&P, t);
            std::array::from_fn(|i| pt[i] + 3.0 / 7.0 * t[i] * t[i] + direct * dl[i])
        };
        let f_hessian = |t: [f64; 3]| -> [[f64; 3]; 3] {
            std::array::from_fn(|i| std::array::from_fn(|j| P[i][j] + if i == j { 6.0 / 7.0 * t[i] } else { 0.0 }))
        };
        let start = if from_lambda { 1.0 } else { 0.0 };
        let mut theta = lambda;
        let mut g = f_theta(theta).map(|v| v * start);
        let mut h = [0.0; 3];
        for m in 1..=burn_in + samples {
            let mut noise = [0.0; 3];
            fill_normal_f64(key.words(), m as u32 - 1, 7 << 28, 0, &mut noise);
            let s = slope(theta);
            let scale = noise_scale * (2.0 * temperature * gamma).sqrt();
            let next: [f64; 3] = std::array::from_fn(|i| theta[i] - gamma * s[i] + scale * noise[i]);
            let f = f_theta(next);
            let by_c = times(&transposed(&mixed(theta)), f);
            let by_h = times(&hessian(theta), f);
            let bend = times(&f_hessian(theta), std::array::from_fn(|i| next[i] - theta[i]));
            for i in 0..3 {
                g[i] += -gamma * (by_c[i] + start * by_h[i]) + start * bend[i];
            }
            theta = next;
            if m > burn_in {
                let by_lambda = times(&transposed(&D), theta);
                for i in 0..3 {
                    h[i] += (direct * (by_lambda[i] + lambda[i]) + g[i]) / samples as f64;
                }
            }
        }
        let (found, state) = once(&method, &dense_problem(from_lambda, of_lambda), key);
        assert!(apart(&flat(&state.theta), &theta) < 1e-12);
        let error = apart(&flat(&found.value), &h);
        assert!(error < 1e-12, "{error:e} with J0 = {start}, f of λ: {of_lambda}");
    }
}

/// With f = L_T = ½(θ − c)ᵀH(θ − c), θ⁰ = λ, A = I − γH and u = f_θ(λ), the exact derivative of the last of T steps is A²ᵀu. The printed
/// recursion gives (Aᵀ⁺¹ + Aᵀ − A)·u (powers T+1, T and 1), whose sign for long chains is the opposite: it goes uphill.
#[test]
fn the_printed_recursion_on_a_quadratic_has_powers_of_its_own_and_changes_its_sign() {
    let (curvatures, centre, lambda, step) = ([0.1, 0.7, 2.0], [1.0, -0.5, 0.25], [0.4, 0.3, -0.8], 0.05);
    let numbers = |of: [f64; 3]| Array::from_f64([3], of.to_vec()).unwrap();
    let loss = |s: &bilevel::Scope, t: bilevel::Tensor| ((t - s.data("c")).square() * s.data("h")).sum_all() * 0.5;
    let problem = Problem::builder(Leaf(Variable::fixed(numbers(lambda))), Leaf(Variable::constant([3], 0.0)))
        .data("h", numbers(curvatures))
        .data("c", numbers(centre))
        .start(|_, l| *l)
        .inner(move |s, _, t| loss(s, t.0))
        .outer(move |s, _, t| loss(s, t.0))
        .build()
        .unwrap();
    for steps in [1, 2, 5, 40] {
        let t = steps as i32;
        let formula = |of: &dyn Fn(f64) -> f64| -> Vec<f64> {
            let slope = |i: usize| curvatures[i] * (lambda[i] - centre[i]);
            (0..3).map(|i| of(1.0 - step * curvatures[i]) * slope(i)).collect()
        };
        let printed = With(HpoSgld::default(), InnerLoop { burn_in: steps - 1, ..InnerLoop::new(step, steps - 1 + 1) });
        let (found, _) = once(&printed, &problem, Key::from_seed(0));
        let expected = formula(&|a| a.powi(t + 1) + a.powi(t) - a);
        assert!(apart(&flat(&found.value), &expected) < 1e-13, "{steps} steps: {:?} {expected:?}", flat(&found.value));
        let (exact, _) = once(&With(Rmd::default(), InnerLoop::new(step, steps)), &problem, Key::from_seed(0));
        let truth = formula(&|a| a.powi(2 * t));
        assert!(apart(&flat(&exact.value), &truth) < 1e-13, "{steps} steps: {:?} {truth:?}", flat(&exact.value));
        // γTH = ½ is where the sign flips, to first order: at 40 steps the curvatures 0.7 and 2 are beyond it, and 0.1 is not.
        let agree: Vec<bool> = expected.iter().zip(&truth).map(|(printed, exact)| printed * exact > 0.0).collect();
        assert_eq!(agree, if steps == 40 { [true, false, false] } else { [true; 3] }, "{steps} steps");
    }
}

// ---- The design's table ----

/// Plain SGD on λ with θ warm; the last λ and the θ from before the last update, to four digits.
fn descend(method: &dyn Method) -> String {
    let problem = Problem::builder(Leaf(Variable::constant([], 0.1)), Leaf(Variable::constant([], 0.1)))
        .inner(|_, l, t| t.0 * t.0 * t.0 / 3.0 - (1.0 - l.0 * l.0) * t.0)
        .outer(|_, l, t| (l.0 - t.0).square() + (t.0 - 0.5).square())
        .build()
        .unwrap();
    let mut estimator = method.prepared_on(&problem, &cpu()).unwrap();
    let mut state = State::initial(&problem, &cpu(), Key::from([0, 0])).unwrap();
    for outer in 0..200 {
        let h = estimator.estimate(&mut state, Key::from([0, outer])).unwrap();
        let lambda = state.lambda[0].item().unwrap() - 0.005 * h.value[0].item().unwrap();
        state.lambda[0].set_item(lambda).unwrap();
    }
    format!("{:.4} {:.4}", state.lambda[0].item().unwrap(), state.theta[0].item().unwrap())
}

#[test]
fn the_papers_synthetic_rows_come_out_to_the_printed_digits() {
    let step = 0.005;
    for (steps, exact, first_order) in
        [(100, "0.7360 0.6770", "0.6916 0.7228"), (1000, "0.7489 0.6627", "0.6916 0.7226")]
    {
        assert_eq!(descend(&With(Rmd::default(), InnerLoop::new(step, steps))), exact);
        assert_eq!(descend(&With(Rmd { storage: Storage::Checkpoints }, InnerLoop::new(step, steps))), exact);
        assert_eq!(descend(&With(Fmd::default(), InnerLoop::new(step, steps))), exact);
        assert_eq!(descend(&With(RmdFo::default(), InnerLoop::new(step, steps))), first_order);
    }
}

// ---- Estimators that are right on average ----

/// Means and standard errors over many keys, number by number of λ.
fn average(method: &dyn Method, problem: &AnyProblem, keys: u32) -> Vec<(f64, f64)> {
    let mut estimator = method.prepared_on(problem, &cpu()).unwrap();
    let runs: Vec<Vec<f64>> = (0..keys)
        .map(|k| {
            let mut state = State::initial(problem, &cpu(), Key::from_seed(3)).unwrap();
            flat(&estimator.estimate(&mut state, Key::from_seed(5).fold_in(k)).unwrap().value)
        })
        .collect();
    let n = keys as f64;
    (0..runs[0].len())
        .map(|j| {
            let mean = runs.iter().map(|r| r[j]).sum::<f64>() / n;
            let variance = runs.iter().map(|r| (r[j] - mean).powi(2)).sum::<f64>() / (n - 1.0);
            (mean, (variance / n).sqrt())
        })
        .collect()
}

#[test]
fn evolutionary_search_is_unbiased_where_f_is_quadratic_in_lambda() {
    for from_lambda in [false, true] {
        // θᵀ is affine in λ, so smoothing does not change the derivative.
        let problem = Problem::builder(
            (Leaf(Variable::fixed(Array::from_f64([2], vec![0.5, -0.3]).unwrap())), Leaf(Variable::constant([], 0.2))),
            (Leaf(Variable::constant([2], 0.1)), Leaf(Variable::constant([], -0.2))),
        )
        .inner(|_, (a, b), (x, y)| (x.0 - a.0 * 2.0).square().sum_all() + (y.0 - b.0 + x.0.sum_all()).square())
        .outer(|_, (a, b), (x, y)| (x.0 - 1.0).square().sum_all() + y.0 * b.0 + a.0.square().sum_all());
        let problem = if from_lambda { problem.start(|_, l| *l).build().unwrap() } else { problem.build().unwrap() };
        let (truth, _) = once(&With(Rmd::default(), InnerLoop::new(0.1, 5)), &problem, Key::from_seed(0));
        let truth = flat(&truth.value);
        let size = truth.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        for (antithetic, sigma, most) in [(true, 0.001, 0.01), (false, 0.3, 0.1)] {
            let method = With(Es { sigma, directions: 100, antithetic }, InnerLoop::new(0.1, 5));
            for (j, (mean, error)) in average(&method, &problem, 400).into_iter().enumerate() {
                assert!((mean - truth[j]).abs() < 4.0 * error, "{mean} ± {error}, truth {}", truth[j]);
                assert!(error < most * size, "{error} of {size}");
            }
        }
    }
}

#[test]
fn the_covariance_estimator_is_unbiased_on_a_gaussian() {
    // L = ½a(θ−λ)²: the chain has mean λ and variance κ²τ/(a(1−γa/2)); f = θ² + λθ + 100.
    let (a, lambda, step) = (1.5, 0.8, 0.2);
    let problem = Problem::builder(Leaf(Variable::constant([], lambda)), Leaf(Variable::constant([], lambda)))
        .inner(move |_, l, t| (t.0 - l.0).square() * (a / 2.0))
        .outer(|_, l, t| t.0.square() + l.0 * t.0 + 100.0)
        .build()
        .unwrap();
    let truth = lambda + 3.0 * lambda / (1.0 - step * a / 2.0);
    let method = With(
        Covariance::default(),
        InnerLoop { burn_in: 50, noise_scale: 0.6, ..InnerLoop::new(step, 40050).at_temperature(0.5) },
    );
    let (mean, error) = average(&method, &problem, 40)[0];
    assert!((mean - truth).abs() < 4.0 * error && error < 0.01 * truth, "{mean} ± {error}, truth {truth}");
}

// ---- Cost ----

#[test]
fn oracles_are_counted_exactly() {
    let (state, lambda) = (network(From::State), network(From::Lambda));
    let key = Key::from_seed(1);
    let counts = |method: &dyn Method, problem: &AnyProblem| once(method, problem, key).0.oracles;
    let expect = |inner_gradients, outer_gradients, products, losses| Oracles {
        inner_gradients,
        outer_gradients,
        hessian_products: products,
        mixed_products: products,
        losses,
    };
    let rmd = With(Rmd::default(), InnerLoop::new(0.01, 50));
    for problem in [&state, &lambda] {
        assert_eq!(counts(&rmd, problem), expect(50, 1, 50, 0));
        // Seven stretches of 8 (the last of 2): all but the last are run again, but for their last steps.
        let checkpoints = With(Rmd { storage: Storage::Checkpoints }, rmd.1);
        assert_eq!(counts(&checkpoints, problem), expect(50 + 6 * 7, 1, 50, 0));
        assert_eq!(counts(&With(Rmd { storage: Storage::Truncated(9) }, rmd.1), problem), expect(50, 1, 9, 0));
        assert_eq!(counts(&With(RmdFo::default(), InnerLoop::new(0.01, 50)), problem), expect(50, 1, 0, 0));
        // The first of the four runs takes a tangent along that measures growth.
        let fmd = Oracles { hessian_products: 250, ..expect(200, 1, 200, 0) };
        assert_eq!(counts(&With(Fmd::default(), InnerLoop::new(0.01, 50)), problem), fmd);
        let es = With(Es { directions: 3, ..Es::default() }, InnerLoop::new(0.01, 50));
        assert_eq!(counts(&es, problem), expect(350, 0, 0, 7));
        assert_eq!(counts(&With(Es { antithetic: false, ..es.0 }, es.1), problem), expect(200, 0, 0, 4));
    }
    assert_eq!(counts(&With(Reptile::default(), InnerLoop::new(0.01, 50)), &lambda), expect(50, 0, 0, 1));
    let covariance =
        With(Covariance::default(), InnerLoop { burn_in: 20, ..InnerLoop::new(0.01, 50).at_temperature(0.1) });
    assert_eq!(counts(&covariance, &state), expect(50, 30, 0, 0));
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let problem = network(From::State);
    let refused = |method: &dyn Method| match method.prepared_on(&problem, &cpu()).err() {
        Some(Error::Setting { name, .. }) => name,
        other => panic!("{}: {other:?}", method.name()),
    };
    assert_eq!(refused(&With(Rmd::default(), InnerLoop::new(0.0, 100))), "step");
    assert_eq!(refused(&With(Rmd::default(), InnerLoop::new(0.01, 0))), "steps");
    assert_eq!(refused(&With(Rmd::default(), InnerLoop::new(0.01, usize::MAX))), "steps");
    assert_eq!(refused(&With(Rmd::default(), InnerLoop::default().at_temperature(-1.0))), "temperature");
    assert_eq!(
        refused(&With(Rmd::default(), InnerLoop { noise_scale: f64::NAN, ..InnerLoop::default() })),
        "noise_scale"
    );
    assert_eq!(refused(&Rmd { storage: Storage::Truncated(0) }), "storage");
    assert_eq!(refused(&With(RmdFo::default(), InnerLoop::new(f64::INFINITY, 100))), "step");
    assert_eq!(refused(&With(Fmd::default(), InnerLoop::new(-0.1, 100))), "step");
    assert_eq!(refused(&Es { sigma: 0.0, ..Es::default() }), "sigma");
    assert_eq!(refused(&Es { directions: 0, ..Es::default() }), "directions");
    assert_eq!(
        refused(&With(
            Covariance::default(),
            InnerLoop { burn_in: 100, ..InnerLoop::new(0.01, 101).at_temperature(0.1) }
        )),
        "samples"
    );
    assert_eq!(
        refused(&With(Covariance::default(), InnerLoop { burn_in: 100, ..InnerLoop::new(0.01, 1100) })),
        "temperature"
    );
    assert_eq!(
        refused(&With(
            Covariance::default(),
            InnerLoop { burn_in: 100, noise_scale: 0.0, ..InnerLoop::new(0.01, 1100).at_temperature(0.1) }
        )),
        "noise_scale"
    );
    assert_eq!(refused(&With(Reptile::default(), InnerLoop::new(0.01, 0))), "steps");
}

#[test]
fn methods_say_why_a_problem_is_not_for_them() {
    let refused = |method: &dyn Method, from| {
        let error = method.prepared_on(&network(from), &cpu()).err().unwrap();
        assert!(matches!(error, Error::NotApplicable { .. }), "{error}");
        error.to_string()
    };
    for from in [From::State, From::Function] {
        assert!(refused(&Reptile::default(), from).contains("θ⁰ must be λ"));
    }
    assert!(refused(&Covariance::default(), From::Lambda).contains("use rmd"));
}

/// A θ of 1000 numbers.
fn wide() -> Problem {
    Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([1000], 0.0)))
        .inner(|_, l, t| (t.0 - l.0).square().sum_all() / 2.0)
        .outer(|_, l, t| t.0.square().sum_all() + l.0)
        .build()
        .unwrap()
        .erase()
}

#[test]
fn an_inner_loop_that_blows_up_is_reported_with_advice_and_leaves_lambda_alone() {
    let problem = wide();
    let methods: [&dyn Method; 5] = [
        &With(Rmd::default(), InnerLoop::new(5.0, 1000)),
        &With(RmdFo::default(), InnerLoop::new(5.0, 1000)),
        &With(Fmd::default(), InnerLoop::new(5.0, 1000)),
        &With(Es { directions: 1, ..Es::default() }, InnerLoop::new(5.0, 1000)),
        &With(Covariance::default(), InnerLoop { burn_in: 100, ..InnerLoop::new(5.0, 1100).at_temperature(0.1) }),
    ];
    for method in methods {
        let mut state = State::initial(&problem, &cpu(), Key::from([0, 0])).unwrap();
        let error = method.prepared_on(&problem, &cpu()).unwrap().estimate(&mut state, Key::from([0, 0])).unwrap_err();
        assert!(matches!(error, Error::Diverged { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains(method.name()) && (said.contains("smaller inner step")), "{said}");
        let first = State::initial(&problem, &cpu(), Key::from([0, 0])).unwrap();
        assert_eq!(state.lambda.arrays().unwrap(), first.lambda.arrays().unwrap());
    }
}

#[test]
fn forward_mode_follows_a_lambda_that_acts_through_the_start_alone() {
    // θ⁰ = λ and one step of ¼ towards 1: θ = λ + ¼(1 − λ), so dθ/dλ is ¾.
    let problem = Problem::builder(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
        .inner(|_, _, t| (t.0 - 1.0).square() / 2.0)
        .outer(|_, _, t| t.0)
        .start(|_, l| *l)
        .build()
        .unwrap();
    let cpu = Cpu::with_threads(1);
    let mut state = State::initial(&problem, &cpu, Key::from_seed(0)).unwrap();
    let method = With(Fmd::default(), InnerLoop::new(0.25, 1));
    let found = method.prepared_on(&problem, &cpu).unwrap().estimate(&mut state, Key::from_seed(0)).unwrap();
    assert_eq!(found.value.numbers().unwrap(), [0.75]);
}
