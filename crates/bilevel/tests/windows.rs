//! Forward mode along random directions, and evolutionary search in windows, against exact derivatives of the unrolled loop.

mod quadratic;

use bilevel::{
    Adam, AnyProblem, Cpu, Directions, Error, Es, Fg2u, Fmd, InnerOptimizer, Key, Method, Oracles, Pes, Problem, Rmd,
    Session,
};
use quadratic::*;

fn estimate(method: &dyn Method, problem: &AnyProblem, seed: u64) -> bilevel::Hypergradient {
    let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
    method.compile(&session).unwrap().estimate(&mut session.state(key()).unwrap(), Key::from_seed(seed)).unwrap()
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

const FG2U: Fg2u = Fg2u {
    samples: 1,
    directions: Directions::Signs,
    step: 0.1,
    steps: 12,
    temperature: 0.01,
    noise_scale: 1.0,
    optimizer: InnerOptimizer::Sgd,
};

#[test]
fn all_coordinates_give_the_hypergradient_of_forward_and_reverse_mode() {
    for start in [false, true] {
        for (optimizer, temperature) in [(InnerOptimizer::Sgd, 0.01), (Adam::default().into(), 0.0)] {
            let problem = Quadratic { start, ..Quadratic::default() }.problem();
            let all = Fg2u { samples: 100, directions: Directions::Coordinates, optimizer, temperature, ..FG2U };
            let Fg2u { step, steps, noise_scale, .. } = all;
            let found = estimate(&all, &problem, 5);
            let forward = Fmd { step, steps, temperature, noise_scale, optimizer, ..Fmd::default() };
            let reverse = Rmd { step, steps, temperature, noise_scale, optimizer, ..Rmd::default() };
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
    let problem = Problem::new(fixed(&LAMBDA), fixed(&[0.0; N]))
        .inner(|_, _, t| t.0.square().sum_all() * 0.5)
        .outer(|_, _, t| (t.0 - 1.0).square().sum_all() * 0.5)
        .start(|_, l| *l)
        .build()
        .unwrap();
    // θᵀ = (1 − γ)ᵀλ.
    let kept = 0.9f64.powi(12);
    let truth = LAMBDA.map(|l| kept * (kept * l - 1.0));
    let coordinates = Fg2u { samples: N, directions: Directions::Coordinates, temperature: 0.0, ..FG2U };
    for method in [&Fmd { step: 0.1, steps: 12, ..Fmd::default() } as &dyn Method, &coordinates] {
        let found = estimate(method, &problem, 0);
        assert!(distance(&numbers(&found.value), &truth) < 1e-15, "{}", method.name());
    }
}

#[test]
fn random_directions_are_unbiased_and_know_their_standard_error() {
    let problem = Quadratic::default().problem();
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let quiet = Fg2u { temperature: 0.0, ..FG2U };
    let Fg2u { step, steps, temperature, noise_scale, optimizer, .. } = quiet;
    let truth = numbers(
        &estimate(&Fmd { step, steps, temperature, noise_scale, optimizer, ..Fmd::default() }, &problem, 0).value,
    );
    for (directions, samples) in [(Directions::Signs, 2), (Directions::Coordinates, 1), (Directions::Coordinates, 3)] {
        let mut estimator = Fg2u { samples, directions, ..quiet }.compile(&session).unwrap();
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
    let mut estimator = Fg2u { samples: 2000, ..quiet }.compile(&session).unwrap();
    let found = estimator.estimate(&mut session.state(key()).unwrap(), key()).unwrap();
    let whole: f64 = truth.iter().map(|h| h * h).sum();
    for (error, h) in numbers(&found.standard_error.unwrap()).into_iter().zip(&truth) {
        let want = ((whole - h * h) / 2000.0).sqrt();
        assert!((error / want - 1.0).abs() < 0.1, "{error} {want}");
    }
}

const PES: Pes = Pes { sigma: 0.1, samples: 50, step: 0.1, steps: 3, windows: 4, temperature: 0.0, noise_scale: 1.0 };

/// The derivative of the mean of f over the ends of all windows.
fn over_windows(problem: &AnyProblem) -> Vec<f64> {
    let at =
        |window: usize| numbers(&estimate(&Rmd { step: 0.1, steps: 3 * window, ..Rmd::default() }, problem, 0).value);
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
        let (mut estimator, mut state) = (method.compile(&session).unwrap(), session.state(key()).unwrap());
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
    let truncated = Es { sigma: 0.1, samples: 50, step: 0.1, steps: 3, ..Es::default() };
    let truncated = off(trainings(&truncated, true));
    assert!(persistent < 4.0 && truncated > 10.0, "{persistent} and {truncated} standard errors");
}

#[test]
fn one_window_is_evolutionary_search_to_the_bit() {
    let problem = Quadratic::default().problem();
    let pes = Pes { windows: 1, temperature: 0.01, ..PES };
    let es = Es { sigma: 0.1, samples: 50, step: 0.1, steps: 3, temperature: 0.01, ..Es::default() };
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
    let (mut estimator, mut state) = (PES.compile(&session).unwrap(), session.state(key()).unwrap());
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
    assert!(error.to_string().contains("pes does not apply: it continues where the last window ended"), "{error}");
    let refused = |method: &dyn Method| {
        let error = method.prepare(&Quadratic::default().problem(), &Cpu::with_threads(1)).err().unwrap();
        let Error::Setting { name, .. } = error else { panic!("{error}") };
        name
    };
    assert_eq!(refused(&Pes { windows: 0, ..PES }), "windows");
    assert_eq!(refused(&Pes { sigma: 0.0, ..PES }), "sigma");
    assert_eq!(refused(&Pes { samples: 0, ..PES }), "samples");
    assert_eq!(refused(&Fg2u { samples: 0, ..FG2U }), "samples");
    assert_eq!(refused(&Fg2u { step: 0.0, ..FG2U }), "step");
}
