//! Inner loops with optimizers, leaves with rates and decay of their own, frozen leaves and statistics: hypergradients through
//! whole trainings against central differences of the same trainings.

use crate::with::{Usual, With};
use bilevel::methods::{Fmd, Reptile, RmdFo, Storage};
use bilevel::optimizers::{AdamW, InnerOptimizer, Momentum, RmsProp};
use bilevel::prelude::*;
use bilevel::programs::Snapshot;
use bilevel::{AnyProblem, Result, Session, State};

#[derive(Clone, Tree)]
struct Net<T> {
    w: T,
    b: T,
}

fn data() -> (Array, Array) {
    let x: Vec<f64> = (0..24).map(|i| ((i * 7 % 11) as f64 - 5.0) / 5.0).collect();
    let y: Vec<f64> = (0..8).map(|i| ((i * 5 % 7) as f64 - 3.0) / 3.0).collect();
    (Array::from_f64([8, 3], x).unwrap(), Array::from_f64([8], y).unwrap())
}

fn error(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor {
    ((x.matmul(w.reshape([3, 1])).reshape([8]) + b).tanh() - y).square().mean_all()
}

/// A small network with one log penalty per weight; the rates and decays of θ's leaves as given.
fn problem(w: fn(Variable) -> Variable, b: fn(Variable) -> Variable) -> Problem {
    let (x, y) = data();
    let log = Array::from_f64([3], vec![-2.0, -1.0, -3.0]).unwrap();
    let start = Array::from_f64([3], vec![0.3, -0.2, 0.5]).unwrap();
    let theta = Net { w: w(Variable::fixed(start)), b: b(Variable::constant([], 0.1)) };
    Problem::builder(Leaf(Variable::fixed(log)), theta)
        .data("x", x)
        .data("y", y)
        .inner(|s, l, net| error(s.data("x"), s.data("y"), net.w, net.b) + (l.0.exp() * net.w.square()).sum_all())
        .outer(|s, l, net| {
            error(s.data("x"), s.data("y") * 0.5, net.w, net.b) + l.0.square().sum_all() * 0.01 + net.w.sum_all() * 0.1
        })
        .build()
        .unwrap()
        .erase()
}

fn plain(variable: Variable) -> Variable {
    variable
}

fn optimizers() -> Vec<InnerOptimizer> {
    vec![
        InnerOptimizer::Sgd,
        InnerOptimizer::Momentum(Momentum::default()),
        InnerOptimizer::Momentum(Momentum { nesterov: true, decay: 0.8 }),
        InnerOptimizer::RmsProp(RmsProp { epsilon: 1e-3, ..RmsProp::default() }),
        InnerOptimizer::Adam(Adam { epsilon: 1e-3, ..Adam::default() }),
        InnerOptimizer::AdamW(AdamW { adam: Adam { epsilon: 1e-3, ..Adam::default() }, weight_decay: 0.1 }),
    ]
}

const STEPS: usize = 12;

fn rmd(optimizer: InnerOptimizer) -> With<Rmd> {
    With(Rmd::default(), InnerLoop { optimizer, ..InnerLoop::new(0.05, STEPS) })
}

/// f after the training, at these λ.
fn value(problem: &AnyProblem, method: With<Rmd>, lambda: &[f64]) -> f64 {
    let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
    let mut estimator = method.prepared(&session).unwrap();
    let mut state = session.state(Key::from_seed(1)).unwrap();
    state.lambda.write(&[Array::from_f64([lambda.len()], lambda.to_vec()).unwrap()]).unwrap();
    estimator.estimate(&mut state, Key::from_seed(2)).unwrap().outer_loss
}

/// Richardson-extrapolated central differences of the whole training.
fn differences(problem: &AnyProblem, method: With<Rmd>) -> Vec<f64> {
    let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
    let at = session.state(Key::from_seed(1)).unwrap().lambda.numbers().unwrap();
    let slope = |i: usize, h: f64| {
        let moved = |by: f64| {
            let mut lambda = at.clone();
            lambda[i] += by;
            value(problem, method, &lambda)
        };
        (moved(h) - moved(-h)) / (2.0 * h)
    };
    (0..at.len()).map(|i| (4.0 * slope(i, 1e-4) - slope(i, 2e-4)) / 3.0).collect()
}

fn estimate(problem: &AnyProblem, method: &dyn Method) -> Result<(Vec<f64>, Snapshot)> {
    let session = Session::new(problem, &Cpu::with_threads(1))?;
    let mut state = session.state(Key::from_seed(1))?;
    let found = method.prepared(&session)?.estimate(&mut state, Key::from_seed(2))?;
    Ok((found.value.numbers()?, state.snapshot()?))
}

fn assert_near(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{what}: {found:?} and not {expected:?}");
    }
}

#[test]
fn reverse_mode_differentiates_through_every_optimizer_exactly() {
    let problem = problem(plain, plain);
    for optimizer in optimizers() {
        let expected = differences(&problem, rmd(optimizer));
        let (found, _) = estimate(&problem, &rmd(optimizer)).unwrap();
        assert_near(&format!("{optimizer:?}"), &found, &expected, 1e-8);
        let checkpointed = With(Rmd { storage: Storage::Checkpoints }, rmd(optimizer).1);
        assert_eq!(estimate(&problem, &checkpointed).unwrap().0, found, "{optimizer:?}: bit for bit");
    }
}

#[test]
fn forward_mode_agrees_with_reverse_mode_through_every_optimizer() {
    let problem = problem(plain, plain);
    for optimizer in optimizers() {
        let (expected, end) = estimate(&problem, &rmd(optimizer)).unwrap();
        let fmd = With(Fmd::default(), rmd(optimizer).1);
        let (found, fmd_end) = estimate(&problem, &fmd).unwrap();
        assert_near(&format!("{optimizer:?}"), &found, &expected, 1e-12);
        assert_eq!(fmd_end.theta, end.theta, "{optimizer:?}: the same training");
    }
}

#[test]
fn adam_has_a_derivative_where_every_gradient_is_zero() {
    // θ starts at the minimum for λ = 0, so the first gradient is 0 and its square too.
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
        .inner(|_, l, t| (t.0 - l.0).square())
        .outer(|_, _, t| t.0)
        .build()
        .unwrap();
    for optimizer in [InnerOptimizer::Adam(Adam::default()), InnerOptimizer::RmsProp(RmsProp::default())] {
        let (found, _) =
            estimate(&problem, &With(rmd(optimizer).0, InnerLoop { steps: 1, optimizer, ..rmd(optimizer).1 })).unwrap();
        assert!(found[0].is_finite() && found[0] > 0.0, "{optimizer:?}: {found:?}");
    }
}

#[test]
fn the_others_train_with_the_optimizer_they_are_given() {
    let problem = problem(plain, plain);
    for optimizer in optimizers() {
        let (_, expected) = estimate(&problem, &rmd(optimizer)).unwrap();
        let (step, steps) = (0.05, STEPS);
        let methods: [Box<dyn Method>; 2] = [
            Box::new(With(RmdFo::default(), InnerLoop { optimizer, ..InnerLoop::new(step, steps) })),
            Box::new(With(IftCg::default(), InnerLoop { optimizer, ..InnerLoop::new(step, steps) })),
        ];
        for method in methods {
            let (_, end) = estimate(&problem, &*method).unwrap();
            assert_eq!(end.theta, expected.theta, "{} with {optimizer:?}", method.name());
        }
    }
    let start = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
        .inner(|_, _, t| t.0.square() / 2.0)
        .outer(|_, _, t| t.0.square())
        .start(|_, l| *l)
        .build()
        .unwrap();
    let optimizer = InnerOptimizer::Momentum(Momentum { decay: 0.5, nesterov: false });
    let (found, _) =
        estimate(&start, &With(Reptile::default(), InnerLoop { optimizer, ..InnerLoop::new(0.5, 2) })).unwrap();
    // 1 → 0.5 with v = 1, then v = 0.5·1 + 0.5 = 1 → 0.
    assert_eq!(found, [1.0]);
}

#[test]
fn noise_goes_with_plain_descent_only_and_bad_settings_are_refused() {
    let problem = problem(plain, plain);
    let adam = InnerOptimizer::Adam(Adam::default());
    let noisy = With(rmd(adam).0, InnerLoop { temperature: 0.1, ..rmd(adam).1 });
    let said = estimate(&problem, &noisy).unwrap_err().to_string();
    assert!(said.contains("Langevin noise works with plain descent only"), "{said}");
    let wild = rmd(InnerOptimizer::Momentum(Momentum { decay: 1.5, nesterov: false }));
    assert!(estimate(&problem, &wild).unwrap_err().to_string().contains("decay"));
}

#[test]
fn leaves_with_rates_and_decay_of_their_own_are_differentiated_exactly() {
    let own = problem(|w| w.rate(0.3).weight_decay(0.2), |b| b.rate(2.0));
    for optimizer in [InnerOptimizer::Sgd, InnerOptimizer::Momentum(Momentum::default())] {
        let (found, _) = estimate(&own, &rmd(optimizer)).unwrap();
        assert_near(&format!("{optimizer:?}"), &found, &differences(&own, rmd(optimizer)), 1e-8);
        let (same, _) = estimate(&problem(plain, plain), &rmd(optimizer)).unwrap();
        assert!(found.iter().zip(&same).any(|(a, b)| (a - b).abs() > 1e-4), "the rates matter");
    }
}

#[test]
fn the_langevin_methods_follow_the_rates_of_leaves() {
    // In coordinates θ = √rate·φ a leaf with a rate is one without: both must give the same hypergradient.
    let rate: f64 = 0.25;
    let scaled = |own: bool| {
        let theta =
            if own { Variable::constant([], 1.0).rate(rate) } else { Variable::constant([], 1.0 / rate.sqrt()) };
        let to = if own { 1.0 } else { rate.sqrt() };
        Problem::builder(Leaf(Variable::constant([], 0.4)), Leaf(theta))
            .inner(move |_, l, t| (t.0 * to - l.0).square() + (t.0 * to).square().square() * 0.1)
            .outer(move |_, l, t| (t.0 * to - 1.0).square() + l.0.square() * 0.1)
            .build()
            .unwrap()
    };
    let hpo = With(HpoSgld::default(), InnerLoop { burn_in: 3, ..InnerLoop::new(0.05, 8).at_temperature(0.01) });
    let adjoint =
        With(LangevinAdjoint::default(), InnerLoop { burn_in: 3, ..InnerLoop::new(0.05, 8).at_temperature(0.01) });
    for method in [&hpo as &dyn Method, &adjoint] {
        let (own, _) = estimate(&scaled(true), method).unwrap();
        let (other, _) = estimate(&scaled(false), method).unwrap();
        assert_near(method.name(), &own, &other, 1e-12);
    }
}

#[test]
fn lambda_moves_at_the_rate_of_its_leaf_and_decays() {
    #[derive(Clone, Tree)]
    struct Three<T> {
        plain: T,
        slow: T,
        decaying: T,
    }
    let one = || Variable::constant([], 1.0);
    let problem = Problem::builder(
        Three { plain: one(), slow: one().rate(0.25), decaying: one().weight_decay(2.0) },
        Leaf(Variable::constant([], 0.0)),
    )
    .inner(|_, l, t| (t.0 - l.plain - l.slow - l.decaying).square())
    .outer(|_, _, t| t.0)
    .build()
    .unwrap();
    let method = With(Rmd::default(), InnerLoop::new(0.5, 1));
    // θ = λ₁ + λ₂ + λ₃ after one step, so every hypergradient is 1.
    let outcome = Driver::new(&problem, method).rate(0.1).iterations(1).run().unwrap();
    assert_near("λ", &outcome.state.lambda.numbers().unwrap(), &[0.9, 0.975, 0.7], 1e-12);
}

#[derive(Clone, Tree)]
struct Pretrained<T> {
    first: T,
    head: T,
    mean: T,
}

/// A frozen first layer, a head that is trained, and the running mean of what comes between them.
fn pretrained() -> Problem {
    let (x, y) = data();
    let first = Array::from_f64([3], vec![0.7, -0.4, 0.2]).unwrap();
    let hidden =
        |s: &bilevel::Scope, net: &Pretrained<Tensor>| s.data("x").matmul(net.first.reshape([3, 1])).reshape([8]);
    Problem::builder(
        Leaf(Variable::constant([], -1.0)),
        Pretrained {
            first: Variable::fixed(first).frozen(),
            head: Variable::constant([], 0.5),
            mean: Variable::constant([], 0.0).statistic(),
        },
    )
    .data("x", x)
    .data("y", y)
    .inner(move |s, l, net| {
        let h = hidden(s, net);
        s.update(net.mean, net.mean * 0.9 + h.mean_all() * 0.1);
        ((h - h.mean_all()) * net.head - s.data("y")).square().mean_all() + l.0.exp() * net.head.square()
    })
    .outer(move |s, _, net| {
        assert!(!s.training());
        ((hidden(s, net) - net.mean) * net.head - s.data("y")).square().mean_all()
    })
    .build()
    .unwrap()
    .erase()
}

#[test]
fn a_frozen_leaf_costs_no_state_and_a_statistic_is_updated_but_not_differentiated() {
    let problem = pretrained();
    assert_eq!(problem.theta_names(), ["head", "mean"]);
    let (found, end) = estimate(&problem, &rmd(InnerOptimizer::Sgd)).unwrap();
    let (x, _) = data();
    let mean = x.to_f64().chunks(3).map(|r| 0.7 * r[0] - 0.4 * r[1] + 0.2 * r[2]).sum::<f64>() / 8.0;
    let expected = mean * (1.0 - 0.9f64.powi(STEPS as i32));
    assert!((end.theta[1].item().unwrap() - expected).abs() < 1e-12, "after {STEPS} updates");
    // The mean does not depend on λ here, so what is not differentiated through it is nothing.
    let finite = |lambda: f64| value_at(&problem, lambda);
    let h = 1e-4;
    assert_near("rmd", &found, &[(finite(-1.0 + h) - finite(-1.0 - h)) / (2.0 * h)], 1e-7);
    for method in [&HpoSgld::default() as &dyn Method, &LangevinAdjoint::default(), &IftCg::default()] {
        let (_, end) = estimate(&problem, method).unwrap();
        assert!(end.theta[1].item().unwrap() != 0.0, "{} updates the statistic", method.name());
    }
}

fn value_at(problem: &AnyProblem, lambda: f64) -> f64 {
    let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
    let mut state: State = session.state(Key::from_seed(1)).unwrap();
    state.lambda.write(&[Array::from_f64([], vec![lambda]).unwrap()]).unwrap();
    let mut estimator = rmd(InnerOptimizer::Sgd).prepared(&session).unwrap();
    estimator.estimate(&mut state, Key::from_seed(2)).unwrap().outer_loss
}

#[test]
fn what_cannot_be_frozen_updated_or_scaled_is_refused_in_a_sentence() {
    let one = || Variable::constant([], 1.0);
    let build = |lambda: Variable, theta: Variable| {
        Problem::builder(Leaf(lambda), Leaf(theta))
            .inner(|_, l, t| (t.0 - l.0).square())
            .outer(|_, _, t| t.0.square())
            .build()
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    assert!(build(one().frozen(), one()).contains("Give it as data instead"));
    assert!(build(one(), one().frozen()).contains("θ has no variables to learn"));
    assert!(build(one(), Variable::normal([], 1.0).frozen()).contains("Variable::fixed"));
    assert!(build(one(), one().rate(0.0)).contains("has the rate 0, which must be above 0"));
    assert!(build(one(), one().weight_decay(-1.0)).contains("has the weight decay -1"));
    let foreign = Problem::builder(Leaf(one()), Leaf(one()))
        .inner(|s, l, t| {
            s.update(t.0, t.0 * 0.5);
            (t.0 - l.0).square()
        })
        .outer(|_, _, t| t.0.square())
        .build()
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(foreign.contains("declare it with .statistic()"), "{foreign}");
}
