//! Several chains in one hypergradient.

use crate::with::{Usual, With};
use bilevel::methods::{AmigoSgd, Chains, HpoSgld, LangevinAdjoint, PreparedMethod, Rmd};
use bilevel::{Cpu, Driver, Error, InnerLoop, Key, Leaf, Method, Problem, State, Variable};

fn problem() -> Problem {
    Problem::builder(Leaf(Variable::constant([2], 0.4)), Leaf(Variable::constant([2], 0.1)))
        .inner(|_, l, t| ((t.0 - l.0).square() * (t.0.square() + 0.5)).sum_all())
        .outer(|_, l, t| (t.0 - 1.0).square().sum_all() + (l.0 * l.0).sum_all() * 0.1)
        .build()
        .unwrap()
        .erase()
}

const METHOD: With<LangevinAdjoint> = With(
    LangevinAdjoint { warm: true, outer_every_step: true, trust: true, horizon: 0 },
    InnerLoop { burn_in: 3, ..InnerLoop::new(0.05, 20).at_temperature(0.2) },
);

#[test]
fn the_mean_and_its_error_are_those_of_the_chains_run_one_by_one() {
    let (problem, cpu) = (problem(), Cpu::with_threads(2));
    let mut together = Chains::new(METHOD, 5).prepared_on(&problem, &cpu).unwrap();
    let mut state = State::initial(&problem, &cpu, Key::from([1, 2])).unwrap();
    let mut alone: Vec<(PreparedMethod, State)> =
        (0..5).map(|_| (METHOD.prepared_on(&problem, &cpu).unwrap(), state.duplicate(&cpu).unwrap())).collect();
    for call in 0..3 {
        let found = together.estimate(&mut state, Key::from([call, 9])).unwrap();
        let each: Vec<Vec<f64>> = alone
            .iter_mut()
            .enumerate()
            .map(|(k, (chain, state))| {
                // The first chain draws as the method alone would.
                let key = Key::from([call, 9]);
                let key = if k == 0 { key } else { key.fold_in(k as u32) };
                chain.estimate(state, key).unwrap().value.numbers().unwrap()
            })
            .collect();
        for i in 0..2 {
            let mean = each.iter().map(|h| h[i]).sum::<f64>() / 5.0;
            let error = (each.iter().map(|h| (h[i] - mean).powi(2)).sum::<f64>() / 20.0).sqrt();
            assert_eq!(found.value.numbers().unwrap()[i], mean);
            assert_eq!(found.standard_error.as_ref().unwrap().numbers().unwrap()[i], error);
            assert!(error > 0.0);
        }
        assert_eq!(found.oracles.inner_gradients, 5 * 20);
        assert_eq!(state.theta.arrays().unwrap(), alone[0].1.theta.arrays().unwrap());
    }
}

#[test]
fn a_state_carries_all_chains_over_to_an_estimator_made_anew() {
    let (problem, cpu) = (problem(), Cpu::with_threads(1));
    for method in [&Chains::new(METHOD, 3) as &dyn Method, &Chains::new(HpoSgld::default(), 3)] {
        let mut estimator = method.prepared_on(&problem, &cpu).unwrap();
        let mut state = State::initial(&problem, &Cpu::with_threads(1), Key::from([1, 2])).unwrap();
        estimator.estimate(&mut state, Key::from([0, 1])).unwrap();
        let mut saved = state.duplicate(&cpu).unwrap();
        let next = estimator.estimate(&mut state, Key::from([0, 2])).unwrap();
        let resumed = method.prepared_on(&problem, &cpu).unwrap().estimate(&mut saved, Key::from([0, 2])).unwrap();
        assert_eq!(next.value.arrays().unwrap(), resumed.value.arrays().unwrap());
        assert_eq!(next.standard_error.unwrap().arrays().unwrap(), resumed.standard_error.unwrap().arrays().unwrap());
        assert_eq!(
            (next.inner_loss, next.outer_loss, next.oracles),
            (resumed.inner_loss, resumed.outer_loss, resumed.oracles)
        );
        assert_eq!(next.diagnostics, resumed.diagnostics);
        assert_eq!(state.snapshot().unwrap(), saved.snapshot().unwrap());
    }
}

#[test]
fn one_chain_has_no_standard_error_and_is_refused() {
    let refused = Chains::new(METHOD, 1).prepared_on(&problem(), &Cpu::with_threads(1)).err();
    assert_eq!(refused, Some(Error::setting("count", 1_usize, "at least 2")));
}

/// Trained towards λ without noise, so that chains differ only where they should not.
fn quiet_problem() -> bilevel::ProblemBuilder<Leaf<Variable>, Leaf<Variable>> {
    Problem::builder(Leaf(Variable::constant([], 0.3)), Leaf(Variable::constant([], 2.0)))
        .inner(|_, l, t| (t.0 - l.0).square())
        .outer(|_, l, t| (t.0 - 1.0).square() + l.0.square())
}

#[test]
fn every_chain_starts_anew_where_the_run_is_cold_or_theta_starts_from_lambda() {
    let alone = With(Rmd::default(), InnerLoop::new(0.01, 5));
    for problem in [quiet_problem().build().unwrap(), quiet_problem().start(|_, l| *l).build().unwrap()] {
        let methods: [Box<dyn Method>; 2] = [Box::new(alone), Box::new(Chains::new(alone, 4))];
        let ends = methods.map(|m| Driver::new(&problem, m).cold(true).rate(0.1).iterations(20).run().unwrap());
        assert_eq!(ends[0].state.lambda.arrays().unwrap(), ends[1].state.lambda.arrays().unwrap());
        let [a, b] = ends.each_ref().map(|end| end.last.as_ref().unwrap().outer_loss);
        assert_eq!(a, b);
    }
}

#[test]
fn every_chain_starts_from_the_task_it_is_trained_on() {
    // θ⁰ is the task's own target, so that f is 0 without any training, whichever task a chain has.
    let target = |s: &bilevel::Scope| s.episode().uniform([], 0.0, 4.0);
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
        .inner(move |s, _, t| (t.0 - target(s)).square())
        .outer(move |s, _, t| (t.0 - target(s)).square())
        .start(move |s, l| Leaf(target(s) + l.0))
        .build()
        .unwrap();
    let method = Chains::new(With(Rmd::default(), InnerLoop::new(0.01, 3)), 4);
    let outcome = Driver::new(&problem, method).iterations(3).run().unwrap();
    assert_eq!(outcome.last.unwrap().outer_loss, 0.0);
}

#[test]
fn a_state_that_chains_cannot_have_left_is_refused() {
    let problem = problem();
    let mut estimator = Chains::new(METHOD, 3).prepared_on(&problem, &Cpu::with_threads(1)).unwrap();
    let mut state = State::initial(&problem, &Cpu::with_threads(1), Key::from([1, 2])).unwrap();
    state.memory = state.theta.duplicate(&Cpu::with_threads(1)).unwrap();
    assert!(estimator.estimate(&mut state, Key::from([0, 0])).unwrap_err().to_string().contains("State::initial"));
}

#[test]
fn a_state_whose_arrays_would_fit_but_are_not_those_of_these_chains_is_refused() {
    // Two leaves of θ: a warm solve alone keeps two arrays, as many as the θ of a second chain.
    #[derive(Clone, bilevel::Tree)]
    struct Pair<T> {
        a: T,
        b: T,
    }
    let theta = Pair { a: Variable::constant([], 0.1), b: Variable::constant([], 0.2) };
    let problem = Problem::builder(Leaf(Variable::constant([], 0.4)), theta)
        .inner(|_, l, t| (t.a - l.0).square() + (t.b - l.0).square())
        .outer(|_, _, t| (t.a + t.b - 1.0).square())
        .build()
        .unwrap();
    let cpu = Cpu::with_threads(1);
    let left = |method: &dyn Method| {
        let mut state = State::initial(&problem, &Cpu::with_threads(1), Key::from([1, 2])).unwrap();
        method.prepared_on(&problem, &Cpu::with_threads(1)).unwrap().estimate(&mut state, Key::from([0, 1])).unwrap();
        state
    };
    let quiet = With(Rmd::default(), InnerLoop::new(0.01, 3));
    let warm = With(AmigoSgd::default(), InnerLoop::new(0.01, 3));
    let alone = left(&warm);
    assert_eq!(alone.memory.len(), 2);
    // Three chains of rmd leave four arrays of θ, and two of a warm solve six of both: so do, by number, chains of others.
    let foreign = [(alone, 2), (left(&Chains::new(quiet, 3)), 2), (left(&Chains::new(warm, 2)), 4)];
    for (state, count) in foreign {
        for method in [&Chains::new(quiet, count) as &dyn Method, &Chains::new(warm, count)] {
            let mut estimator = method.prepared_on(&problem, &Cpu::with_threads(1)).unwrap();
            let error =
                estimator.estimate(&mut state.duplicate(&cpu).unwrap(), Key::from([0, 2])).unwrap_err().to_string();
            assert!(error.contains(&format!("is not from {count} chains")), "{error}");
            assert!(estimator.restart(&mut state.duplicate(&cpu).unwrap(), &state.theta).is_err());
        }
    }
    // Nor does a method alone take what chains left.
    let mut of_chains = left(&Chains::new(METHOD, 2));
    let error = METHOD
        .prepared_on(&problem, &Cpu::with_threads(1))
        .unwrap()
        .estimate(&mut of_chains, Key::from([0, 2]))
        .unwrap_err();
    assert!(error.to_string().contains("leaves were given for the group 'z'"), "{error}");
}

#[test]
fn chains_have_a_name_of_their_own_and_no_method_is_called_so() {
    let chains = Chains::new(Rmd::default(), 3);
    assert_eq!(chains.name(), "chains of rmd");
    assert!(bilevel::methods::AnyMethod::named(chains.name()).is_err());
    assert_eq!(Chains::new(chains, 2).name(), "chains");
    for info in bilevel::methods::all() {
        let method = bilevel::methods::AnyMethod::named(info.name).unwrap();
        assert_eq!(Chains::new(method, 2).name(), format!("chains of {}", info.name));
    }
}

#[test]
fn a_run_of_chains_that_is_resumed_has_the_bits_of_one_in_one_piece() {
    let folder = std::env::temp_dir().join(format!("bilevel-chains-resumed-{}", std::process::id()));
    let driver = |iterations| Driver::new(&problem(), Chains::new(METHOD, 3)).iterations(iterations);
    let saving = || bilevel::checkpoints::Checkpoints::new(&folder).resume(true);
    driver(4).checkpoints(saving()).run().unwrap();
    let resumed = driver(9).checkpoints(saving()).run().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(resumed.state.snapshot().unwrap(), driver(9).run().unwrap().state.snapshot().unwrap());
}
