//! Training at a λ that stays, and runs that start from values somebody gave.

use crate::with::With;
use bilevel::checkpoints::Checkpoints;
use bilevel::graph::ErrorKind;
use bilevel::methods::{IftNeumann, Rmd};
use bilevel::observers::StopSignal;
use bilevel::optimizers::{Adam, Momentum};
use bilevel::programs::Snapshot;
use bilevel::training::{Evaluator, Trainer};
use bilevel::{Array, Cpu, DType, Driver, Error, InnerLoop, Key, Problem, Session, Tree, Variable};

#[derive(Clone, Tree)]
struct Decay<T> {
    log: T,
}

#[derive(Clone, Tree)]
struct Line<T> {
    frozen: T,
    weights: T,
    bias: T,
}

type Regression = Problem<Decay<Variable>, Line<Variable>>;

/// Minibatches, normal starts, a frozen leaf.
fn problem() -> Regression {
    let x: Vec<f64> = (0..48).map(|i| (i as f64 * 0.7).sin()).collect();
    let y: Vec<f64> = (0..16).map(|i| (i as f64 * 0.3).cos()).collect();
    let lambda = Decay { log: Variable::constant([3], -2.0).at_least(-8.0).at_most(2.0) };
    let theta = Line {
        frozen: Variable::constant([3], 2.0).frozen(),
        weights: Variable::normal([3], 0.5),
        bias: Variable::uniform([], -1.0, 1.0),
    };
    let error = |s: &bilevel::Scope, t: &Line<bilevel::Tensor>| {
        let rows = s.minibatch(16, 4);
        let guess = (s.data("x").take(rows) * t.weights * t.frozen).sum([1]) + t.bias;
        (guess - s.data("y").take(rows)).square().mean_all()
    };
    Problem::builder(lambda, theta)
        .data("x", Array::from_f64([16, 3], x).unwrap())
        .data("y", Array::from_f64([16], y).unwrap())
        .inner(move |s, l, t| error(s, t) + (l.log.exp() * t.weights.square()).sum_all())
        .outer(move |s, _, t| error(s, t))
        .measure("bias", |_, _, t| t.bias)
        .build()
        .unwrap()
}

fn decay(log: [f64; 3]) -> Decay<Array> {
    Decay { log: Array::from_f64([3], log.to_vec()).unwrap() }
}

fn one() -> Cpu {
    Cpu::with_threads(1)
}

fn leaves(theta: &Line<Array>) -> Vec<Array> {
    theta.leaves().into_iter().cloned().collect()
}

#[test]
fn training_is_the_inner_loop_of_a_runs_first_iteration_with_any_optimizer() {
    let problem = problem();
    let lambda = decay([-2.0; 3]);
    let momentum = Momentum::default();
    for (steps, optimizer) in
        [(1, bilevel::optimizers::InnerOptimizer::Sgd), (7, momentum.into()), (30, Adam::default().into())]
    {
        let method = With(Rmd::default(), InnerLoop { optimizer, ..InnerLoop::new(0.02, steps) });
        let outcome = Driver::new(&problem, method).executor(one()).seed(4).iterations(1).run().unwrap();
        let training = problem.train(&lambda).step(0.02).steps(steps).optimizer(optimizer).seed(4).executor(one());
        let trained = training.run().unwrap();
        assert_eq!(leaves(&trained.theta), leaves(&outcome.theta), "{optimizer:?}");
        assert_eq!(trained.outer_loss, outcome.last.unwrap().outer_loss, "{optimizer:?}");
        assert_eq!(trained.measures.get("bias").copied(), trained.theta.bias.item());
        assert_eq!(trained.theta.frozen.to_f64(), [2.0; 3]);
    }
}

#[test]
fn training_sees_lambda_and_keeps_losses_where_asked() {
    let problem = problem();
    let weak = problem.train(&decay([-8.0; 3])).steps(200).executor(one()).run().unwrap();
    // Beyond the bounds of λ, which are the outer loop's.
    let strong = problem.train(&decay([3.0; 3])).steps(200).executor(one()).record_every(60).run().unwrap();
    let size = |line: &Line<Array>| line.weights.to_f64().iter().map(|w| w * w).sum::<f64>();
    assert!(size(&strong.theta) < 0.01 * size(&weak.theta));
    assert_eq!(strong.losses.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [60, 120, 180]);
    assert!(weak.losses.is_empty() && strong.losses.iter().all(|(_, loss)| loss.is_finite()));
    // To record changes nothing.
    let silent = problem.train(&decay([3.0; 3])).steps(200).executor(one()).run().unwrap();
    assert_eq!(leaves(&silent.theta), leaves(&strong.theta));
}

#[test]
fn training_of_no_steps_gives_theta_as_it_starts_or_as_it_was_given() {
    let problem = problem();
    let lambda = decay([0.0; 3]);
    let start = problem.train(&lambda).steps(0).seed(9).run().unwrap();
    let state = bilevel::State::initial(&problem, &one(), Key::from_seed(9)).unwrap();
    assert_eq!(start.theta.weights, state.theta.array(0).unwrap());
    let trained = problem.train(&lambda).steps(20).run().unwrap();
    let again = problem.train(&lambda).theta(&trained.theta).steps(0).run().unwrap();
    assert_eq!(leaves(&again.theta), leaves(&trained.theta));
}

#[test]
fn training_starts_from_lambda_where_the_problem_says_so_and_from_a_given_theta_all_the_same() {
    let start = Decay { log: Variable::constant([2], 1.0) };
    let problem = Problem::builder(start.clone(), start)
        .start(|_, l| l.clone())
        .inner(|_, _, t| t.log.square().sum_all())
        .outer(|_, _, t| (t.log - 1.0).square().sum_all())
        .build()
        .unwrap();
    let at = |value: f64| Decay { log: Array::from_f64([2], vec![value; 2]).unwrap() };
    let theta = |given: Option<&Decay<Array>>| {
        let lambda = at(4.0);
        let training = problem.train(&lambda).step(0.25).steps(1);
        let training = if let Some(theta) = given { training.theta(theta) } else { training };
        training.run().unwrap().theta.log.to_f64()
    };
    assert_eq!(theta(None), [2.0; 2]);
    assert_eq!(theta(Some(&at(1.0))), [0.5; 2]);
}

#[test]
fn training_that_diverges_or_is_stopped_or_misused_says_so() {
    let problem = problem();
    let lambda = decay([0.0; 3]);
    let error = problem.train(&lambda).step(1e3).steps(2000).run().unwrap_err();
    assert!(error.to_string().starts_with("diverged: training: θ is no longer finite; "), "{error}");
    let signal = StopSignal::new();
    signal.stop();
    let stopped = problem.train(&lambda).steps(1_000_000_000).stop_signal(signal).run().unwrap_err();
    assert!(matches!(stopped, Error::Graph(error) if error.kind == ErrorKind::Stopped));
    assert!(problem.train(&lambda).step(-1.0).run().unwrap_err().to_string().contains("step is -1"));
    let noisy = problem.train(&lambda).temperature(0.1).optimizer(Adam::default()).run().unwrap_err();
    assert!(noisy.to_string().contains("temperature"), "{noisy}");
    let short = Decay { log: Array::from_f64([2], vec![0.0; 2]).unwrap() };
    let error = problem.train(&short).run().unwrap_err().to_string();
    assert_eq!(error, "λ.log has the shape [2] and must have [3]");
}

#[test]
fn a_trainer_compiled_once_trains_like_one_compiled_for_the_purpose() {
    let problem = problem();
    let session = Session::new(&problem, &one()).unwrap();
    let inner = InnerLoop { optimizer: Adam::default().into(), ..InnerLoop::new(0.02, 12) };
    let mut trainer = Trainer::new(&session, inner).unwrap();
    for seed in [3, 4] {
        let key = Key::from_seed(seed);
        let state = session.state(key).unwrap();
        trainer.train(&state, key.fold_in(1)).unwrap();
        let lambda = decay([-2.0; 3]);
        let training = problem.train(&lambda).step(0.02).steps(12).optimizer(Adam::default()).seed(seed);
        let trained = training.executor(one()).run().unwrap();
        assert_eq!(leaves(&problem.theta_of(&state.theta).unwrap()), leaves(&trained.theta));
    }
}

#[test]
fn a_run_goes_on_from_the_lambda_and_theta_of_another_with_other_settings() {
    let problem = problem();
    let method = With(Rmd::default(), InnerLoop::new(0.02, 5));
    let first = Driver::new(&problem, method).executor(one()).iterations(10).rate(0.5).run().unwrap();
    // Another method, which leaves θ where it is.
    let finer = With(IftNeumann::default(), InnerLoop::new(0.01, 0));
    let next = Driver::new(&problem, finer).start_from(&first.lambda).theta(&first.theta).executor(one()).rate(1e-300);
    let next = next.iterations(1).run().unwrap();
    assert_eq!(next.lambda.log, first.lambda.log);
    assert_eq!(leaves(&next.theta), leaves(&first.theta));
    // λ alone: θ starts as ever.
    let next =
        Driver::new(&problem, finer).start_from(&first.lambda).executor(one()).rate(1e-300).seed(6).iterations(1);
    let next = next.run().unwrap();
    assert_eq!(next.lambda.log, first.lambda.log);
    assert_eq!(next.theta.weights, problem.train(&first.lambda).steps(0).seed(6).run().unwrap().theta.weights);
}

#[test]
fn a_start_that_does_not_fit_is_refused_when_the_run_begins() {
    let problem = problem();
    let theta = problem.train(&decay([0.0; 3])).run().unwrap().theta;
    let driver = || Driver::new(&problem, Rmd::default());
    let outside = driver().start_from(&decay([0.0, 2.5, 0.0])).run().unwrap_err().to_string();
    assert_eq!(outside, "λ.log starts at 2.5, above its upper bound 2");
    let cold = driver().theta(&theta).cold(true).run().unwrap_err().to_string();
    assert!(cold.contains("θ starts from scratch in every iteration"), "{cold}");
    let bad = Line { weights: Array::zeros([4], DType::F64), ..theta };
    assert!(driver().theta(&bad).run().unwrap_err().to_string().starts_with("θ.weights has the shape [4]"));
}

#[test]
fn a_run_that_was_given_a_start_resumes_to_the_same_bits_and_refuses_another_start() {
    let problem = problem();
    let folder = std::env::temp_dir().join(format!("bilevel-given-{}", std::process::id()));
    let from = |value: f64, iterations| {
        let method = With(Rmd::default(), InnerLoop::new(0.02, 3));
        let driver = Driver::new(&problem, method).executor(one()).optimizer(Adam::default()).iterations(iterations);
        driver.start_from(&decay([value; 3]))
    };
    let saved = || Checkpoints::new(&folder).every(1).resume(true);
    let alone = from(-1.0, 6).run().unwrap();
    from(-1.0, 3).checkpoints(saved()).run().unwrap();
    let resumed = from(-1.0, 6).checkpoints(saved()).run().unwrap();
    let snapshot = |state: &bilevel::State| -> Snapshot { state.snapshot().unwrap() };
    assert_eq!(snapshot(&alone.state), snapshot(&resumed.state));
    let other = from(-0.5, 7).checkpoints(saved()).run().unwrap_err().to_string();
    assert!(other.contains("it has a different initial λ or θ"), "{other}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn theta_is_taken_out_evaluated_elsewhere_and_put_back() {
    let (problem, lambda) = (problem(), decay([-2.0; 3]));
    let trained = problem.train(&lambda).steps(40).executor(one()).run().unwrap();
    // In another precision, by somebody else.
    let single = problem.in_dtype(DType::F32).unwrap();
    let state = single.state_at(&lambda, &trained.theta, &one()).unwrap();
    let numbers = Evaluator::new(&single, &one()).unwrap().at(&state, Key::from_seed(0)).unwrap();
    assert!(numbers.iter().all(|number| number.is_finite()));
    let mut halved = single.theta_of(&state.theta).unwrap();
    let weights: Vec<f64> = halved.weights.to_f64().iter().map(|w| w / 2.0).collect();
    halved.weights = Array::from_values([3], &weights, DType::F32).unwrap();
    let back = problem.train(&lambda).theta(&halved).steps(0).run().unwrap();
    assert_eq!((back.theta.weights.dtype(), back.theta.weights.to_f64()), (DType::F64, halved.weights.to_f64()));
}
