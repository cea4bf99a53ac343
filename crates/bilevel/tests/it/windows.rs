//! Forward mode along random directions, and evolutionary search in windows, against exact derivatives of the unrolled loop.

use crate::quadratic::*;
use crate::with::{Usual, With};
use bilevel::methods::{Directions, Es, Fg2u, Fmd, Oracles, Pes, Rmd};
use bilevel::optimizers::{Adam, InnerOptimizer};
use bilevel::{AnyProblem, Cpu, Error, InnerLoop, Key, Method, Problem, Session};

fn estimate(method: &dyn Method, problem: &AnyProblem, seed: u64) -> bilevel::Hypergradient {
    let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
    method.usual(&session).unwrap().estimate(&mut session.state(key()).unwrap(), Key::from_seed(seed)).unwrap()
}

/// Mean and standard error of each number.
fn average(samples: &[Vec<f64>]) -> Vec<(f64, f64)> {
    let count = samples.len() as f64;
    (0..samples[0].len())
        .map(|i| {
            let mean = samples.iter().map(|s| s[i]).sum::<f64>() / count;
            let spread = samples.iter().map(|s| (s[i] - mean).powi(2)).sum::<f64>() / (count - 1.0);
            (mean, (spread / count).sqrt())
        })
        .collect()
}

const FG2U: With<Fg2u> =
    With(Fg2u { directions: 1, draw: Directions::Signs }, InnerLoop::new(0.1, 12).at_temperature(0.01));

#[test]
fn all_coordinates_give_the_hypergradient_of_forward_and_reverse_mode() {
    for start in [false, true] {
        for (optimizer, temperature) in [(InnerOptimizer::Sgd, 0.01), (Adam::default().into(), 0.0)] {
            let problem = Quadratic { start, ..Quadratic::default() }.problem();
            let all = With(
                Fg2u { directions: 100, draw: Directions::Coordinates },
                InnerLoop { temperature, optimizer, ..FG2U.1 },
            );
            let found = estimate(&all, &problem, 5);
            let forward = With(Fmd::default(), all.1);
            let reverse = With(Rmd::default(), all.1);
            // Every number is N times itself, over N.
            assert!(distance(&numbers(&found.value), &numbers(&estimate(&forward, &problem, 5).value)) < 1e-15);
            assert!(distance(&numbers(&found.value), &numbers(&estimate(&reverse, &problem, 5).value)) < 1e-13);
            assert_eq!((found.oracles.inner_gradients, found.oracles.outer_gradients), (12 * N as u64, 1));
            assert!(found.standard_error.is_none());
        }
    }
}

#[test]
fn forward_mode_goes_through_a_start_that_is_all_lambda_acts_on() {
    let problem = Problem::builder(fixed(&LAMBDA), fixed(&[0.0; N]))
        .inner(|_, _, t| t.0.square().sum_all() * 0.5)
        .outer(|_, _, t| (t.0 - 1.0).square().sum_all() * 0.5)
        .start(|_, l| *l)
        .build()
        .unwrap();
    // θᵀ = (1 − γ)ᵀλ.
    let kept = 0.9f64.powi(12);
    let truth = LAMBDA.map(|l| kept * (kept * l - 1.0));
    let coordinates =
        With(Fg2u { directions: N, draw: Directions::Coordinates }, InnerLoop { temperature: 0.0, ..FG2U.1 });
    for method in [&With(Fmd::default(), InnerLoop::new(0.1, 12)) as &dyn Method, &coordinates] {
        let found = estimate(method, &problem, 0);
        assert!(distance(&numbers(&found.value), &truth) < 1e-15, "{}", method.name());
    }
}

#[test]
fn random_directions_are_unbiased_and_know_their_standard_error() {
    let problem = Quadratic::default().problem();
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let quiet = With(FG2U.0, InnerLoop { temperature: 0.0, ..FG2U.1 });
    let truth = numbers(&estimate(&With(Fmd::default(), quiet.1), &problem, 0).value);
    for (directions, samples) in [(Directions::Signs, 2), (Directions::Coordinates, 1), (Directions::Coordinates, 3)] {
        let mut estimator = With(Fg2u { directions: samples, draw: directions }, quiet.1).usual(&session).unwrap();
        let found: Vec<Vec<f64>> = (0..4000)
            .map(|seed| {
                numbers(&estimator.estimate(&mut session.state(key()).unwrap(), Key::from_seed(seed)).unwrap().value)
            })
            .collect();
        for ((mean, error), truth) in average(&found).into_iter().zip(&truth) {
            assert!((mean - truth).abs() < 4.0 * error, "{directions:?}: {mean} ± {error}, {truth}");
        }
    }
    // With signs, the variance of a number is the sum of the squares of the others.
    let mut estimator = With(Fg2u { directions: 2000, ..quiet.0 }, quiet.1).usual(&session).unwrap();
    let found = estimator.estimate(&mut session.state(key()).unwrap(), key()).unwrap();
    let whole: f64 = truth.iter().map(|h| h * h).sum();
    for (error, h) in numbers(&found.standard_error.unwrap()).into_iter().zip(&truth) {
        let want = ((whole - h * h) / 2000.0).sqrt();
        assert!((error / want - 1.0).abs() < 0.1, "{error} {want}");
    }
}

const PES: With<Pes> = With(Pes { sigma: 0.1, directions: 50, windows: 4 }, InnerLoop::new(0.1, 3));

/// The derivative of the mean of f over the ends of all windows.
fn over_windows(problem: &AnyProblem) -> Vec<f64> {
    let at =
        |window: usize| numbers(&estimate(&With(Rmd::default(), InnerLoop::new(0.1, 3 * window)), problem, 0).value);
    let all: Vec<Vec<f64>> = (1..=4).map(at).collect();
    (0..N).map(|i| all.iter().map(|h| h[i]).sum::<f64>() / 4.0).collect()
}

#[test]
fn persistent_search_is_unbiased_over_windows_where_truncated_search_is_not() {
    // f is quadratic in every perturbation, so smoothing leaves its derivative alone.
    let problem = Quadratic { diagonal: false, ..Quadratic::default() }.problem();
    let truth = over_windows(&problem);
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    // The mean over the windows of one training; the next begins where this one began.
    let trainings = |method: &dyn Method, fresh: bool| {
        let (mut estimator, mut state) = (method.usual(&session).unwrap(), session.state(key()).unwrap());
        let mut all = vec![];
        for training in 0..150 {
            if fresh {
                state = session.state(key()).unwrap();
            }
            let mut sum = vec![0.0; N];
            for window in 0..4 {
                let found = estimator.estimate(&mut state, Key::from_seed(4 * training + window)).unwrap();
                numbers(&found.value).iter().zip(&mut sum).for_each(|(h, sum)| *sum += h / 4.0);
            }
            all.push(sum);
        }
        average(&all)
    };
    let off = |found: Vec<(f64, f64)>| {
        found.iter().zip(&truth).map(|((mean, error), truth)| (mean - truth).abs() / error).fold(0.0, f64::max)
    };
    let persistent = off(trainings(&PES, false));
    let truncated = With(Es { sigma: 0.1, directions: 50, ..Es::default() }, InnerLoop::new(0.1, 3));
    let truncated = off(trainings(&truncated, true));
    assert!(persistent < 4.0 && truncated > 10.0, "{persistent} and {truncated} standard errors");
}

#[test]
fn one_window_is_evolutionary_search_to_the_bit() {
    let problem = Quadratic::default().problem();
    let pes = With(Pes { windows: 1, ..PES.0 }, InnerLoop { temperature: 0.01, ..PES.1 });
    let es = With(Es { sigma: 0.1, directions: 50, ..Es::default() }, InnerLoop::new(0.1, 3).at_temperature(0.01));
    let (pes, es) = (estimate(&pes, &problem, 3), estimate(&es, &problem, 3));
    assert_eq!(numbers(&pes.value), numbers(&es.value));
    assert_eq!(numbers(&pes.standard_error.unwrap()), numbers(&es.standard_error.unwrap()));
    assert_eq!(pes.oracles, Oracles { inner_gradients: 101 * 3, losses: 101, ..Oracles::default() });
    assert_eq!((pes.outer_loss, pes.oracles), (es.outer_loss, es.oracles));
}

#[test]
fn a_training_begins_anew_after_its_windows() {
    let problem = Quadratic::default().problem();
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let (mut estimator, mut state) = (PES.usual(&session).unwrap(), session.state(key()).unwrap());
    let mut seen = vec![];
    for call in 0..8 {
        let found = estimator.estimate(&mut state, Key::from_seed(call % 4)).unwrap();
        seen.push((numbers(&found.value), numbers(&state.theta)));
    }
    assert_eq!(seen[..4], seen[4..]);
    assert_ne!(seen[0], seen[1]);
}

#[test]
fn what_does_not_apply_or_fit_is_refused_with_a_reason() {
    let error = PES.applies(&Quadratic { start: true, ..Quadratic::default() }.problem()).unwrap_err();
    assert!(error.to_string().contains("pes does not apply: it continues from the last window"), "{error}");
    let refused = |method: &dyn Method| {
        let error = method.prepared_on(&Quadratic::default().problem(), &Cpu::with_threads(1)).err().unwrap();
        let Error::Setting { name, .. } = error else { panic!("{error}") };
        name
    };
    assert_eq!(refused(&With(Pes { windows: 0, ..PES.0 }, PES.1)), "windows");
    assert_eq!(refused(&With(Pes { sigma: 0.0, ..PES.0 }, PES.1)), "sigma");
    assert_eq!(refused(&With(Pes { directions: 0, ..PES.0 }, PES.1)), "directions");
    assert_eq!(refused(&With(Fg2u { directions: 0, ..FG2U.0 }, FG2U.1)), "directions");
    assert_eq!(refused(&With(FG2U.0, InnerLoop { step: 0.0, ..FG2U.1 })), "step");
}
